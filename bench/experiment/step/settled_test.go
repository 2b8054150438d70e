package step_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
)

// A third step is recorded where the cache grew in the second, and of static graphs whoever asks.
func TestStepsAreRecordedUntilTheCacheIsSettled(t *testing.T) {
	gpu, err := device.Lookup("a100-80")
	require.NoError(t, err)
	gpt2, err := all.Models().Lookup("gpt2")
	require.NoError(t, err)
	for text, want := range map[string][2]int{"": {2, 3}, "fsdp2": {2, 3}, "ddp:static_graph=true": {3, 3}} {
		c := models.Case{Settings: models.Settings{"layers": 2, "seq-len": 64}}
		if text != "" {
			s, err := models.ParseStrategy(text)
			require.NoError(t, err)
			c.GPUs, c.Strategy = 4, &s
		}
		setup, err := step.New(gpt2, c, step.Evidence{})
		require.NoError(t, err)
		plain, err := setup.Try(t.Context(), setup.Trial(gpu, 2))
		require.NoError(t, err)
		steps := func(r *step.Result) int { return r.Run.Phases[len(r.Run.Phases)-1].Step + 1 }
		require.Equal(t, want[0], steps(plain), text)
		settled, err := setup.TryUntilSteady(t.Context(), setup.Trial(gpu, 2))
		require.NoError(t, err)
		require.Equal(t, want[1], steps(settled), text)
		require.GreaterOrEqual(t, settled.Run.Max.Reserved, plain.Run.Max.Reserved, text)
	}
}

// What a size comes to does not hang on the sizes that were tried before it.
func TestSizesSettleAsIfTheyWereAlone(t *testing.T) {
	gpu, err := device.Lookup("a100-80")
	require.NoError(t, err)
	m, err := all.Models().Lookup("redimnet-b0")
	require.NoError(t, err)
	c := m.Default
	fresh := func() *step.Setup {
		s, err := step.New(m, c, step.Evidence{})
		require.NoError(t, err)
		return s
	}
	setup, lengths := fresh(), map[int]bool{}
	for batch := 2; batch <= 20; batch++ {
		after, err := setup.TryUntilSteady(t.Context(), setup.Trial(gpu, batch))
		require.NoError(t, err)
		alone := fresh()
		first, err := alone.TryUntilSteady(t.Context(), alone.Trial(gpu, batch))
		require.NoError(t, err)
		require.Equal(t, first.Run, after.Run, batch)
		lengths[first.Run.Phases[len(first.Run.Phases)-1].Step] = true
		first.Discard()
		again, err := alone.Try(t.Context(),
			first.ReplayTrial(step.ReplayOptions{Expandable: true, NominalMemory: true}))
		require.NoError(t, err)
		require.Equal(t, first.Steps, again.Steps, "what is recorded does not hang on how it is replayed: %d", batch)
	}
	require.Greater(t, len(lengths), 1, "some settle sooner than others")
}

// What a loop comes to does not hang on the loops that were tried before it.
func TestLoopsSettleAsIfTheyWereAlone(t *testing.T) {
	gpu, err := device.Lookup("a100-80")
	require.NoError(t, err)
	m, err := all.Models().Lookup("gpt2")
	require.NoError(t, err)
	fresh := func() *step.Setup {
		s, err := step.New(m, models.Case{Settings: models.Settings{"layers": 2, "seq-len": 64}}, step.Evidence{})
		require.NoError(t, err)
		return s
	}
	loops := fresh().LoopSetups()
	require.Len(t, loops, 2)
	for i, loop := range loops {
		after, err := loop.TryUntilSteady(t.Context(), loop.Trial(gpu, 2))
		require.NoError(t, err)
		alone := fresh().LoopSetups()[i]
		first, err := alone.TryUntilSteady(t.Context(), alone.Trial(gpu, 2))
		require.NoError(t, err)
		require.Equal(t, first.Run, after.Run, loop.Loop())
	}
}

// More micro-batches than that do not change memory. A step's time counts all of them.
func TestStepsOfManyMicroBatchesAreRecordedInPart(t *testing.T) {
	gpu, err := device.Lookup("a100-80")
	require.NoError(t, err)
	gpt2, err := all.Models().Lookup("gpt2")
	require.NoError(t, err)
	of := func(micro int, timed ...device.GPU) *step.Result {
		setup, err := step.New(gpt2, models.Case{
			Accumulate: micro, Settings: models.Settings{"layers": 2, "seq-len": 64},
		}, step.Evidence{})
		require.NoError(t, err)
		trial := setup.Trial(gpu, 2)
		trial.Timed = timed
		r, err := setup.Try(t.Context(), trial)
		require.NoError(t, err)
		return r
	}
	many := of(40)
	require.Equal(t, of(step.MaxMicroBatches).Run, many.Run)
	require.Greater(t, len(many.Run.Phases), len(of(8).Run.Phases))
	launches := func(micro int) int { return of(micro, gpu).Loads[0].Launches }
	require.Equal(t, launches(40)-launches(39), launches(16)-launches(15))
}
