package pt2_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hfconfig"
	"github.com/vprof/vprof/models/pt2"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/tools/sample"
)

// freedTogether sorts releases that no allocation comes between: a graph knows in which order
// Python frees masks and hidden states at the end of a call.
func freedTogether(events []event) []event {
	out := slices.Clone(events)
	for i := 0; i < len(out); i++ {
		end := i
		for end < len(out) && out[end].kind == program.Free {
			end++
		}
		slices.SortFunc(out[i:end], func(a, b event) int { return cmp.Compare(a.bytes, b.bytes) })
		i = max(i, end)
	}
	return out
}

// liger-kernel's kernels need the same bytes in a graph as in the described model.
func TestLigerIsThatOfTheDescribedModel(t *testing.T) {
	lora := &models.LoRA{Rank: 8, Targets: []string{"q_proj", "down_proj"}}
	for _, name := range []string{"hf-qwen3-tiny", "hf-gemma2-tiny"} {
		described, err := hfconfig.Source().Restore("hf:"+name, configs[name])
		require.NoError(t, err)
		exported := open(t, name)
		for i, c := range []models.Case{
			{MemoryOptions: models.MemoryOptions{Liger: true}},
			{MemoryOptions: models.MemoryOptions{Liger: true}, AMP: "bf16", Checkpointing: true},
			{MemoryOptions: models.MemoryOptions{Liger: true}, Weights: "bf16", LoRA: lora},
			{MemoryOptions: models.MemoryOptions{Liger: true}, AMP: "fp16", Accumulate: 2},
			{
				MemoryOptions: models.MemoryOptions{Liger: true}, AMP: "bf16", GPUs: 2,
				Strategy: &models.Strategy{Name: models.FSDP2},
			},
			{Settings: models.Settings{"fused-loss": 1}, AMP: "bf16"},
		} {
			if name == "hf-gemma2-tiny" && c.Weights != "" || !sample.All() && i > 2 {
				continue // of Gemma 2, masks are not the same without the lever either
			}
			c.Batch, c.Torch, c.Clip = 4, "2.15", models.ClipNone
			of := c
			of.Settings = models.Settings{"seq-len": 256, "packed": 1, "fused-loss": c.Settings["fused-loss"]}
			want, got := freedTogether(largeEvents(record(t, described, of))),
				freedTogether(largeEvents(record(t, exported, c)))
			require.True(t, slices.Equal(want, got), "%s %+v: %d and %d events", name, c, len(want), len(got))
		}
	}
}

func TestLigerSaysWhatItReplaces(t *testing.T) {
	on := models.MemoryOptions{Liger: true}
	for want, c := range map[string]struct {
		model string
		c     models.Case
	}{
		"33 norms, 8 turns of queries and keys, 8 feed-forward products, scores and loss": {
			"hf-qwen3-tiny",
			models.Case{MemoryOptions: on},
		},
		"8 feed-forward products, not the loss, which is not computed by a class": {
			"hf-qwen3-tiny",
			models.Case{MemoryOptions: on, Loss: pt2.TokenCrossEntropy, Output: "logits"},
		},
		"33 norms, 8 turns of queries and keys, 8 feed-forward products": {
			"hf-qwen3-tiny",
			models.Case{MemoryOptions: on, Settings: models.Settings{"plain-loss": 1}},
		},
		"25 norms, 6 turns of queries and keys, 6 feed-forward products, scores and loss": {
			"hf-gemma2-tiny",
			models.Case{MemoryOptions: on},
		},
	} {
		m := open(t, c.model)
		k, err := m.Complete(c.c)
		require.NoError(t, err)
		require.Contains(t, m.Caveats(k)[len(m.Caveats(k))-1]+"$", want)
		require.NotEqual(t, record(t, m, c.c).Buffers,
			record(t, m, models.Case{Loss: c.c.Loss, Output: c.c.Output}).Buffers)
	}
}

func TestLigerThatAGraphCannotHave(t *testing.T) {
	on := models.MemoryOptions{Liger: true}
	class := func(old, other string) func(p *export.Program) {
		return func(p *export.Program) {
			for i := range p.Nodes {
				if p.Nodes[i].Class == old {
					p.Nodes[i].Class = other
				}
			}
		}
	}
	same := func(*export.Program) {}
	for want, c := range map[string]struct {
		model  string
		change func(p *export.Program)
		c      models.Case
	}{
		"the model is __main__.PlainGPT": {"own-gpt-8x768", same, models.Case{MemoryOptions: on}},
		"vprof does not describe (experts, images": {
			"hf-qwen3-tiny",
			class("transformers.models.qwen3.modeling_qwen3.Qwen3MLP",
				"transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeMLP"),
			models.Case{MemoryOptions: on},
		},
		"Gemma2ForConditionalGeneration that vprof does not": {
			"hf-gemma2-tiny",
			class("transformers.models.gemma2.modeling_gemma2.Gemma2ForCausalLM",
				"transformers.models.gemma2.modeling_gemma2.Gemma2ForConditionalGeneration"),
			models.Case{MemoryOptions: on},
		},
		"Qwen3MLP has no other activation than silu": {"hf-qwen3-tiny", func(p *export.Program) {
			node(p, "silu.default").Target = "torch.ops.aten.gelu.default"
		}, models.Case{MemoryOptions: on}},
		"liger: liger-kernel replaces model.layers.0.mlp.act_fn and operators around it; leave the module out of --set checkpoint=": {
			"hf-qwen3-tiny", same,
			models.Case{MemoryOptions: on, Checkpointing: true, Blocks: "model.layers.*.mlp.act_fn"},
		},
		"which has an adapter or is quantized; leave the layer out of target= in --lora": {
			"hf-qwen3-tiny", same,
			models.Case{MemoryOptions: on, LoRA: &models.LoRA{Rank: 8, Targets: []string{"lm_head"}}},
		},
		"the fused loss of liger-kernel goes through chunks": {
			"hf-qwen3-tiny", same,
			models.Case{MemoryOptions: on, Settings: models.Settings{"chunked-loss": 8}},
		},
		"is about --liger without its fused loss": {
			"hf-qwen3-tiny", same,
			models.Case{Settings: models.Settings{"plain-loss": 1}},
		},
		"fused linear cross entropy only for a layer without a bias": {
			"hf-bert-tiny", same,
			models.Case{Settings: models.Settings{"fused-loss": 1}},
		},
		"kernel rms-norm (1 to 100000) that the graph of 747 nodes does not have; capture the model again": {"hf-qwen3-tiny", func(p *export.Program) {
			p.Kernels[0].Begin, p.Kernels[0].End = 1, 100000
		}, models.Case{MemoryOptions: on}},
	} {
		m, err := pt2.Changed("testdata/"+c.model+".pt2", c.change)
		if err == nil {
			c.c.Torch = "2.15"
			_, err = m.Record(c.c, testGPU, models.Options{})
		}
		require.ErrorContains(t, err, want)
	}
}
