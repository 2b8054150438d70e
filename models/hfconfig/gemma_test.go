package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

func TestWrongGemmasAreExplained(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type": "gemma4_text", "num_kv_shared_layers": 30}`:                                  `num_kv_shared_layers: 30 layers that share keys and values: need fewer than the 30 layers of num_hidden_layers`,
		`{"model_type": "gemma4_text", "num_kv_shared_layers": 25}`:                                  `num_kv_shared_layers: 25: layer 5 has no earlier layer of its kind whose keys and values it could share; need a smaller number`,
		`{"model_type": "gemma4_text", "num_kv_shared_layers": 5, "hidden_size_per_layer_input": 0}`: `num_kv_shared_layers: 5: transformers needs hidden_size_per_layer_input for layers that share keys and values; set it, or need 0`,
		`{"model_type": "gemma4_text", "attention_k_eq_v": true, "num_global_key_value_heads": 3}`:   `num_global_key_value_heads: 3: need a number that divides num_attention_heads, 8`,
		`{"model_type": "gemma4_text", "use_bidirectional_attention": "all"}`:                        `use_bidirectional_attention: vprof does not support the value "all"; need "vision" or no value, or run your own script with "vprof run"`,
		`{"model_type": "gemma4_text", "global_head_dim": 65}`:                                       `global_head_dim: 65 is odd: need an even size for rotary positions`,
		`{"model_type": "gemma4", "text_config": {"enable_moe_block": true, "num_experts": 4}}`:      `text_config.top_k_experts: 8 experts for each token: need at most the 4 experts of the model`,
		`{"model_type": "gemma4", "audio_config": {"subsampling_conv_channels": [8]}}`:               `audio_config.subsampling_conv_channels: the list has 1 sizes of convolutions: need 2`,
	} {
		_, err := Parse("a/config.json", []byte(config))
		require.EqualError(t, err, "a/config.json: "+want, config)
	}
}

// FlashAttention needs no masks, neither of windows nor of rows that hold several sequences,
// but takes no heads wider than 256.
func TestFlashAttentionNeedsNoMasks(t *testing.T) {
	const small = `"vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, `
	asked := func(config string, packed, flash int64) requests {
		m := model(t, "{"+small+config+"}")
		settings := models.Settings{"seq-len": 64, "packed": packed}
		if flash == 1 {
			settings["flash"] = 1
		}
		r, err := m.Record(models.Case{Batch: 2, Weights: "bf16", Settings: settings}, testGPU,
			models.Options{Steps: 1})
		require.NoError(t, err)
		return requested(r.Program)
	}
	windows := `"model_type": "mistral", "head_dim": 32, "sliding_window": 16`
	none := `"model_type": "mistral", "head_dim": 32, "sliding_window": null`
	require.Equal(t, asked(none, 0, 0), asked(windows, 0, 1))
	require.Greater(t, asked(windows, 0, 0)[4], asked(windows, 0, 1)[4])

	gemma := `"model_type": "gemma4_text", "hidden_size_per_layer_input": 0, "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"], "head_dim": 32, "global_head_dim": `
	require.Equal(t, asked(gemma+"64", 0, 1), asked(gemma+"64", 1, 1))
	require.Greater(t, asked(gemma+"512", 1, 1)[1], asked(gemma+"512", 0, 1)[1])
}

// peft refuses names that the towers have for layers of another class.
func TestAdaptersOfGemma4AreNotNamedAsTheTowersAre(t *testing.T) {
	m := open(t, "gemma4")
	_, err := m.Complete(models.Case{LoRA: &models.LoRA{Rank: 4, Targets: []string{"q_proj"}}})
	require.ErrorContains(t, err, `lora: target q_proj: the towers have a layer of that name, a Gemma4ClippableLinear`)
	_, err = m.Complete(models.Case{LoRA: &models.LoRA{Rank: 4, Match: "model.language_model.layers.*q_proj"}})
	require.NoError(t, err)
}

// Keys and values that layers share outlive checkpoints whose inputs are saved on the host.
func TestSharedKeysOutliveCheckpoints(t *testing.T) {
	m := model(t,
		`{"model_type": "gemma4_text", "vocab_size": 64, "vocab_size_per_layer_input": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 4,
		"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "global_head_dim": 64, "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 2,
		"layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]}`)
	for _, recompute := range []models.Recompute{"", models.Reentrant} {
		for _, offload := range []bool{false, true} {
			r, err := m.Record(models.Case{Batch: 2, Checkpointing: true, MemoryOptions: models.MemoryOptions{
				Recompute: recompute,
				Offload:   offload,
			}, Settings: models.Settings{"seq-len": 32}}, testGPU, models.Options{Steps: 2})
			require.NoError(t, err)
			require.NoError(t, r.Program.Validate())
		}
	}
}
