package pt2_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hfconfig"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// peakOf returns the highest requested bytes of a program, and the bytes of its weights at the end.
func peakOf(p *program.Program) (peak, weights int64) {
	now := int64(0)
	for _, in := range p.Instructions {
		if in.Kind != program.Alloc && in.Kind != program.Free {
			continue
		}
		b, sign := p.Buffers[in.Arg], int64(1)
		if in.Kind == program.Free {
			sign = -1
		}
		now += sign * b.Bytes
		if b.Class == program.Weights {
			weights += sign * b.Bytes
		}
		peak = max(peak, now)
	}
	return peak, weights
}

// A graph of Qwen 3 and its description in Go save the same by a lever, but for what the two training loops differ in.
func TestLeversSaveWhatTheyDoOfTheDescribedModel(t *testing.T) {
	described, err := hfconfig.Source().Restore("hf:qwen3-tiny",
		`{"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","hidden_size":512,
		"intermediate_size":1536,"num_hidden_layers":8,"num_attention_heads":8,"num_key_value_heads":4,"head_dim":64,"vocab_size":32000,"tie_word_embeddings":false}`)
	require.NoError(t, err)
	exported := open(t, "hf-qwen3-tiny")
	lora, dora := &models.LoRA{Rank: 8}, &models.LoRA{Rank: 8, DoRA: "true"}
	saving := &models.LoRA{Rank: 8, Save: []string{"lm_head"}}
	ddp := &models.Strategy{Name: models.DDP}
	for _, c := range []struct {
		name             string
		without, turned  models.Case
		weightsDifferent bool
	}{
		{
			"nf4",
			models.Case{LoRA: lora},
			models.Case{LoRA: lora, MemoryOptions: models.MemoryOptions{Quantize: "nf4"}},
			true,
		},
		{
			"nf4-dq",
			models.Case{LoRA: lora},
			models.Case{LoRA: lora, MemoryOptions: models.MemoryOptions{Quantize: "nf4-dq"}},
			true,
		},
		{
			"int8",
			models.Case{LoRA: lora},
			models.Case{LoRA: lora, MemoryOptions: models.MemoryOptions{Quantize: "int8"}},
			true,
		},
		{
			"nf4 under ddp",
			models.Case{LoRA: lora, GPUs: 2, Strategy: ddp},
			models.Case{LoRA: lora, GPUs: 2, Strategy: ddp, MemoryOptions: models.MemoryOptions{Quantize: "nf4"}},
			true,
		},
		{"dora", models.Case{LoRA: dora}, models.Case{LoRA: lora}, true},
		{"save", models.Case{LoRA: saving}, models.Case{LoRA: lora}, true},
		{
			"float8",
			models.Case{AMP: "bf16"},
			models.Case{AMP: "bf16", MemoryOptions: models.MemoryOptions{Float8: "tensorwise"}},
			false,
		},
		{
			"qat",
			models.Case{},
			models.Case{MemoryOptions: models.MemoryOptions{QAT: models.QAT{Name: models.QAT8da4w, Group: 32}}},
			false,
		},
		{
			"reentrant",
			models.Case{Checkpointing: true},
			models.Case{Checkpointing: true, MemoryOptions: models.MemoryOptions{Recompute: "reentrant"}},
			false,
		},
		{
			"every=2",
			models.Case{Checkpointing: true},
			models.Case{Checkpointing: true, MemoryOptions: models.MemoryOptions{Recompute: "every=2"}},
			false,
		},
	} {
		on := testGPU
		on.Capability = 89 // which multiplies in 8-bit floats
		record := func(t *testing.T, m models.Model, c models.Case) *program.Program {
			r, err := m.Record(c, on, models.Options{})
			require.NoError(t, err)
			require.NoError(t, r.Program.Validate())
			return r.Program
		}
		saved := func(m models.Model, settings models.Settings) (peak, weights int64) {
			c, k := c.without, c.turned
			c.Batch, k.Batch, c.Settings, k.Settings = 4, 4, settings, settings
			plain, levered := record(t, m, c), record(t, m, k)
			require.NotEqual(t, plain.Buffers, levered.Buffers)
			before, weightsBefore := peakOf(plain)
			after, weightsAfter := peakOf(levered)
			return before - after, weightsBefore - weightsAfter
		}
		peak, weights := saved(exported, nil)
		wantPeak, wantWeights := saved(described, models.Settings{"seq-len": 256})
		require.Equal(t, wantWeights, weights, c.name)
		require.Equal(t, c.weightsDifferent, weights > 0, c.name)
		require.InDelta(t, wantPeak, peak, 32<<20, c.name)
	}
}

func TestLeversThatAGraphCannotHave(t *testing.T) {
	for want, c := range map[string]struct {
		model string
		c     models.Case
	}{
		"the model is __main__.PlainGPT": {
			"own-gpt-8x768",
			models.Case{MemoryOptions: models.MemoryOptions{Liger: true}},
		},
		"quantize: quantized layers cannot be trained; add adapters with --lora, or leave out --quantize": {
			"hf-qwen3-tiny",
			models.Case{MemoryOptions: models.MemoryOptions{Quantize: "nf4"}},
		},
		"does not require grad": {"timm-vit_small_patch16_224", models.Case{
			Checkpointing: true,
			LoRA:          &models.LoRA{Rank: 8}, MemoryOptions: models.MemoryOptions{Recompute: "reentrant"},
		}},
		"checkpointing: reentrant is a way of checkpointing, but checkpointing is off; turn it on, or leave out reentrant": {
			"hf-qwen3-tiny",
			models.Case{MemoryOptions: models.MemoryOptions{Recompute: "reentrant"}},
		},
		"no linear layer is called query": {
			"hf-qwen3-tiny",
			models.Case{
				LoRA:          &models.LoRA{Rank: 8, Targets: []string{"query"}},
				MemoryOptions: models.MemoryOptions{Quantize: "nf4"},
			},
		},
	} {
		_, err := open(t, c.model).Record(c.c, testGPU, models.Options{})
		require.ErrorContains(t, err, want)
	}
}

// A graph returns its loss as a scalar, which the Trainer leaves out of the logits that it keeps.
func TestLogitsOfGraphsAreKeptForMetrics(t *testing.T) {
	for _, name := range []string{"hf-bert-tiny", "hf-convnext-tiny", "hf-t5-small", "timm-resnet18"} {
		m := open(t, name)
		kept := func(batches int) int64 {
			c := models.Case{Batch: 2}
			c.Evaluate.Scores = batches
			rec, err := m.Record(c, trace.GPU{Capability: 120, SMs: 36, ThreadsPerSM: 1536},
				models.Options{Validation: 2})
			require.NoError(t, err, name)
			defer rec.Discard()
			p := *rec.Program
			last, now := int64(0), int64(0)
			for _, in := range p.Instructions {
				switch {
				case in.Kind == program.MarkPhase && p.Phases[in.Arg].Step == rec.Validation:
					last = max(last, now)
				case in.Kind == program.Alloc:
					now += p.Buffers[in.Arg].Bytes
				case in.Kind == program.Free:
					now -= p.Buffers[in.Arg].Bytes
				}
			}
			return last
		}
		require.Greater(t, kept(64), kept(2), name)
	}
}
