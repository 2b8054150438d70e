package allocator

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestFreeListEqualsSortedList compares every answer of a free list with the answer of a sorted slice.
func TestFreeListEqualsSortedList(t *testing.T) {
	order := func(a, b *Block) int {
		return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.rank, b.rank))
	}
	sizes := rapid.OneOf(
		rapid.Int64Range(1, 40),
		rapid.Int64Range(1, 1<<16),
		rapid.Int64Range(1, 1<<40), // beyond the last bin
	)
	rapid.Check(t, func(t *rapid.T) {
		var blocks blockSlab
		list, model := new(freeList), []*Block{}
		for rank := range rapid.Uint64Range(0, 200).Draw(t, "steps") {
			if len(model) > 0 && rapid.Bool().Draw(t, "remove") {
				i := rapid.IntRange(0, len(model)-1).Draw(t, "which")
				list.remove(model[i])
				model = slices.Delete(model, i, i+1)
			} else {
				b := blocks.newBlock()
				b.rank, b.size = rank, sizes.Draw(t, "size")*minBlockSize
				list.insert(b)
				model = append(model, b)
				slices.SortFunc(model, order)
			}
			var all []*Block
			for id := range list.forEach {
				all = append(all, blocks.block(id))
			}
			require.Equal(t, len(model), len(all))
			for i := range all {
				require.Same(t, model[i], all[i])
			}
			want := sizes.Draw(t, "want") * minBlockSize
			at, ok := list.bestFit(want)
			i, _ := slices.BinarySearchFunc(model, &Block{size: want}, order)
			require.Equal(t, i < len(model), ok)
			if ok {
				require.Same(t, model[i], blocks.block(list.blockAt(at)))
			}
			if last, ok := list.last(); ok {
				require.Same(t, model[len(model)-1], blocks.block(list.blockAt(last)))
			}
		}
	})
}

func TestBinsAreMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Int64Range(0, 1<<62).Draw(t, "a")
		b := rapid.Int64Range(a, 1<<62).Draw(t, "b")
		require.LessOrEqual(t, binOf(a), binOf(b))
		require.Less(t, binOf(b), numBins)
	})
}

// On a driver whose addresses fall, PyTorch 2.11 took of four equal blocks the one allocated last, and 2.12 the first,
// in whatever order they were freed ("vprof run" with the wheels of both).
func TestReleasesDifferInTheBlockOfEqualsThatTheyTake(t *testing.T) {
	for name, want := range map[string]struct {
		rules Rules
		order []int
	}{
		"2.11": {Rules{OrdersByAddress: true}, []int{3, 2, 1, 0}},
		"2.12": {Rules{}, []int{0, 1, 2, 3}},
	} {
		config, err := want.rules.Parse("")
		require.NoError(t, err)
		heap, err := New(NewMemory(1<<30, 0), config)
		require.NoError(t, err)
		addrs := make([]uint64, 4)
		blocks := make([]*Block, 4)
		for i := range blocks {
			blocks[i], err = heap.Malloc(20 << 20)
			require.NoError(t, err)
			addrs[i] = blocks[i].Addr()
		}
		for _, i := range []int{2, 0, 3, 1} {
			heap.Free(blocks[i])
		}
		for _, i := range want.order {
			b, err := heap.Malloc(20 << 20)
			require.NoError(t, err)
			require.Equal(t, addrs[i], b.Addr(), name)
		}
	}
}
