package pt2_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hfconfig"
)

// Optimizers that go by layers find them in a graph as in the described model.
func TestOptimizersThatProjectGradientsAreThoseOfTheDescribedModel(t *testing.T) {
	const name = "hf-qwen3-tiny"
	described, err := hfconfig.Source().Restore("hf:"+name, configs[name])
	require.NoError(t, err)
	exported := open(t, name)
	for _, c := range []models.Case{
		{
			Optimizer:     "galore-adamw:rank=8,target=mlp+q_proj",
			MemoryOptions: models.MemoryOptions{Clip: models.ClipNone},
		},
		{Optimizer: "galore-adamw:rank=8", MemoryOptions: models.MemoryOptions{InBackward: true}},
	} {
		c.Batch, c.Torch = 4, "2.15"
		ofLayers := c
		ofLayers.Settings = models.Settings{"seq-len": 256, "packed": 1}
		want, got := largeEvents(record(t, described, ofLayers)), largeEvents(record(t, exported, c))
		require.ElementsMatch(t, want, got, c.Optimizer) // the loss frees logits elsewhere
	}
	_, err = exported.Record(models.Case{Batch: 4, Optimizer: "galore-adamw:target=none"}, testGPU, models.Options{})
	require.ErrorContains(t, err, "target names none that is trained")
}
