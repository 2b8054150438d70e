package trace

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Each layout is kept once: equal ones are the same, others are not, however many there are.
func TestLayoutIsKeptOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var all layouts
		var seen []*layout
		for range rapid.IntRange(1, 400).Draw(rt, "layouts") {
			g := drawGeometry(rt)
			l := all.find(g.shape, g.strides)
			require.Equal(rt, g, l.geometry)
			for _, m := range seen {
				same := slices.Equal(m.shape, g.shape) && slices.Equal(m.strides, g.strides)
				require.Equal(rt, same, m == l)
			}
			seen = append(seen, l)
		}
	})
}

// What a layout knows of itself follows from where its elements are: a dense
// one fills its extent, a row-major one in order.
func TestLayoutKnowsItsPlaces(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := drawGeometry(rt)
		l := newLayout(g.shape, g.strides)
		at := places(g)
		require.EqualValues(rt, len(at), l.numel)
		require.Equal(rt, slices.Max(at)+1, l.extent)
		require.Equal(rt, slices.IsSorted(at) && l.extent == l.numel, l.rowMajor)
		slices.Sort(at)
		require.Equal(rt, int64(len(slices.Compact(at))) == l.numel && l.extent == l.numel, l.dense)
	})
}

// A pointwise function of one tensor is dense and visits memory in its order.
func TestPointwiseResultKeepsTheOrderOfItsArgument(t *testing.T) {
	tape := New(GPU{}, Rules{}, Options{})
	rapid.Check(t, func(rt *rapid.T) {
		g := drawGeometry(rt)
		x := &Tensor{tape: tape, dtype: F32, layout: tape.layout(g.shape, g.strides)}
		y := tape.elementwise(F32, x)
		require.True(rt, y.isDense())
		require.Equal(rt, x.shape, y.shape)
		require.Same(rt, y.layout, tape.elementwise(F16, x, x).layout)
		if x.isDense() && slices.Max(x.shape) > 1 {
			for d, s := range x.shape {
				if s > 1 {
					require.Equal(rt, x.strides[d], y.strides[d])
				}
			}
		}
	})
}

// What a slab hands out is zero, and nobody else's, also what it handed out before and after it was emptied.
func TestSlabHandsOutZeroes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var s slab[int]
		for range 3 {
			out := map[*int]bool{}
			for range rapid.IntRange(0, 500).Draw(rt, "takes") {
				if len(out) > 0 && rapid.IntRange(0, 2).Draw(rt, "give") == 0 {
					for x := range out {
						delete(out, x)
						s.give(x)
						break
					}
					continue
				}
				x := s.take()
				require.Zero(rt, *x)
				require.False(rt, out[x])
				*x, out[x] = 1, true
			}
			s.empty()
		}
	})
}
