package pt2

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestReshapedPartsHaveTheirElements: a part of a tensor has as many elements in the new
// shape as in the old one, wherever its dimension lies.
func TestReshapedPartsHaveTheirElements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.SampledFrom([]int64{2, 4}).Draw(t, "ranks")
		sizes := rapid.SliceOfN(rapid.Int64Range(1, 5), 1, 5).Draw(t, "sizes")
		for i := range sizes {
			sizes[i] *= ranks
		}
		at := rapid.IntRange(0, len(sizes)-1).Draw(t, "at")
		has := slices.Clone(sizes)
		has[at] /= ranks
		p, split := newShardedDim(has, sizes)
		require.True(t, split)

		// Neighbors become one dimension, or the dimension two.
		to := slices.Clone(sizes)
		if i := rapid.IntRange(0, len(sizes)-1).Draw(t, "where"); i+1 < len(to) && rapid.Bool().Draw(t, "joined") {
			to = slices.Replace(to, i, i+2, to[i]*to[i+1])
		} else {
			to = slices.Replace(to, i, i+1, ranks, to[i]/ranks)
		}
		require.Equal(t, product(has), product(p.shardShape(to)), "%v to %v", sizes, to)
	})
}

func product(sizes []int64) int64 {
	n := int64(1)
	for _, s := range sizes {
		n *= s
	}
	return n
}

func TestWhatIsNotSharedHasNoPart(t *testing.T) {
	for _, shapes := range [][2][]int64{{{2, 3}, {2, 3}}, {{2, 3}, {4, 6}}, {{2}, {2, 1}}, {{2}, nil}} {
		_, split := newShardedDim(shapes[0], shapes[1])
		require.False(t, split, shapes)
	}
}
