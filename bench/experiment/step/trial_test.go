package step_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/tools/steptest"
	"github.com/vprof/vprof/tools/toy"
)

func TestAKeyIsOfAllThatATrialSays(t *testing.T) {
	trial := steptest.Toy(t, models.Case{}, "").Trial(steptest.Card(600), 8)
	same := steptest.Toy(t, models.Case{}, "").Trial(steptest.Card(600), 8)
	require.Equal(t, trial.Key(), same.Key())
	keys := map[string]bool{trial.Key(): true}
	for i, change := range []func(*step.Trial){
		func(t *step.Trial) { t.Case.AMP = "bf16" },
		func(t *step.Trial) { t.Batch = 9 },
		func(t *step.Trial) { t.GPU.Memory++ },
		func(t *step.Trial) { t.Validation = 1 },
		func(t *step.Trial) { t.Steps = 3 },
		func(t *step.Trial) { t.Timed = []device.GPU{steptest.Card(1)} },
		func(t *step.Trial) { t.Replay.StopAtLimit = true },
		func(t *step.Trial) { t.Replay.OtherProcessBytes = 1 },
		func(t *step.Trial) { t.Replay.TrainingOnly = true },
		func(t *step.Trial) { t.Replay.Expandable = true },
		func(t *step.Trial) { t.Replay.OmitUnperturbedRun = true },
		func(t *step.Trial) { t.Replay.Device = "cuda:0" },
		func(t *step.Trial) { t.Replay.WarmUp = 1 },
		func(t *step.Trial) { t.Replay.Repeat = 1 },
		func(t *step.Trial) { t.Replay.Verify = true },
	} {
		other := trial
		change(&other)
		require.False(t, keys[other.Key()], i)
		keys[other.Key()] = true
	}
}

// The result of a trial, and of another replay, is the same wherever it ran. A rank
// of four has streams, whose schedule is in the load.
func TestATrialSentElsewhereGivesTheSame(t *testing.T) {
	strategy, err := models.ParseStrategy("fsdp2")
	require.NoError(t, err)
	gpu, err := device.Lookup("rtx-3060")
	require.NoError(t, err)
	gpt2, err := all.Models().Lookup("gpt2")
	require.NoError(t, err)
	for _, c := range []struct {
		model models.Model
		c     models.Case
		batch int
	}{
		{toy.Model(), models.Case{AMP: "fp16", Settings: models.Settings{"seq-len": 2}}, 8},
		{gpt2, models.Case{GPUs: 4, Strategy: &strategy}, 2},
	} {
		here, err := step.New(c.model, c.c, steptest.Exact())
		require.NoError(t, err)
		wire := &steptest.Wire{Models: models.NewRegistry([]models.Model{c.model})}
		evidence := steptest.Exact()
		evidence.Trials = wire
		there, err := step.New(c.model, c.c, evidence)
		require.NoError(t, err)
		var results [2]string
		for i, s := range []*step.Setup{here, there} {
			trial := s.Trial(gpu, c.batch)
			trial.Timed = []device.GPU{gpu}
			first, err := s.Try(t.Context(), trial)
			require.NoError(t, err)
			second, err := s.Try(t.Context(),
				first.ReplayTrial(step.ReplayOptions{
					StopAtLimit: true, OtherProcessBytes: gpu.Memory - gpu.Context - 64*steptest.MiB,
					Expandable: true,
				}))
			require.NoError(t, err)
			require.NotNil(t, second.Run.OOM)
			text, err := json.Marshal([]any{first, first.Sample(), first.Report(), second, second.Report()})
			require.NoError(t, err)
			results[i] = string(text)
		}
		require.Equal(t, results[0], results[1])
		require.Equal(t, 2, wire.Trials())
	}
}

func TestATrialWithoutReplayHasWhatTheRecordingTells(t *testing.T) {
	setup := steptest.Toy(t, models.Case{}, "")
	trial := setup.Trial(steptest.Card(600), 8)
	whole, err := setup.Try(t.Context(), trial)
	require.NoError(t, err)
	trial.Replay.OmitUnperturbedRun = true
	r, err := setup.Try(t.Context(), trial)
	require.NoError(t, err)
	require.Nil(t, r.Run)
	require.Equal(t, whole.Counts, r.Counts)
	require.EqualValues(t, 16*steptest.MiB, r.LargestWeight)
}

