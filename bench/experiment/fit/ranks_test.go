package fit

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/tools/sample"
	"github.com/vprof/vprof/tools/steptest"
)

func TestASearchOfStrategiesTriesWhatPyTorchTakes(t *testing.T) {
	exported := models.Model{SupportsPatterns: true, SupportsRanks: true}
	own := models.Model{SupportsRanks: true}
	fp32 := models.Case{Accumulate: 1, AMP: models.NoAutocast, Weights: models.FP32}
	require.Subset(t, StrategiesFor(exported, fp32, 8),
		[]string{"fsdp2", "fsdp2:wrap=none", "fsdp2:mp=bf16,wrap=none", "tp:tp=2,mp=bf16", "tp:tp=4", "pp:micro=8"})
	require.NotContains(t, StrategiesFor(exported, fp32, 8), "tp:tp=8", "nothing would be left for fully_shard")
	require.NotContains(t, StrategiesFor(exported, fp32, 6), "tp:tp=4", "four do not divide six")
	for _, s := range StrategiesFor(own, fp32, 8) {
		require.NotRegexp(t, "^tp", s, "the loop clips gradients")
	}
	require.Contains(t, StrategiesFor(own, fp32, 8), "pp:micro=8")
	require.Subset(t, StrategiesFor(own, fp32, 32), []string{"pp:micro=32", "pp:pp=4", "pp:pp=4,mp=bf16"})
	for _, s := range slices.Concat(StrategiesFor(own, fp32, 8), StrategiesFor(own, fp32, 20)) {
		require.NotContains(t, s, "pp:pp=", "one machine, or a part of one")
	}
	titan := own
	titan.Supports.Context = true
	adapted := fp32
	adapted.LoRA = &models.LoRA{Rank: 8}
	for _, s := range slices.Concat(StrategiesFor(titan, adapted, 2), StrategiesFor(titan, adapted, 32)) {
		require.NotRegexp(t, "^pp", s, "no trainer of peft has pipelines")
	}
	unclipped := fp32
	unclipped.Clip = models.ClipNone
	require.Contains(t, StrategiesFor(own, unclipped, 8), "tp:tp=2")
	require.Subset(t, StrategiesFor(titan, fp32, 8),
		[]string{
			"tp:tp=2,sequence=true,loss=true,mp=bf16",
			"tp:tp=8,sequence=true,loss=true",
		}, "all parameters are shared")
	require.Contains(t, StrategiesFor(titan, fp32, 16), "pp:pp=2,tp=8,sequence=true,loss=true")
	mixture := own
	mixture.Supports.Experts = 12
	require.Subset(t, StrategiesFor(mixture, fp32, 4), []string{"ddp:ep=4", "fsdp2:ep=2"})
	require.Contains(t, StrategiesFor(mixture, fp32, 16), "fsdp2:ep=4", "eight do not divide twelve")
	long := fp32
	long.Weights, long.Settings = "bf16", models.Settings{"seq-len": 65536}
	require.Subset(t, StrategiesFor(titan, long, 4), []string{"fsdp2:cp=2,cp_by=torch", "fsdp2:cp=4,cp_by=torch"})
	long.Settings = models.Settings{"seq-len": 4096}
	require.NotContains(t, StrategiesFor(titan, long, 4), "fsdp2:cp=2,cp_by=torch", "such rows fit")
	scaled := fp32
	scaled.AMP = "fp16"
	for _, s := range StrategiesFor(exported, scaled, 8) {
		require.NotRegexp(t, "^pp|mp=", s)
		_, err := models.ParseStrategy(s)
		require.NoError(t, err)
	}
}

