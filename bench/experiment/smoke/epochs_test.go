package smoke

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/epoch"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/tools/sample"
	"github.com/vprof/vprof/tools/steptest"
)

// epochsOf tests llama-tiny at a batch size over lengths, on a GPU with so much memory.
func epochsOf(t *testing.T, memory int64, batch int) *report.Smoke {
	t.Helper()
	m, err := all.Models().Lookup("llama-tiny")
	require.NoError(t, err)
	gpu, err := device.Lookup("rtx-3060")
	require.NoError(t, err)
	gpu.Memory = memory
	c := m.Default
	c.Batch = batch
	if c, err = m.Complete(c); err != nil {
		require.NoError(t, err)
	}
	l, err := epoch.ParseLengths("uniform:min=8,max=64,samples=64")
	require.NoError(t, err)
	l.Batching = epoch.Padded
	s, err := Run(t.Context(), Test{
		Model: m, Case: c, GPU: gpu, Budget: planner.Budget{Margin: 1},
		Evidence: steptest.Exact(), Lengths: l,
	})
	require.NoError(t, err)
	return s
}

// The other checks use the longest batch there is, and an epoch needs no less than it.
func TestEpochsAreACheck(t *testing.T) {
	s := epochsOf(t, 8<<30, 8)
	require.True(t, s.Safe)
	last := s.Checks[len(s.Checks)-1]
	require.Equal(t, "epoch", last.Name)
	require.True(t, last.Simulated)
	step := byName(s)["training step"]
	require.Equal(t, last.Lengths.Worst.Device.Bytes, step.Device)
	require.GreaterOrEqual(t, last.Device, step.Device)
	require.Greater(t, last.Lengths.Limit, last.Lengths.WorstLength)
}

func TestEpochsThatRunOutOfMemoryAreNotSafe(t *testing.T) {
	sample.Whole(t)
	s := epochsOf(t, 2<<30, 64)
	require.False(t, s.Safe)
	last := s.Checks[len(s.Checks)-1]
	require.Positive(t, last.Lengths.Epochs.OutOfMemory)
	require.False(t, last.Safe || last.Fits)
	require.Nil(t, last.Lengths.MostDevice)
	require.Positive(t, s.LargestBatch)
	require.True(t, epochsOf(t, 2<<30, s.LargestBatch).Safe)
	require.False(t, epochsOf(t, 2<<30, s.LargestBatch+1).Safe)
}

// What is left on a GPU is without what other processes hold.
func TestFreeMemoryIsWithoutOthers(t *testing.T) {
	test := toySmoke(1000, models.Case{Batch: 60})
	test.Others = 500 * steptest.MiB
	s, err := Run(t.Context(), test)
	require.NoError(t, err)
	for _, c := range s.Checks {
		if c.OOM != nil {
			require.Less(t, c.OOM.Free, c.OOM.Requested, c.Name)
			return
		}
	}
	t.Fatal("all of it fits")
}
