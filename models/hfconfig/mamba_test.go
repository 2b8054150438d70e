package hfconfig

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

// What transformers and the kernels of mamba_ssm fail at is refused, and what would take too long.
func TestMambaIsRefusedWhereItFails(t *testing.T) {
	lora, err := models.ParseLoRA("r=4,target=in_proj")
	require.NoError(t, err)
	all, err := models.ParseLoRA("r=4")
	require.NoError(t, err)
	for _, want := range []struct {
		config, reason string
		c              models.Case
	}{
		{
			"mamba", "multiplies by the weights of its layers itself",
			models.Case{LoRA: &lora, Levers: models.Levers{Quantize: "nf4"}},
		},
		{"mamba", "peft puts no adapters beside out_proj", models.Case{LoRA: &all}},
		{
			"jamba", "mamba-kernels: is 0: 28 layers go over 8192 tokens",
			models.Case{Settings: models.Settings{kernelsSetting: 0, "seq-len": 8192}},
		},
		{
			"jamba", "takes hidden states, time steps and states of one type",
			models.Case{AMP: "bf16", Weights: models.FP32, Settings: models.Settings{"seq-len": 32}},
		},
		{
			"dbrx", "DbrxExperts of transformers 5.23 fails",
			models.Case{AMP: "bf16", Weights: "bf16", Settings: models.Settings{"seq-len": 32}},
		},
	} {
		config, err := os.ReadFile("testdata/configs/" + want.config + "/config.json")
		require.NoError(t, err)
		m := model(t, string(config))
		want.c.Task, want.c.Batch = causalLM, 1
		_, err = m.Record(want.c, trace.GPU{
			Name: "h100-80", Capability: 90, SMs: 132, ThreadsPerSM: 2048,
			Memory: 80 << 30,
		}, models.Options{})
		require.ErrorContains(t, err, want.reason)
	}
}
