package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

const wideLlama = `{"model_type": "llama", "vocab_size": 512, "hidden_size": 512, "intermediate_size": 4096, "num_hidden_layers": 3,
	"num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 4096, "tie_word_embeddings": false}`

// Peaks in the second step of a feed-forward layer that does what axolotl 0.18 does under tiled_mlp, in a Llama of
// transformers 5.23 with torch 2.11 on an A100, allocations in blocks of 512 bytes.
func TestFeedForwardLayersInTiles(t *testing.T) {
	for _, want := range []struct {
		tiles             models.Tiles
		batch             int
		checkpointing     bool
		recompute         models.Recompute
		amp, weights      string
		forward, backward int64
	}{
		{4, 1, false, "", "", "bf16", 238100480, 269019136},
		{3, 2, false, "", "bf16", "", 574536192, 695287808},
		{5, 2, true, "", "bf16", "bf16", 198646272, 299753472},
		{4, 1, true, models.Reentrant, "", "bf16", 173390336, 255242240},
	} {
		m := model(t, wideLlama)
		c := complete(t, m, models.Case{
			Batch: want.batch, AMP: models.Autocast(want.amp), Weights: models.WeightType(want.weights),
			Optimizer: "adamw-fused", Checkpointing: want.checkpointing,
			Settings:      models.Settings{"seq-len": 2048, "packed": 0},
			MemoryOptions: models.MemoryOptions{TiledMLP: want.tiles, Recompute: want.recompute, Clip: models.ClipNone},
		})
		r, err := m.Record(c, trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048}, models.Options{Steps: 2})
		require.NoError(t, err)
		forward, backward := secondStep(r.Program)
		require.Equal(t, want.forward, forward, "%+v", want)
		require.Equal(t, want.backward, backward, "%+v", want)
	}
}
