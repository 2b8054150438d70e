package fit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/epoch"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/tools/sample"
	"github.com/vprof/vprof/tools/steptest"
)

// overLengths searches llama-tiny on a small GPU, with samples of a law.
func overLengths(t *testing.T, law string, change func(*Search)) Search {
	t.Helper()
	m, err := all.Models().Lookup("llama-tiny")
	require.NoError(t, err)
	gpu, err := device.Lookup("rtx-3060")
	require.NoError(t, err)
	gpu.Memory = 1 << 30
	c, err := m.Complete(m.Default)
	require.NoError(t, err)
	s := Search{
		Model: m, Cases: []models.Case{c}, GPUs: []device.GPU{gpu}, Budget: planner.Budget{Margin: 1},
		MaxBatch: 512, Evidence: steptest.Exact(),
	}
	if law != "" {
		s.Lengths, err = epoch.ParseLengths(law)
		require.NoError(t, err)
		s.Lengths.Batching = epoch.Padded
	}
	if change != nil {
		change(&s)
	}
	return s
}

// The longest samples of the data set make the batch larger, and epochs over them make it no larger than gets through.
func TestRecommendedBatchesGetThroughEpochs(t *testing.T) {
	sample.Whole(t)
	const law = "uniform:min=8,max=64,samples=32"
	whole, err := Run(t.Context(), overLengths(t, "", nil))
	require.NoError(t, err)
	f, err := Run(t.Context(), overLengths(t, law, nil))
	require.NoError(t, err)
	best := f.Choices[0]
	require.True(t, best.Recommended)
	require.Greater(t, best.Batch, whole.Choices[0].Batch)
	require.NotNil(t, best.Lengths)
	require.False(t, best.Lengths.Epochs.RanShortOfMemory())
	require.LessOrEqual(t, best.Lengths.MostDevice.Bytes, int64(1<<30))
	require.Equal(t, whole.Choices[0].Case.Settings, best.Case.Settings,
		"the case keeps the length at which samples are cut off")

	// One larger is over the budget, or does not get through.
	f, err = Run(t.Context(), overLengths(t, law, func(s *Search) { s.Batch = best.Batch + 1 }))
	require.NoError(t, err)
	require.False(t, f.Choices[0].Fits())
}

// The samples of a step stay where the batch comes down.
func TestEpochsKeepTheSamplesOfAStep(t *testing.T) {
	sample.Whole(t)
	f, err := Run(t.Context(), overLengths(t, "uniform:min=8,max=64,samples=32", func(s *Search) { s.Effective = 64 }))
	require.NoError(t, err)
	best := f.Choices[0]
	require.True(t, best.Recommended)
	require.InDelta(t, 64, best.EffectiveBatch, 0.02*64)
	require.Equal(t, best.EffectiveBatch, best.Batch*best.Case.Accumulate)
}