// A search looks around what came out best, and says so. Nothing is looked at twice.
func TestASearchLooksAroundTheBest(t *testing.T) {
	sample.Alone(t)
	m, err := all.Models().Lookup("llama-tiny")
	require.NoError(t, err)
	c := m.Default
	c.Clip, c.Accumulate, c.Settings = models.ClipNone, 1, models.Settings{"vocab": 3000}
	s := Search{Model: m, GPUs: []device.GPU{steptest.Card(80 << 10)}, Ranks: report.Parallel{
		GPUs:     4,
		Strategy: AutoStrategy,
	}, MaxBatch: 64, Budget: planner.Budget{Margin: 0.85}, Evidence: steptest.Exact()}
	for _, text := range StrategiesFor(m, c, 4) {
		strategy, err := models.ParseStrategy(text)
		require.NoError(t, err)
		k := c
		k.GPUs, k.Strategy = 4, &strategy
		s.Cases = append(s.Cases, k)
	}
	f, err := Run(t.Context(), s)
	require.NoError(t, err)
	strategies := func(f *report.Fit) []string {
		return lists.Map(f.Choices, func(c report.Choice) string { return c.Case.Strategy.String() })
	}
	require.Subset(t, strategies(f), []string{"fsdp2", "pp:micro=4", "tp:tp=2", "ddp:bucket_view=true"})
	require.Greater(t, len(f.Choices), len(s.Cases), "variants of the best")
	seen := map[models.CaseKey]bool{}
	for _, choice := range f.Choices {
		require.False(t, seen[keyOf(choice.Case.Case)], choice.Case.Strategy.String())
		seen[keyOf(choice.Case.Case)] = true
	}
	require.Equal(t, 1, f.Parallel.MinGPUs)
	wraps := s.wrapVariants(c)
	require.Contains(t, wraps, []string{"model.layers.*", "model.embed_tokens", "lm_head"})
	require.Contains(t, wraps, []string{"model.layers.*", "model.layers.*.self_attn", "model.layers.*.mlp"})

	s.GPUs = []device.GPU{steptest.Card(110)}
	f, err = Run(t.Context(), s)
	require.NoError(t, err)
	require.Contains(t, strategies(f), "fsdp2:mp=bf16,offload=all", "nothing else fits")

	two, err := all.Models().Lookup("../../../models/pt2/testdata/hf-t5-small.pt2")
	require.NoError(t, err)
	d := two.Default
	d.Batch = 1
	both := Search{Model: two}
	require.Contains(t, both.wrapVariants(d), []string{"encoder.block.*", "decoder.block.*"})
}

// On one GPU a search of several strategies says of what fits nowhere, and of what fits with
// one sample alone, what a search of that strategy says.
func TestASearchOfStrategiesIsExactAtTheSmallestBatch(t *testing.T) {
	sample.Alone(t)
	m, err := all.Models().Lookup("llama-tiny")
	require.NoError(t, err)
	of := func(ranks report.Parallel, strategies ...string) []report.Choice {
		s := Search{
			Model: m, GPUs: []device.GPU{steptest.Card(900)}, Ranks: ranks, MaxBatch: 64,
			Budget: planner.Budget{Margin: 0.85}, Evidence: steptest.Exact(),
		}
		for _, text := range strategies {
			strategy, err := models.ParseStrategy(text)
			require.NoError(t, err)
			c := m.Default
			c.Accumulate, c.GPUs, c.Strategy = 1, 4, &strategy
			s.Cases = append(s.Cases, c)
		}
		f, err := Run(t.Context(), s)
		require.NoError(t, err)
		return f.Choices
	}
	compared := 0
	for _, c := range of(report.Parallel{GPUs: 4, Strategy: AutoStrategy}, "ddp", "fsdp2", "pp:micro=4") {
		alone := of(report.Parallel{GPUs: 4}, c.Case.Strategy.String())[0]
		if alone.Largest > 1 {
			continue
		}
		compared++
		require.Equal(t, alone.Largest, c.Largest, c.Case)
		require.Equal(t, alone.Estimate.Device.Bytes, c.Estimate.Device.Bytes, c.Case)
	}
	require.NotZero(t, compared)
}

