package trainers

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Trainers freeze what sees unless they are told otherwise, and say how large images are.
func TestTowersAreFrozenWhereTrainersFreezeThem(t *testing.T) {
	const factory = "model_name_or_path: a/b\nstage: sft\nper_device_train_batch_size: 1\nbf16: " +
		"true\nimage_max_pixels: 262144\n"
	config := filepath.Join(t.TempDir(), "config.json")
	for _, row := range []struct{ keys, config, want string }{
		{"finetuning_type: full\n", `{"text_config": {"num_hidden_layers": 8}}`, languageModelModules},
		{"finetuning_type: full\n", `{"num_hidden_layers": 8, "vision_config": {}}`, languageModelModules},
		{"finetuning_type: full\n", `{"num_hidden_layers": 8}`, ""},
		{"finetuning_type: full\nfreeze_vision_tower: false\n", `{"text_config": {"num_hidden_layers": 8}}`, ""},
		{"finetuning_type: lora\n", `{"text_config": {"num_hidden_layers": 8}}`, ""},
	} {
		require.NoError(t, os.WriteFile(config, []byte(row.config), 0o600))
		c, err := one(t, "c.yaml", factory+row.keys)
		require.NoError(t, err)
		require.NoError(t, c.ChooseLayers(config))
		require.Equal(t, row.want, setting(c, "train-only"), row)
		require.Equal(t, "512", setting(c, ImageSize))
	}
}

// LLaMA-Factory looks for ".31." and ".31.mlp" in the names of parameters.
func TestFrozenLayersAreCounted(t *testing.T) {
	const begin = "model_name_or_path: a/b\nstage: sft\nfinetuning_type: freeze\nper_device_train_batch_size: " +
		"1\nbf16: true\n"
	config := filepath.Join(t.TempDir(), "config.json")
	for _, row := range []struct{ keys, config, want, wrong string }{
		{"", `{"num_hidden_layers": 8}`, `\.(?:6|7)\.`, ""},
		{"freeze_trainable_layers: -3\n", `{"n_layer": 8}`, `\.(?:0|1|2)\.`, ""},
		{"freeze_trainable_layers: 99\n", `{"num_layers": 2}`, `\.(?:0|1)\.`, ""},
		{"freeze_trainable_layers: 2\nuse_llama_pro: true\n", `{"num_hidden_layers": 8}`, `\.(?:3|7)\.`, ""},
		{
			"freeze_trainable_modules: mlp,self_attn\nfreeze_extra_modules: lm_head\n", `{"num_hidden_layers": 8}`,
			`\.(?:6|7)\.mlp|\.(?:6|7)\.self_attn|lm_head`, "",
		},
		{
			"freeze_trainable_layers: 1\n", `{"text_config": {"num_hidden_layers": 4}}`,
			`language_model\..*\.(?:3)\.`, "",
		},
		{"freeze_trainable_layers: 0\nfreeze_extra_modules: lm_head\n", `{"num_hidden_layers": 8}`, `lm_head`, ""},
		{
			"freeze_trainable_layers: 0\n", `{"num_hidden_layers": 8}`, "",
			"c.yaml:6: freeze_trainable_layers: is 0: nothing is trained",
		},
		{
			"freeze_trainable_layers: 3\nuse_llama_pro: true\n", `{"num_hidden_layers": 8}`, "",
			"c.yaml:6: freeze_trainable_layers: is 3, which does not divide the model's 8 layers",
		},
		{
			"freeze_trainable_layers: many\n", `{}`, "",
			"c.yaml:6: freeze_trainable_layers: many is not a number of layers",
		},
		{
			"freeze_vision_tower: false\n", `{}`, "",
			"c.yaml:6: freeze_vision_tower: vprof plans finetuning_type: freeze of language models alone",
		},
		{
			"", `{"vocab_size": 8}`, "",
			"c.yaml:3: finetuning_type: the layers that are trained are counted in the model's config.json",
		},
		{"", `[`, "", "is not JSON; name the config.json"},
	} {
		require.NoError(t, os.WriteFile(config, []byte(row.config), 0o600))
		c, err := one(t, "c.yaml", begin+row.keys)
		if err == nil {
			err = c.ChooseLayers(config)
		}
		if row.wrong != "" {
			require.ErrorContains(t, err, row.wrong)
			continue
		}
		require.NoError(t, err, row.keys)
		require.Equal(t, row.want, setting(c, "train-only"))
		require.Equal(t, [3]string{"bf16", "fp32", "reentrant-trained"},
			[3]string{setting(c, "weights"), setting(c, "trained-weights"), setting(c, "checkpointing")})
	}
	c, err := one(t, "c.yaml", begin)
	require.NoError(t, err)
	require.ErrorContains(t, c.ChooseLayers(filepath.Join(t.TempDir(), "none")), "cannot be read")
	pure, err := one(t, "c.yaml",
		"model_name_or_path: a/b\nstage: sft\nfinetuning_type: freeze\npure_bf16: "+
			"true\nper_device_train_batch_size: 1\n")
	require.NoError(t, err)
	require.Empty(t, setting(pure, "trained-weights"))
}
