package trace

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/internal/lists"
)

// places returns the positions in the storage of the elements of a tensor, in row-major order.
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

// drawGeometry returns a small tensor, possibly permuted, sliced or expanded.
func drawGeometry(rt *rapid.T) geometry {
	shape := rapid.SliceOfN(rapid.Int64Range(1, 4), 1, 4).Draw(rt, "shape")
	g := geometry{shape, contiguousStrides(nil, shape)}
	order := rapid.Permutation(lists.Ascending(len(shape))).Draw(rt, "order")
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

// A view shows the same elements in the same order; where there is none, no strides would do.
func TestViewKeepsOrderOfElements(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		from := drawGeometry(rt)
		shape := drawShape(rt, Numel(from.shape))
		want := places(from)
		strides, ok := ViewStrides(nil, from.shape, from.strides, shape)
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

// A tensor without elements has a view in any shape without elements, with the strides of a contiguous one.
func TestViewOfNothing(t *testing.T) {
	strides, ok := ViewStrides(nil, []int64{2, 0, 3}, []int64{30, 3, 1}, []int64{0, 3})
	require.True(t, ok)
	require.Equal(t, []int64{3, 1}, strides)
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
