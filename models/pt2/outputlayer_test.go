package pt2_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hfconfig"
	"github.com/vprof/vprof/models/pt2"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/program"
)

// event is an allocation or a release.
type event struct {
	kind  program.Kind
	bytes int64
}

// largeEvents returns the events of at least 64 KiB: smaller ones are numbers that Python looks at,
// and masks, which a graph has in another way.
func largeEvents(p *program.Program) (out []event) {
	for _, in := range p.Instructions {
		if in.Kind != program.Alloc && in.Kind != program.Free {
			continue
		}
		if n := p.Buffers[in.Arg].Bytes; n >= 1<<16 {
			out = append(out, event{in.Kind, n})
		}
	}
	return out
}

// configs are the configurations of exported models of transformers.
var configs = map[string]string{
	"hf-qwen3-tiny": `{"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","hidden_size":512,"intermediate_size":1536,
		"num_hidden_layers":8,"num_attention_heads":8,"num_key_value_heads":4,"head_dim":64,"vocab_size":32000,"tie_word_embeddings":false}`,
	"hf-gemma2-tiny": `{"architectures":["Gemma2ForCausalLM"],"model_type":"gemma2","hidden_size":640,"intermediate_size":2048,
		"num_hidden_layers":6,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":160,"vocab_size":32000}`,
	"hf-gpt2": `{"architectures":["GPT2LMHeadModel"],"model_type":"gpt2"}`,
}

// Scores and loss in chunks need the same bytes in a graph as in the described model.
func TestLossesInChunksAreThoseOfTheDescribedModel(t *testing.T) {
	lora := &models.LoRA{Rank: 8, Targets: []string{"q_proj"}}
	beside := &models.LoRA{Rank: 8, Targets: []string{"q_proj", "lm_head"}}
	for name, config := range configs {
		described, err := hfconfig.Source().Restore("hf:"+name, config)
		require.NoError(t, err)
		exported := open(t, name)
		for _, lever := range []models.Settings{{"chunked-loss": 8}, {"chunked-loss": 3}, {"linear-cross-entropy": 1}} {
			cases := []models.Case{
				{},
				{AMP: "bf16", Accumulate: 2},
				{Weights: "bf16", Checkpointing: true},
				{AMP: "fp16", LoRA: lora},
				{AMP: "bf16", LoRA: beside},
				{GPUs: 2, Strategy: &models.Strategy{Name: models.FSDP2}},
			}
			for _, c := range cases {
				linear := lever["linear-cross-entropy"] == 1
				if name == "hf-gemma2-tiny" && (linear || c.Weights != "") || name == "hf-gpt2" && c.LoRA != nil ||
					c.LoRA == beside && linear {
					continue // refused, not the same without the lever either, or without such layers
				}
				c.Batch, c.Torch, c.Clip = 4, "2.15", models.ClipNone
				ofGraph, ofLayers := c, c
				ofGraph.Settings = lever
				ofLayers.Settings = models.Settings{"seq-len": 256, "packed": 1}
				maps.Copy(ofLayers.Settings, lever)
				want, got := largeEvents(record(t, described, ofLayers)), largeEvents(record(t, exported, ofGraph))
				require.True(t, slices.Equal(want, got), "%s %v %+v: %d and %d events", name, lever, c,
					len(want), len(got))
			}
		}
	}
}

// changed returns a model of the test data with some of its program changed.
func changed(t *testing.T, name string, change func(p *export.Program)) models.Model {
	m, err := pt2.Changed("testdata/"+name+".pt2", change)
	require.NoError(t, err)
	return m
}

// node returns the last node of a program that calls an operator.
func node(p *export.Program, operator string) *export.Node {
	i := len(p.Nodes) - 1
	for p.Nodes[i].Target != "torch.ops.aten."+operator {
		i--
	}
	return &p.Nodes[i]
}

