package fit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/tools/sample"
	"github.com/vprof/vprof/tools/steptest"
)

func nothingFixed(string) bool { return false }

func TestLeversAreTurnedInEveryCombinationThatMakesSense(t *testing.T) {
	m, err := all.Models().Lookup("llama-tiny")
	require.NoError(t, err)
	full := SavingCases(m, m.Default, nothingFixed)
	seen := map[models.CaseKey]bool{}
	for _, c := range full {
		require.False(t, seen[c.Key()], c.String())
		seen[c.Key()] = true
		require.False(t, c.Offload && !c.Checkpointing, c.String())
		require.Empty(t, c.Quantize, "full weights are trained")
		_, err := m.Complete(c)
		require.NoError(t, err)
	}
	require.Len(t, full, 2*2*3*3) // liger, in backward, optimizers, and nothing, checkpointing or offload
	require.Equal(t, m.Default.Key(), full[0].Key())
	adapted := m.Default
	adapted.LoRA = &models.LoRA{Rank: 8}
	require.Len(t, SavingCases(m, adapted, nothingFixed), 2*3*3) // liger, quantizations, and the same three
	require.Len(t, SavingCases(m, adapted, func(flag string) bool { return flag == "quantize" || flag == "liger" }), 3)
}

// A waterfall begins with the case without levers and ends with what is recommended, and its parts add up.
func TestWaterfallsAddUp(t *testing.T) {
	sample.Whole(t)
	m, err := all.Models().Lookup("llama-tiny")
	require.NoError(t, err)
	gpu, err := device.Lookup("rtx-3060")
	require.NoError(t, err)
	gpu.Memory = 2 << 30
	f, err := Run(t.Context(), Search{
		Model: m, Cases: SavingCases(m, m.Default, nothingFixed), GPUs: []device.GPU{gpu},
		Budget:    planner.Budget{Margin: 0.85},
		Effective: 16, MaxBatch: 16, Evidence: steptest.Exact(), TrySavings: true,
	})
	require.NoError(t, err)
	best := f.Choices[0]
	require.True(t, best.Recommended)
	require.Greater(t, len(best.Waterfall), 1, "llama-tiny at batch 16 needs levers on 2 GiB")
	need := best.Waterfall[0].Device
	for _, l := range best.Waterfall[1:] {
		require.NotEmpty(t, l.Name)
		need -= l.Saves
		require.Equal(t, need, l.Device)
		require.Positive(t, l.SamplesPerSecond)
	}
	require.Equal(t, best.Estimate.Device.Bytes, need)
	for _, c := range f.Choices[1:] {
		require.Nil(t, c.Waterfall)
	}
}

// Gradients that are used in backward are not added up, so that no micro-batches stand in
// for a batch that does not fit.
func TestOptimizersInBackwardDoNotAccumulate(t *testing.T) {
	m, err := all.Models().Lookup("llama-tiny")
	require.NoError(t, err)
	gpu, err := device.Lookup("rtx-3060")
	require.NoError(t, err)
	gpu.Memory = 2 << 30
	c := m.Default
	c.InBackward = true
	f, err := Run(t.Context(), Search{
		Model: m, Cases: []models.Case{c}, GPUs: []device.GPU{gpu}, Budget: planner.Budget{Margin: 0.85},
		Effective: 64, MaxBatch: 64, Evidence: steptest.Exact(),
	})
	require.NoError(t, err)
	best := f.Choices[0]
	require.True(t, best.Fits())
	require.Less(t, best.Batch, 64)
	require.Equal(t, 1, max(1, best.Case.Accumulate))
	require.Equal(t, best.Batch, best.EffectiveBatch)
}

// A lever that gains less than a hundredth is not recommended before the case as its authors train it,
// and what is recommended comes first.
func TestLeversThatGainNothingAreNotRecommended(t *testing.T) {
	choice := func(speed float64, own bool, optimizer string, checkpointing bool) report.Choice {
		c := report.Choice{Device: "sim:card", IsAuthorsOwn: own, Batch: 8, SamplesPerSecond: speed}
		c.Case.Stage, c.Case.Optimizer, c.Case.Checkpointing = "full", optimizer, checkpointing
		return c
	}
	first := func(choices ...report.Choice) report.Choice {
		f := &report.Fit{Devices: []report.Device{{Name: "sim:card"}}, Choices: choices}
		rankChoices(f, []string{"full"})
		require.True(t, f.Choices[0].Recommended)
		return f.Choices[0]
	}
	paged, plain := choice(100, false, "paged-adamw8bit", false), choice(99.5, true, "", false)
	require.Equal(t, plain.SamplesPerSecond, first(paged, plain).SamplesPerSecond)
	recomputed := choice(100.2, false, "paged-adamw8bit", true)
	require.Equal(t, "paged-adamw8bit", first(recomputed, paged).Case.Optimizer)
	require.False(t, first(recomputed, paged).Case.Checkpointing)
	slower := choice(98, true, "", false)
	require.Equal(t, "paged-adamw8bit", first(paged, slower).Case.Optimizer, "two hundredths are a gain")
}

// Where pages gain nothing, the same optimizer without them is recommended, though an estimate has it a little slower.
func TestPagesAreNotRecommendedForNothing(t *testing.T) {
	choice := func(optimizer string, speed float64) report.Choice {
		c := report.Choice{Device: "sim:card", Batch: 5, Largest: 5, SamplesPerSecond: speed}
		c.Case.Stage, c.Case.Optimizer = "full", optimizer
		return c
	}
	for slower, want := range map[float64]string{8.63: "adamw8bit", 8.5: "paged-adamw8bit"} {
		f := &report.Fit{
			Devices: []report.Device{{Name: "sim:card"}},
			Choices: []report.Choice{choice("paged-adamw8bit", 8.66), choice("adamw8bit", slower)},
		}
		rankChoices(f, []string{"full"})
		require.Equal(t, want, f.Choices[0].Case.Optimizer)
		require.True(t, f.Choices[0].Recommended)
	}
}
