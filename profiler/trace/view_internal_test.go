package trace

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// places are the positions in the storage of the elements of a tensor, in
// row-major order.
func places(g geometry) []int64 {
	out := []int64{0}
	for d, s := range g.shape {
		next := make([]int64, 0, int64(len(out))*s)
		for _, at := range out {
			for i := range s {
				next = append(next, at+i*g.strides[d])
			}
		}
		out = next
	}
	return out
}

// drawGeometry is a small tensor, possibly permuted, sliced or expanded.
func drawGeometry(rt *rapid.T) geometry {
	shape := rapid.SliceOfN(rapid.Int64Range(1, 4), 1, 4).Draw(rt, "shape")
	g := geometry{shape, contiguousStrides(nil, shape)}
	order := rapid.Permutation(ascending(len(shape))).Draw(rt, "order")
	out := geometry{make([]int64, len(shape)), make([]int64, len(shape))}
	for i, d := range order {
		out.shape[i], out.strides[i] = g.shape[d], g.strides[d]
	}
	switch d := rapid.IntRange(0, len(shape)-1).Draw(rt, "dimension"); rapid.IntRange(0, 3).Draw(rt, "cut") {
	case 0:
		out.shape[d] = rapid.Int64Range(1, out.shape[d]).Draw(rt, "size")
	case 1:
		out.strides[d] = 0
	}
	return out
}

// drawShape cuts n elements into dimensions, some of one element.
func drawShape(rt *rapid.T, n int64) []int64 {
	var shape []int64
	for _, p := range []int64{2, 3} {
		for ; n%p == 0; n /= p {
			if len(shape) > 0 && rapid.Bool().Draw(rt, "join") {
				shape[len(shape)-1] *= p
			} else {
				shape = append(shape, p)
			}
			if rapid.IntRange(0, 4).Draw(rt, "one") == 0 {
				shape = append(shape, 1)
			}
		}
	}
	return shape
}

// A view shows the same elements in the same order; where there is none, no
// strides would do.
func TestViewKeepsOrderOfElements(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		from := drawGeometry(rt)
		shape := drawShape(rt, numel(from.shape))
		want := places(from)
		strides, ok := viewStrides(nil, from.shape, from.strides, shape)
		if ok {
			require.Equal(rt, want, places(geometry{shape, strides}))
			return
		}
		// The strides, if there were any, could be read off the elements.
		guess := make([]int64, len(shape))
		step := int64(1)
		for d := len(shape) - 1; d >= 0; d-- {
			if shape[d] > 1 {
				guess[d] = want[step]
			}
			step *= shape[d]
		}
		require.NotEqual(rt, want, places(geometry{shape, guess}))
	})
}

// Two elements share a place only if overlaps says that they may.
func TestOverlapIsSeen(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 3).Draw(rt, "dimensions")
		g := geometry{
			rapid.SliceOfN(rapid.Int64Range(2, 4), n, n).Draw(rt, "shape"),
			rapid.SliceOfN(rapid.Int64Range(0, 12), n, n).Draw(rt, "strides"),
		}
		seen, shared := map[int64]bool{}, false
		last := int64(0)
		for _, p := range places(g) {
			shared = shared || seen[p]
			seen[p] = true
			last = max(last, p)
		}
		require.Equal(rt, last+1, g.extent())
		if shared {
			require.True(rt, g.overlaps())
		}
	})
}

// Temporary storage of CUB, as PyTorch 2.11 asked for it on an RTX 5060 Ti.
func TestSortStorage(t *testing.T) {
	board := Board{Capability: 120, SMs: 36, ThreadsPerSM: 1536}
	for _, c := range []struct {
		name string
		sort radixSort
		want int64
	}{
		{"333 indices fit a block", radixSort{n: 333, key: 8, value: 8, bits: 10}, 1},
		{"5000 indices of 12 bits", radixSort{n: 5000, key: 8, value: 8, bits: 12}, 87039},
		{"4096 indices of all bits", radixSort{n: 4096, key: 8, value: 8, bits: 64}, 83455},
		{"8192 indices of all bits", radixSort{n: 8192, key: 8, value: 8, bits: 64}, 150015},
		{"40000 floats", radixSort{n: 40000, key: 4, value: 8, bits: 32}, 496895},
		{"40000 halves", radixSort{n: 40000, key: 2, value: 8, bits: 16}, 412927},
		{"100000 floats", radixSort{n: 100000, key: 4, value: 8, bits: 32}, 1228287},
		{"100000 halves", radixSort{n: 100000, key: 2, value: 8, bits: 16}, 1023231},
		{"40000 pairs by 3 bits", radixSort{n: 40000, key: 8, bits: 3}, 9727},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, board.radixStorage(c.sort)) })
	}
}

// Sorting more never takes less, on any generation, and a sort that is not
// done in one block holds at least what it sorts once more.
func TestSortStorageGrows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		board := Board{Capability: rapid.SampledFrom([]int{75, 80, 86, 90, 100, 120}).Draw(rt, "capability"), SMs: 40, ThreadsPerSM: 1024}
		s := radixSort{
			key:   rapid.SampledFrom([]int64{1, 2, 4, 8}).Draw(rt, "key"),
			value: rapid.SampledFrom([]int64{0, 8}).Draw(rt, "value"),
		}
		s.bits = int(8 * s.key)
		s.n = rapid.Int64Range(1, 1<<22).Draw(rt, "n")
		more := s
		more.n += rapid.Int64Range(0, 1<<22).Draw(rt, "more")
		small, large := board.radixStorage(s), board.radixStorage(more)
		require.LessOrEqual(rt, small, large)
		if small > 1 && s.key > 1 {
			require.Greater(rt, small, s.n*(s.key+s.value))
		}
	})
}