func TestLossesInChunksThatAGraphCannotHave(t *testing.T) {
	chunks, linear := models.Settings{"chunked-loss": 4}, models.Settings{"linear-cross-entropy": 1}
	same := func(*export.Program) {}
	argument := func(operator, name string, value export.Argument) func(*export.Program) {
		return func(p *export.Program) {
			n := node(p, operator)
			n.Inputs = append(slices.DeleteFunc(n.Inputs, func(a export.NamedArgument) bool {
				return a.Name == name
			}), export.NamedArgument{Name: name, Argument: value})
		}
	}
	for want, c := range map[string]struct {
		model  string
		change func(p *export.Program)
		c      models.Case
	}{
		"the logits are computed by add.Tensor, not by a linear layer; leave out --set fused-loss and chunked-loss": {
			"hf-bart-base", same,
			models.Case{Settings: chunks},
		},
		"the loss is the result of sum.default, not a cross entropy": {"hf-qwen3-tiny", func(p *export.Program) {
			node(p, "cross_entropy_loss.default").Target = "torch.ops.aten.sum.default"
		}, models.Case{Settings: chunks}},
		"the cross entropy of its logits, which is not possible in this graph: the cross entropy has label smoothing (label_smoothing=); leave out --set fused-loss and chunked-loss": {
			"hf-qwen3-tiny",
			argument("cross_entropy_loss.default", "label_smoothing", export.Argument{Kind: export.Real, Real: 0.1}),
			models.Case{Settings: chunks},
		},
		"the cross entropy is not the mean over tokens": {
			"hf-qwen3-tiny",
			argument("cross_entropy_loss.default", "reduction", export.Argument{Kind: export.Integer, Int: 2}),
			models.Case{Settings: chunks},
		},
		"not shifted by one token; leave out --set fused-loss and chunked-loss": {
			"hf-qwen3-tiny",
			argument("slice.Tensor", "start", export.Argument{Kind: export.Integer}),
			models.Case{Settings: chunks},
		},
		"chunked-loss: the fused and chunked losses replace the last linear layer and the cross entropy of its logits, which is not possible in this graph: the model computes several cross entropies; leave out --set fused-loss and chunked-loss": {
			"hf-qwen3-tiny", again,
			models.Case{Settings: chunks},
		},
		"is called more than once": {
			"hf-qwen3-tiny", twice,
			models.Case{Settings: chunks},
		},
		"to.dtype also reads the logits; leave out --loss": {
			"hf-qwen3-tiny", same,
			models.Case{Settings: chunks, Loss: pt2.TokenCrossEntropy, Output: "logits"},
		},
		"cross-entropy over 3 dimensions; use --loss token-cross-entropy": {
			"own-gpt-8x768", same,
			models.Case{Settings: chunks},
		},
		"this model scales or caps them; use --set chunked-loss=N": {
			"hf-gemma2-tiny", same,
			models.Case{Settings: linear},
		},
		"cls.predictions.decoder has one; use --set chunked-loss=N": {
			"hf-bert-tiny", same,
			models.Case{Settings: linear},
		},
		"has an adapter or is quantized; leave the layer out of target= in --lora": {
			"hf-qwen3-tiny", same,
			models.Case{Settings: linear, LoRA: &models.LoRA{Rank: 8, Targets: []string{"lm_head"}}},
		},
		"PyTorch 2.12 has no linear_cross_entropy": {
			"hf-qwen3-tiny", same,
			models.Case{Settings: linear, Torch: "2.12"},
		},
		"another way of computing scores and loss is asked for": {
			"hf-qwen3-tiny", same,
			models.Case{Settings: models.Settings{"chunked-loss": 4, "linear-cross-entropy": 1}},
		},
		"leave it out of --set checkpoint=": {
			"hf-qwen3-tiny", same,
			models.Case{Settings: chunks, Checkpointing: true, Blocks: "lm_head"},
		},
		"without pipelines; use another --strategy": {
			"hf-qwen3-tiny", same,
			models.Case{Settings: chunks, GPUs: 2, Strategy: &models.Strategy{Name: models.PP}},
		},
		"ranks would gather lm_head for every chunk": {
			"hf-qwen3-tiny", same,
			models.Case{Settings: chunks, GPUs: 2, Strategy: &models.Strategy{Name: models.ZeRO3}},
		},
		"use a model that returns its loss, or --strategy ddp": {"own-gpt-8x768", same, models.Case{
			Settings: chunks,
			GPUs:     2, Strategy: &models.Strategy{Name: models.FSDP2}, Loss: pt2.TokenCrossEntropy,
		}},
	} {
		if c.c.Torch == "" {
			c.c.Torch = "2.15"
		}
		_, err := changed(t, c.model, c.change).Record(c.c, testGPU, models.Options{})
		require.ErrorContains(t, err, want)
	}
}

