package trainers

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOptimizersThatProjectGradients(t *testing.T) {
	const (
		factory = "model_name_or_path: m\nstage: sft\nfinetuning_type: full\n"
		trainer = "output_dir: o\nmodel_name_or_path: m\nper_device_train_batch_size: 1\n"
	)
	for _, c := range []struct{ config, optimizer, inBackward, wrong string }{
		{factory + "use_galore: true\ngalore_layerwise: true\ngalore_rank: 64\n", "galore-adamw:rank=64", "true", ""},
		{
			factory + "use_galore: true\ngalore_target: mlp,self_attn\noptim: adamw_8bit\n",
			"galore-adamw8bit:rank=16,target=mlp+self_attn", "", "",
		},
		{factory + "use_apollo: true\n", "", "", "run the training: vprof run -- llamafactory-cli train FILE"},
		{factory + "use_badam: true\n", "", "", "run the training: vprof run -- llamafactory-cli train FILE"},
		{
			factory + "use_galore: true\noptim: lion_8bit\n", "", "",
			"vprof does not record galore with optimizer lion8bit",
		},
		{
			"model_name_or_path: m\nstage: sft\nfinetuning_type: lora\nuse_galore: true\n", "", "",
			"use finetuning_type: full",
		},
		{
			trainer + "optim: galore_adamw\noptim_target_modules: all-linear\noptim_args: rank=8, scale=2\n",
			"galore-adamw:rank=8,target=all-linear", "", "",
		},
		{
			trainer + "optim: galore_adafactor_layerwise\noptim_target_modules: [attn, mlp]\n",
			"galore-adafactor:target=attn+mlp", "true", "",
		},
		{
			trainer + "optim: galore_adamw\noptim_target_modules: [attn]\noptim_args: proj_type=left\n", "", "",
			"is proj_type=left",
		},
		{trainer + "optim: galore_adamw\noptim_target_modules: .*attn.*\n", "", "", "is a regular expression"},
		{trainer + "optim: lomo\n", "", "", "or run the training: vprof run -- COMMAND"},
	} {
		f, err := one(t, "c.yaml", c.config)
		if c.wrong != "" {
			require.ErrorContains(t, err, c.wrong, c.config)
			continue
		}
		require.NoError(t, err, c.config)
		require.Equal(t, c.optimizer, setting(f, "optimizer"), c.config)
		require.Equal(t, c.inBackward, setting(f, "optimizer-in-backward"), c.config)
	}
}
