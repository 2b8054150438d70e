package remedy

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/models/hfconfig"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/tools/steptest"
)

// remediesOf returns the remedies for a step whose process holds nothing else.
func remediesOf(t *testing.T, s *step.Setup, gpu device.GPU, batch int) ([]report.Remedy, error) {
	now, err := JudgeStep(t.Context(), s, gpu, batch)
	require.NoError(t, err)
	return now.Remedies(t.Context(), 0)
}

// The toy's batch 16 needs 304 MiB allocated: 64 and 15 per sample. Batch 8 needs 120 less, checkpointing 8 per sample,
// half precision 5 per sample; the cache and what lies in it may add to that.
func TestRemediesSaveWhatTheCaseWouldNeedLess(t *testing.T) {
	saves := map[string]int64{}
	setup, card := steptest.Toy(t, models.Case{}, ""), steptest.Card(280)
	remedies, err := remediesOf(t, setup, card, 16)
	require.NoError(t, err)
	now, err := judge.JudgeBatch(t.Context(), setup, card, 16)
	require.NoError(t, err)
	helped := true
	for _, r := range remedies {
		saves[r.What] = r.Saves
		require.Equal(t, step.IntervalOf(now.Loops[0].Device).Bytes-r.Saves, r.NeedAfter.Bytes)
		require.Positive(t, r.Saves)
		require.True(t, r.Unsafe != "" || float64(r.NeedAfter.High) <= planner.DefaultMargin*float64(card.Memory),
			r.What)
		require.True(t, helped || r.Unsafe != "", "what is enough comes first")
		helped = r.Unsafe == ""
	}
	require.True(t, remedies[0].Unsafe == "" && !helped, "the card takes some remedies, and not all")
	require.Len(t, remedies, 5)
	require.GreaterOrEqual(t, saves["batch 8 instead of 16"], int64(120*steptest.MiB))
	require.GreaterOrEqual(t, saves["gradient checkpointing"], int64(8*16*steptest.MiB))
	require.GreaterOrEqual(t, saves["autocast in fp16"], int64(5*16*steptest.MiB))
}

// The guides lower the negatives of the NAICS embedder by a third.
func TestRemediesOfAModelIncludeItsOwn(t *testing.T) {
	m, err := all.Models().Lookup("naics-embedder-stage01")
	require.NoError(t, err)
	setup, err := step.New(m, models.Case{Batch: 1, Accumulate: 1}, steptest.Exact())
	require.NoError(t, err)
	gpu, err := device.Lookup("a100-40")
	require.NoError(t, err)
	remedies, err := remediesOf(t, setup, gpu, 1)
	require.NoError(t, err)
	require.Equal(t, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", remedies[0].What,
		"what costs nothing comes first")
	own := slices.IndexFunc(remedies, func(r report.Remedy) bool {
		return r.What == "n-negatives 16 instead of 24, the default"
	})
	require.Positive(t, own)
	require.Positive(t, remedies[own].Saves)
	now, err := JudgeStep(t.Context(), setup, gpu, 1)
	require.NoError(t, err)
	more, err := now.LargerBatchAdvice(t.Context())
	require.NoError(t, err)
	require.Contains(t, more, "batch 2 instead of 1 needs ")
}

// What the project's trainer does not read comes last and says what it needs; settings
// of the allocator that are there stay.
func TestRemediesSayWhatTheTrainerDoesNotRead(t *testing.T) {
	m, err := all.Models().Lookup("redimnet-b2")
	require.NoError(t, err)
	setup, err := step.New(m, models.Case{Batch: 16, Accumulate: 1, Stage: "full", AllocConf: "max_split_size_mb:128"},
		steptest.Exact())
	require.NoError(t, err)
	gpu, err := device.Lookup("t4")
	require.NoError(t, err)
	remedies, err := remediesOf(t, setup, gpu, 16)
	require.NoError(t, err)
	require.Equal(t, "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128,expandable_segments:True", remedies[0].What)
	last := remedies[len(remedies)-2:]
	require.Equal(t, "gradient checkpointing", last[0].What)
	require.Equal(t, "a change of the code: sappho192/redimnet-mrl does not read its checkpointing", last[0].Requires)
	require.Equal(t, "autocast in fp16", last[1].What)
	for _, r := range remedies[:len(remedies)-2] {
		require.Empty(t, r.Requires)
	}
}

// Experts that 4-bit loading leaves alone are packed for a try; a model without experts has no such remedy.
func TestExpertsArePackedForATry(t *testing.T) {
	for text, mixture := range map[string]bool{
		`{"model_type": "mixtral", "hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4,
			"num_key_value_heads": 4, "intermediate_size": 8192, "vocab_size": 512}`: true,
		`{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4}`: false,
	} {
		m, err := hfconfig.Parse("config.json", []byte(text))
		require.NoError(t, err)
		setup, err := step.New(m, models.Case{
			Batch: 1, Accumulate: 1, Weights: "bf16", Checkpointing: true,
			LoRA:          &models.LoRA{Rank: 8, Targets: []string{"q_proj"}},
			MemoryOptions: models.MemoryOptions{Quantize: "nf4-dq", Recompute: models.Reentrant},
			Settings:      models.Settings{"seq-len": 64},
		}, steptest.Exact())
		require.NoError(t, err)
		remedies, err := remediesOf(t, setup, steptest.Card(280), 1)
		require.NoError(t, err)
		packed := slices.ContainsFunc(remedies, func(r report.Remedy) bool {
			return r.What == "the experts packed, too: --quantize nf4-dq+experts" && r.Saves > 0
		})
		require.Equal(t, mixture, packed, "%+v", remedies)
	}
}
