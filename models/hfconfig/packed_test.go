package hfconfig

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

const packedMixture = `{"model_type": "qwen3_moe", "vocab_size": 8192, "hidden_size": 512, "intermediate_size": 1024, "moe_intermediate_size": 384,
	"num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "num_experts": 16, "num_experts_per_tok": 4,
	"norm_topk_prob": true, "max_position_embeddings": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}`

// Peaks in the second step of bitsandbytes 0.49.1, peft 0.21, transformers 5.23 and torch 2.11 on an A100, allocations
// in blocks of 512 bytes, with experts held by bitsandbytes.nn.parametrize and, in 8 bits, by axolotl 0.18's moe_quant.
// A recomputation that is not reentrant leaves the experts unpacked.
func TestExpertsInFewBits(t *testing.T) {
	const labels = 2 * 512 * 8 // shared with the input
	for _, want := range []struct {
		quantize          string
		recompute         models.Recompute
		checkpointing     bool
		forward, backward int64
	}{
		{"nf4-dq+experts", "", false, 270693888, 286389248},
		{"nf4-dq+experts", models.Reentrant, true, 140694528, 156320256},
		{"nf4-dq+experts", "", true, 197317632, 212943360},
		{"nf4+experts", "", true, 198712832, 214338560},
		{"int8+experts", "", false, 385377280, 401072640},
		{"int8+experts", models.Reentrant, true, 155763200, 174892544},
	} {
		m := model(t, packedMixture)
		c := complete(t, m, models.Case{
			Batch: 2, AMP: "bf16", Weights: "bf16", Optimizer: "adamw-fused", Checkpointing: want.checkpointing,
			LoRA:     &models.LoRA{Rank: 8, Targets: []string{"q_proj", "v_proj"}},
			Settings: models.Settings{"seq-len": 512, "packed": 0},
			MemoryOptions: models.MemoryOptions{
				Quantize: want.quantize, Recompute: want.recompute,
				Clip: models.ClipNone,
			},
		})
		r, err := m.Record(c, trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048}, models.Options{Steps: 2})
		require.NoError(t, err)
		forward, backward := secondStep(r.Program)
		require.Equal(t, want.forward+labels, forward, "%+v", want)
		require.Equal(t, want.backward+labels, backward, "%+v", want)
	}
	m := model(t,
		`{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 512}`)
	_, err := m.Record(models.Case{
		Batch: 1, LoRA: &models.LoRA{Rank: 8},
		MemoryOptions: models.MemoryOptions{Quantize: "nf4+experts"},
	}, testGPU, models.Options{})
	require.ErrorContains(t, err,
		"quantize: nf4+experts holds the experts of a mixture in few bits, and the model has none; use nf4")
}

// Experts lie in parameters, which bitsandbytes leaves alone: it is said how they are packed, too.
func TestExpertsThatAreNotPackedAreNamed(t *testing.T) {
	const note = "--quantize nf4+experts packs them, too"
	for quantize, said := range map[string]bool{"": false, "nf4": true, "nf4+experts": false} {
		for text, mixture := range map[string]bool{
			packedMixture: true,
			`{"model_type": "gemma4_text", "enable_moe_block": true, "num_experts": 8}`: true,
			`{"model_type": "llama", "num_hidden_layers": 1}`:                           false,
		} {
			m := model(t, text)
			c := complete(t, m, models.Case{
				LoRA: &models.LoRA{
					Rank:    8,
					Targets: []string{"q_proj"},
				}, MemoryOptions: models.MemoryOptions{Quantize: quantize},
			})
			require.Equal(t, said && mixture, strings.Contains(strings.Join(m.Caveats(c), "\n"), note), "%s %s",
				quantize, text)
		}
	}
}

func TestWeightsStoredInFewBits(t *testing.T) {
	const sizes = `{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 512, "quantization_config": `
	m := model(t, sizes+`{"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"}}`)
	_, err := m.Complete(models.Case{})
	require.ErrorContains(t, err,
		"quantize: the configuration says that the weights are stored in few bits, by bitsandbytes; train adapters "+
			"beside them with --quantize nf4 --lora ...")
	adapters := models.Case{LoRA: &models.LoRA{Rank: 8}, MemoryOptions: models.MemoryOptions{Quantize: "int8"}}
	_, err = m.Complete(adapters)
	require.ErrorContains(t, err, "are stored as nf4, which transformers does not bring to int8")
	adapters.Quantize = "nf4-dq"
	require.Contains(t, m.Caveats(complete(t, m, adapters)),
		"quantize: the weights are stored as nf4, which transformers keeps; planned is nf4-dq")
	_, err = Parse("config.json",
		[]byte(sizes+`{"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "fp4"}}`))
	require.ErrorContains(t, err, "; need no value, or run your own script with \"vprof run\"")
	for method, want := range map[string]string{
		"gptq": "layers (gptqmodel) unpack", "awq": "layers (gptqmodel) unpack", "fp8": "FP8 kernels",
		"compressed-tensors": "layers (compressed-tensors) unpack",
		"hqq":                "layers (hqq) unpack", "nvfp4": "transformers trains nothing with weights",
		"other": "; need no value, or run your own script with \"vprof run\"",
	} {
		_, err = Parse("config.json", []byte(sizes+`{"quant_method": "`+method+`", "bits": 4}}`))
		require.ErrorContains(t, err, "quantization_config: ", method)
		require.ErrorContains(t, err, want, method)
	}
}
