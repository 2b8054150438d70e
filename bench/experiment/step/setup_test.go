package step_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/tools/steptest"
	"github.com/vprof/vprof/tools/toy"
)

func TestImpossibleCaseMakesNoLab(t *testing.T) {
	_, err := step.New(toy.Model(), models.Case{Stage: "half"}, steptest.Exact())
	var wrong *models.CaseError
	require.ErrorAs(t, err, &wrong)
}

func TestEventsAreOfTheStepsAskedFor(t *testing.T) {
	p, err := steptest.Toy(t, models.Case{}, "").Events(t.Context(), steptest.Card(600), 8, 3)
	require.NoError(t, err)
	require.Equal(t, 2, p.Phases[len(p.Phases)-1].Step)
	_, err = steptest.Toy(t, models.Case{}, "").Events(t.Context(), steptest.Card(600), 1, 3)
	require.Error(t, err)
}

// A recording looks at its context as it goes.
func TestRecordingStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m, err := all.Models().Lookup("redimnet-b2")
	require.NoError(t, err)
	m.Default.Accumulate = 1024
	setup, err := step.New(m, m.Default, steptest.Exact())
	require.NoError(t, err)
	start := time.Now()
	_, err = setup.Events(ctx, steptest.Card(600), 8, 3)
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(start), time.Minute)
}

// A step spills at least the bytes for which the GPU has no room. It spills on no GPU without display outputs, since
// these do not run on Windows or WSL2.
func TestAFullGPUSpillsWhereItDrivesDisplays(t *testing.T) {
	m, err := all.Models().Lookup("redimnet-b0")
	require.NoError(t, err)
	setup, err := step.New(m, m.Default, steptest.Exact())
	require.NoError(t, err)
	for _, trials := range []step.Executor{nil, &step.CachedExecutor{}} {
		s, err := step.New(m, m.Default, step.Evidence{Calibrated: setup.Evidence().Calibrated, Trials: trials})
		require.NoError(t, err)
		gpu := steptest.GPUs(t, "rtx-4060")[0]
		gpu.HostMemory = 32 << 30
		r, err := s.Try(t.Context(), s.Trial(gpu, 8))
		require.NoError(t, err)
		spill := func(short int64) *report.Spill {
			gpu.Memory = gpu.Context + r.Run.Max.Reserved - short
			out, err := s.Spill(t.Context(), gpu, r)
			require.NoError(t, err)
			return out
		}
		require.Nil(t, spill(0))
		little, much := spill(1), spill(r.Run.Max.Reserved/2)
		require.Positive(t, little.Bytes)
		require.GreaterOrEqual(t, much.Bytes, r.Run.Max.Reserved/2)
		require.Greater(t, much.Moved, little.Moved)
		require.Greater(t, much.Slowdown, max(1, little.Slowdown))
		require.Equal(t, int64(16<<30), much.Shared)
		gpu = steptest.GPUs(t, "t4")[0]
		require.Nil(t, spill(r.Run.Max.Reserved/2))
	}
}

// All sizes below the edge of a search are judged where the allocator's settings make needs jump between batches.
func TestSettingsThatMakeNeedsJump(t *testing.T) {
	for conf, jagged := range map[string]bool{
		"": false, "max_split_size_mb:128": true, "roundup_power2_divisions:1": false,
		"roundup_power2_divisions:4": true, "roundup_power2_divisions:[256:1,512:8,>:2]": true,
	} {
		setup, err := step.New(toy.Model(), models.Case{Stage: "full", Accumulate: 1, AllocConf: conf},
			steptest.Exact())
		require.NoError(t, err, conf)
		require.Equal(t, jagged, setup.HasReservedJumps(), conf)
	}
}