// Another replay of a discarded recording makes the recording again.
func TestAnotherReplayOfADiscardedRecordingIsTheSame(t *testing.T) {
	setup := steptest.Toy(t, models.Case{}, "")
	first, err := setup.Try(t.Context(), setup.Trial(steptest.Card(600), 8))
	require.NoError(t, err)
	first.Discard()
	again, err := setup.Try(t.Context(), first.ReplayTrial(step.ReplayOptions{}))
	require.NoError(t, err)
	require.Equal(t, first.Run, again.Run)
	require.Equal(t, first.Sample(), again.Sample())
}

func TestATrialOnADeviceNeedsThatDevice(t *testing.T) {
	setup := steptest.Toy(t, models.Case{}, "")
	d := steptest.On(t, steptest.Card(600))
	trial := setup.Trial(d.GPU(), 8)
	trial.Replay.Device = d.Name()
	_, err := setup.Try(t.Context(), trial)
	require.ErrorContains(t, err, "device sim:card is not available in this process")
	r, err := setup.WithDevice(d).Try(t.Context(), trial)
	require.NoError(t, err)
	require.True(t, r.Measured.Run.Simulated)
	require.Equal(t, r.Measured.Run, r.Report())
	require.Equal(t, r.Device, r.Measured.Run.Device)
}

func TestRefusedTellsErrorsOfACase(t *testing.T) {
	setup := steptest.Toy(t, models.Case{}, "")
	_, err := setup.Try(t.Context(), setup.Trial(steptest.Card(600), 1))
	require.True(t, step.IsRefused(err), "batch norm refuses one sample")
	_, err = step.New(toy.Model(), models.Case{Stage: "half"}, steptest.Exact())
	require.True(t, step.IsRefused(err))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = setup.Try(ctx, setup.Trial(steptest.Card(600), 8))
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, step.IsRefused(err))
}

// Where every process loads the model on the host, a machine needs a copy for each.
func TestEachProcessMayLoadTheModel(t *testing.T) {
	gpu, err := device.Lookup("a100-80")
	require.NoError(t, err)
	m, err := all.Models().Lookup("gpt2")
	require.NoError(t, err)
	loading := func(text string) int64 {
		s, err := models.ParseStrategy(text)
		require.NoError(t, err)
		setup, err := step.New(m, models.Case{
			GPUs: 4, Strategy: &s, Settings: models.Settings{"layers": 4, "seq-len": 64},
		}, steptest.Exact())
		require.NoError(t, err)
		d, err := judge.JudgeBatch(t.Context(), setup, gpu, 1)
		require.NoError(t, err)
		for _, p := range step.EstimateOf(d.Loops[0].Estimate).Host.Parts {
			if strings.Contains(p.Name, "load") {
				return p.Bytes
			}
		}
		return 0
	}
	require.Equal(t, 4*loading("fsdp2"), loading("fsdp2:init=host"))
	require.Positive(t, loading("fsdp2"))
	require.Equal(t, loading("fsdp2"), loading("pp"), "all stages are on the machine")
	require.Equal(t, loading("fsdp2"), loading("pp:pp=2"))
	require.Equal(t, loading("fsdp2:init=host"), loading("pp:init=host"))
}

// Where kernels may come in another order, the interval of what was recorded spans what both need.
func TestIntervalsSpanTheOtherOrder(t *testing.T) {
	for _, other := range []int{4, 8, 12} {
		m := toy.Model()
		m.Unrecorded = func(models.Case) string { return "" }
		m.Reordered = func(c models.Case) (models.Trainer, error) {
			c.Batch = other
			return toy.Model().Build(c)
		}
		setup, err := step.New(m, models.Case{MemoryOptions: models.MemoryOptions{Compile: true}}, steptest.Exact())
		require.NoError(t, err)
		d, err := judge.JudgeBatch(t.Context(), setup, steptest.Card(600), 8)
		require.NoError(t, err)
		e, r := d.Loops[0].Estimate, d.Loops[0].Steps
		require.Equal(t, int64(8-other)*15*steptest.MiB, r.Sample().Allocated()-r.Reordered.Allocated)
		require.Equal(t, min(r.Sample().Allocated(), r.Reordered.Allocated), e.Allocated.Low)
		require.Equal(t, max(r.Sample().Allocated(), r.Reordered.Allocated), e.Allocated.High)
		require.LessOrEqual(t, e.Reserved.Low, r.Reordered.Reserved)
		require.GreaterOrEqual(t, e.Reserved.High, r.Reordered.Reserved)
	}
}
