package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/internal/sample"
)

// Of the figures that others measured on real GPUs, of loops that are known, at least 90 of 100 lie
// within the interval, which in the median is no wider than a tenth.
func TestFiguresOfRealGPUsLieWithinIntervals(t *testing.T) {
	sample.Whole(t)
	const folder = "../../bench/reference/data/published"
	rows, ok, err := reference.OpenPublished(folder + "/loops.jsonl.gz")
	require.NoError(t, err)
	require.True(t, ok)
	in, widths := 0, []float64{}
	for _, p := range rows {
		if !slices.Contains([]string{"fitcheck", "can-i-finetune-this", "PEFT MetaMathQA"}, p.Group) ||
			p.Kind != "reserved" {
			continue
		}
		e, err := system().planned(t.Context(), p.Command, folder)
		require.NoError(t, err, p.What)
		if e.Reserved.Low-p.Rounding <= p.Bytes && p.Bytes <= e.Reserved.High+p.Rounding {
			in++
		}
		widths = append(widths, float64(e.Reserved.High-e.Reserved.Low)/float64(e.Reserved.Bytes))
	}
	slices.Sort(widths)
	require.Len(t, widths, 82)
	require.GreaterOrEqual(t, in, 74)
	t.Logf("%d of %d within, median width %.4f", in, len(widths), widths[len(widths)/2])
	require.LessOrEqual(t, widths[len(widths)/2], 0.1)
}
