package gpt

import (
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/train"
)

// GPT2Config's defaults beside the sizes.
const (
	vocab     = 50257
	positions = 1024
	dropout   = 0.1
)

// Models are gpt2 and its larger sisters.
func Models() []models.Model {
	return []models.Model{
		entry("gpt2", 768, 12, 12),
		entry("gpt2-medium", 1024, 24, 16),
		entry("gpt2-large", 1280, 36, 20),
		entry("gpt2-xl", 1600, 48, 25),
	}
}

func entry(name string, width, layers, heads int64) models.Model {
	return train.Model(models.Model{
		Name:      name,
		Summary:   fmt.Sprintf("GPT-2 decoder, %d layers of width %d, as causal language model", layers, width),
		Source:    "transformers 5.23, GPT2LMHeadModel",
		Batches:   []int{1, 2, 4, 8, 16, 32},
		BatchUnit: "sequence",
		Settings: []models.Setting{
			hf.LengthSetting(positions, positions),
			{Name: "layers", Usage: "decoder layers", Default: layers, Min: 1, Max: 256},
			hf.PackedSetting(1),
			hf.SharedLabelsSetting(),
		},
		Adapts: true, HalfWeights: true,
		Levers: models.LeverSet{Loop: models.LoopTrainer, Cache: true, Quantize: true, Recompute: true},
		Notes: []string{
			"stage head trains the output layer, whose weight is that of the word embeddings",
			hf.PackedNote,
		},
	}, 4, func(c models.Case) train.Task {
		return CausalLM(Config{
			Vocab: vocab, Width: width, Layers: c.Settings["layers"], Heads: heads, Inner: 4 * width,
			Positions:    positions,
			EmbedDropout: dropout, AttentionDropout: dropout, ResidualDropout: dropout, Activation: "gelu_new",
		}, hf.TextOf(c))
	})
}