// What the model cannot do is left out and said once, as long as nobody asked for it.
func TestRefusedStrategiesOfASearchAreLeftOut(t *testing.T) {
	choice := func(strategy, refused string) report.Choice {
		s, err := models.ParseStrategy(strategy)
		require.NoError(t, err)
		c := report.Choice{Refused: refused}
		c.Case.Strategy = &s
		return c
	}
	f := &report.Fit{Parallel: &report.Parallel{Strategy: AutoStrategy}, Choices: []report.Choice{
		choice("fsdp2", ""), choice("tp:tp=2", "no such layer"), choice("tp:tp=4", "no such layer"),
		choice("pp", "fp16"), choice("pp", ""), choice("ddp", "no"),
	}}
	dropRefused(f)
	require.Len(t, f.Choices, 3)
	require.Len(t, f.Warnings, 1)
	require.Equal(t, "tp is left out of the search: no such layer", f.Warnings[0].What)
	told := &report.Fit{
		Parallel: &report.Parallel{Strategy: "tp:tp=2"},
		Choices:  []report.Choice{choice("tp:tp=2", "no such layer")},
	}
	dropRefused(told)
	require.Len(t, told.Choices, 1)
}

// A step of a pipeline takes as long as its busiest stage, and the way through the others.
func TestAPipelineWaitsForItsStages(t *testing.T) {
	m, err := all.Models().Lookup("../../../models/pt2/testdata/own-gpt-8x768.pt2")
	require.NoError(t, err)
	gpu := steptest.Card(80 << 10)
	c := m.Default
	c.Batch, c.GPUs, c.Loss = 1, 4, "token-cross-entropy"
	stretch := func(strategy string) float64 {
		s, err := models.ParseStrategy(strategy)
		require.NoError(t, err)
		k := c
		k.Strategy = &s
		setup, err := step.New(m, k, step.Evidence{})
		require.NoError(t, err)
		of := setup.Trial(gpu, 1)
		of.Timed = []device.GPU{gpu}
		r, err := setup.Try(t.Context(), of)
		require.NoError(t, err)
		return r.Loads[0].Stretch
	}
	require.InDelta(t, 1.75, stretch("pp:micro=4,rank=3"), 1e-9)
	require.InDelta(t, 1.25, stretch("pp:micro=12,rank=3"), 1e-9)
	require.GreaterOrEqual(t, stretch("pp:micro=12"), 1.25)
	require.Zero(t, stretch("fsdp2"))
}

// Cases that differ by autocast share recordings where it changes nothing. Each row equals the row of its case alone.
func TestCasesThatAutocastLeavesAloneHaveTheRowsOfEachAlone(t *testing.T) {
	m, err := all.Models().Lookup("llama-tiny")
	require.NoError(t, err)
	executor := &steptest.Wire{Models: models.NewRegistry([]models.Model{m})}
	rows := func(weights models.WeightType, amps ...models.Autocast) (rows []report.Choice, trials int) {
		s := Search{
			Model: m, GPUs: steptest.GPUs(t, "t4"), Ranks: report.Parallel{GPUs: 2, Strategy: AutoStrategy},
			MaxBatch: 64, Budget: planner.Budget{Margin: 0.85}, Evidence: steptest.Exact(),
		}
		s.Trials = executor
		for _, amp := range amps {
			c := m.Default
			c.AMP, c.Weights, c.Accumulate, c.GPUs = amp, weights, 1, 2
			c.Strategy = &models.Strategy{Name: models.FSDP2}
			s.Cases = append(s.Cases, c)
		}
		before := executor.Trials()
		v, err := s.surveyCases(t.Context(), s.Cases)
		require.NoError(t, err)
		return v.choices, executor.Trials() - before
	}
	for _, weights := range []models.WeightType{"bf16", models.FP32} {
		both, trials := rows(weights, models.NoAutocast, "bf16")
		plain, alone := rows(weights, models.NoAutocast)
		cast, other := rows(weights, "bf16")
		require.Equal(t, append(plain, cast...), both)
		require.Equal(t, weights == "bf16", trials == other, "%d of %d and %d", trials, alone, other)
	}
}