// again computes the cross entropy once more.
func again(p *export.Program) {
	n := *node(p, "cross_entropy_loss.default")
	n.Outputs = []export.Argument{{Kind: export.Ref, Ref: int32(p.Values)}}
	p.Values, p.Nodes = p.Values+1, append(p.Nodes, n)
}

// twice makes the layer before the last one multiply by the weight of the last one, too.
func twice(p *export.Program) {
	last := node(p, "linear.default")
	var weight export.NamedArgument
	for _, a := range last.Inputs {
		if a.Name == "weight" {
			weight = a
		}
	}
	before := len(p.Nodes) - 1
	for p.Nodes[before].Target != last.Target || &p.Nodes[before] == last {
		before--
	}
	for i, a := range p.Nodes[before].Inputs {
		if a.Name == "weight" {
			p.Nodes[before].Inputs[i] = weight
		}
	}
}

func TestValidationComputesTheLossInChunks(t *testing.T) {
	m := open(t, "hf-qwen3-tiny")
	c := models.Case{Batch: 4, Weights: "bf16", Torch: "2.15", Settings: models.Settings{"chunked-loss": 8}}
	with, err := m.Record(c, testGPU, models.Options{Validation: 4})
	require.NoError(t, err)
	const scores = 4 * 256 * 32000 * 4 // bytes in fp32
	require.NotContains(t, largeEvents(with.Program), event{program.Alloc, scores})
	c.Settings = nil
	whole, err := m.Record(c, testGPU, models.Options{Validation: 4})
	require.NoError(t, err)
	require.Contains(t, largeEvents(whole.Program), event{program.Alloc, scores})
}

// A head that sees some of the tokens has no label for each of them.
func TestTokensWithoutALabelAreRefused(t *testing.T) {
	m := changed(t, "hf-qwen3-tiny", func(p *export.Program) {
		n := node(p, "alias.default")
		n.Target = "torch.ops.aten.slice.Tensor"
		for name, v := range map[string]int64{"dim": 1, "start": 100, "end": 1 << 62} {
			n.Inputs = append(n.Inputs, export.NamedArgument{
				Name:     name,
				Argument: export.Argument{Kind: export.Integer, Int: v},
			})
		}
	})
	_, err := m.Record(models.Case{Batch: 4, Settings: models.Settings{"chunked-loss": 8}}, testGPU, models.Options{})
	require.ErrorContains(t, err, " (modeling_qwen3.py:485:forward): : the output layer must see one token for each label, but the numbers differ; leave the setting out")
}

// Where a graph returns scores, its loss takes the hidden states and the output layer.
func TestScoresThatAreReturnedAreNotComputedWhole(t *testing.T) {
	m := open(t, "own-gpt-8x768")
	c := models.Case{Batch: 4, AMP: "bf16", Loss: pt2.TokenCrossEntropy, Torch: "2.15"}
	whole := record(t, m, c)
	for _, lever := range []models.Settings{{"chunked-loss": 8}, {"linear-cross-entropy": 1}} {
		c.Settings = lever
		levered := record(t, m, c)
		before, weights := peakOf(whole)
		after, weightsAfter := peakOf(levered)
		require.Equal(t, weights, weightsAfter)
		require.Less(t, after, before, lever)
		require.Equal(t, whole.LeftBytes(), levered.LeftBytes())
		require.Greater(t, largest(whole), largest(levered))
	}
}

// largest returns the size of the largest activation.
func largest(p *program.Program) (n int64) {
	for _, b := range p.Buffers {
		if b.Class == program.Activations {
			n = max(n, b.Bytes)
		}
	}
	return n
}
