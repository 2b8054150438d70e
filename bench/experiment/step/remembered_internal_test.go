package step

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
)

// One recording serves the memory of a step and its time, but for steps whose micro-batches are recorded in part.
func TestAStepIsRecordedOnceForMemoryAndTime(t *testing.T) {
	gpu, err := device.Lookup("rtx-3060")
	require.NoError(t, err)
	m, err := all.Models().Lookup("resnet18")
	require.NoError(t, err)
	for micro, want := range map[int]int{1: 1, MaxMicroBatches: 1, MaxMicroBatches + 1: 2} {
		c, x := m.Default, &CachedExecutor{}
		c.Accumulate = micro
		s, err := New(m, c, Evidence{Trials: x})
		require.NoError(t, err)
		trial := s.Trial(gpu, 2)
		trial.Replay = ReplayOptions{NominalMemory: true}
		_, err = s.Try(t.Context(), trial)
		require.NoError(t, err)
		trial.Timed = []device.GPU{gpu}
		timed, err := s.Try(t.Context(), trial)
		require.NoError(t, err)
		require.Len(t, timed.Loads, 1)
		require.Len(t, x.cached, want, "%d micro-batches", micro)
	}
}
