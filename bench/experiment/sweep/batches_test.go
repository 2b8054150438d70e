package sweep

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestBatchListHoldsSizesAndRanges(t *testing.T) {
	for list, want := range map[string][]int{
		"8":                   {8},
		"8,16,32":             {8, 16, 32},
		"32, 8 ,16,8":         {8, 16, 32},
		"8..128x2":            {8, 16, 32, 64, 128},
		"8..100x2":            {8, 16, 32, 64},
		"8..64+8":             {8, 16, 24, 32, 40, 48, 56, 64},
		"1,8..9+1,512..512x2": {1, 8, 9, 512},
		"1..5":                {1, 2, 3, 4, 5},
		"8..8,3..4":           {3, 4, 8},
	} {
		got, err := ParseBatches(list)
		require.NoError(t, err, list)
		require.Equal(t, want, got, list)
	}
}

func TestBadBatchListSaysWhy(t *testing.T) {
	for list, want := range map[string]string{
		"":                     "a size between commas is missing",
		"8,":                   "a size between commas is missing",
		"0":                    "0 is not a batch size; need 1 or more",
		"-4":                   "-4 is not a batch size",
		"NaN":                  `"NaN" is not a whole number`,
		"8.5":                  `"8.5" is not a whole number`,
		"1e3":                  `"1e3" is not a whole number`,
		"8-128":                `"8-128" is not a whole number; ranges are 8..128x2 or 8..128+8`,
		"1..65":                "the range 1..65 has 65 batch sizes; write a step, like 1..65x2 (doubles) or 1..65+8 (adds 8)",
		"64..8":                "ends below its start",
		"1..40..2":             `"40..2" is not a whole number`,
		"8..x2":                "a size between commas is missing",
		"..8x2":                "a size between commas is missing",
		"64..8x2":              "ends below its start",
		"8..64x1":              "the smallest factor is 2",
		"8..64x-2":             "the smallest factor is 2",
		"8..64+0":              "the smallest step is 1",
		"8..64x":               `invalid step "x"`,
		"8..64x2.5":            `invalid step "x2.5"`,
		"1048577":              "1048577 is above the largest batch size",
		"1..1048576+1":         "has more than 4096 batch sizes",
		"1..4096+1,1..4096+1":  "more than 4096 sizes",
		"99999999999999999999": "is above the largest batch size",
	} {
		_, err := ParseBatches(list)
		require.ErrorContains(t, err, want, list)
		require.ErrorContains(t, err, strconv.Quote(list))
	}
}

// Written sizes come back ascending and once each, whatever the order.
func TestWrittenBatchesReadBackSorted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, maxBatch), 1, 20).Draw(t, "sizes")
		words := make([]string, len(sizes))
		for i, b := range sizes {
			words[i] = strconv.Itoa(b)
		}
		got, err := ParseBatches(strings.Join(words, ","))
		require.NoError(t, err)
		slices.Sort(sizes)
		require.Equal(t, slices.Compact(sizes), got)
	})
}

// from, from*k, from*k*k, ... up to at most to.
func TestFactorRangeIsGeometric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.IntRange(1, 1000).Draw(t, "from")
		to := rapid.IntRange(from, maxBatch).Draw(t, "to")
		k := rapid.IntRange(2, 10).Draw(t, "factor")
		got, err := ParseBatches(fmt.Sprintf("%d..%dx%d", from, to, k))
		require.NoError(t, err)
		require.Equal(t, from, got[0])
		last := got[len(got)-1]
		require.LessOrEqual(t, last, to)
		require.Greater(t, last*k, to)
		for i := 1; i < len(got); i++ {
			require.Equal(t, got[i-1]*k, got[i])
		}
	})
}

func FuzzParseBatches(f *testing.F) {
	for _, s := range []string{
		"8,16,32", "8..128x2", "8..64+8", "1..9999999x2", "0..5+1", "..", "x",
		"1..2x99999999999",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		sizes, err := ParseBatches(list)
		if err != nil {
			return
		}
		require.NotEmpty(t, sizes)
		require.LessOrEqual(t, len(sizes), maxBatches)
		require.True(t, slices.IsSorted(sizes))
		require.GreaterOrEqual(t, sizes[0], 1)
		require.LessOrEqual(t, sizes[len(sizes)-1], maxBatch)
	})
}
