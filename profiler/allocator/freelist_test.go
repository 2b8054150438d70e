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
		var blocks slab
		list, model := new(freeList), []*Block{}
		for rank := range rapid.Uint64Range(0, 200).Draw(t, "steps") {
			if len(model) > 0 && rapid.Bool().Draw(t, "remove") {
				i := rapid.IntRange(0, len(model)-1).Draw(t, "which")
				list.remove(model[i])
				model = slices.Delete(model, i, i+1)
			} else {
				b := blocks.get()
				b.rank, b.size = rank, sizes.Draw(t, "size")*minBlockSize
				list.insert(b)
				model = append(model, b)
				slices.SortFunc(model, order)
			}
			var all []*Block
			for id := range list.all {
				all = append(all, blocks.at(id))
			}
			require.Equal(t, len(model), len(all))
			for i := range all {
				require.Same(t, model[i], all[i])
			}
			want := sizes.Draw(t, "want") * minBlockSize
			at, ok := list.fit(want)
			i, _ := slices.BinarySearchFunc(model, &Block{size: want}, order)
			require.Equal(t, i < len(model), ok)
			if ok {
				require.Same(t, model[i], blocks.at(list.at(at)))
			}
			if last, ok := list.last(); ok {
				require.Same(t, model[len(model)-1], blocks.at(list.at(last)))
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
