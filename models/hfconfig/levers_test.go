package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/tools/sample"
)

// Every configuration can be recorded under every lever, or is refused with an error: nothing
// panics, and no program is invalid.
func TestLeversGoTogetherWithAllConfigurations(t *testing.T) {
	lora := &models.LoRA{Rank: 8, Alpha: 16}
	reentrant, packed := models.MemoryOptions{Recompute: models.Reentrant},
		models.MemoryOptions{Recompute: models.Reentrant, Quantize: "nf4-dq"}
	cases := []models.Case{
		{Checkpointing: true, LoRA: lora, Weights: "bf16", MemoryOptions: reentrant},
		{Checkpointing: true, LoRA: lora, AMP: "bf16", MemoryOptions: packed, Settings: models.Settings{"flash": 1}},
		{
			Checkpointing: true, Weights: "bf16", MemoryOptions: models.MemoryOptions{Offload: true},
			Settings: models.Settings{"padding": 0},
		},
		{Accumulate: 2, AMP: "fp16", MemoryOptions: models.MemoryOptions{Liger: true}},
		{AMP: "bf16", Settings: models.Settings{"eager": 1}},
		{AMP: "bf16", Checkpointing: true, Settings: models.Settings{"flex": 1}},
		{AMP: "bf16", LoRA: lora, Settings: models.Settings{"chunked-loss": 4}},
	}
	dirs, recorded := sample.Of(configs(t)), 0
	for _, dir := range dirs {
		m := open(t, dir)
		for _, c := range cases {
			settings := models.Settings{"seq-len": 128}
			for name, value := range c.Settings {
				settings[name] = value
			}
			c.Batch, c.Settings = 1, shared(m, settings)
			if r, err := m.Record(c, testGPU, models.Options{Steps: 2}); err == nil {
				recorded++
				require.NoError(t, r.Program.Validate(), "%s %+v", dir, c)
			}
		}
	}
	require.Greater(t, recorded, 2*len(dirs), "most of it can be recorded")
}
