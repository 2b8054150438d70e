package bert

import (
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/train"
)

// BertConfig's defaults beside the sizes.
const (
	vocab     = 30522
	positions = 512
	types     = 2
	dropout   = 0.1
)

// Models are bert-base and bert-large.
func Models() []models.Model {
	return []models.Model{
		entry("bert-base", 768, 12, 12),
		entry("bert-large", 1024, 24, 16),
	}
}

func entry(name string, width, layers, heads int64) models.Model {
	return train.Model(models.Model{
		Name:      name,
		Summary:   fmt.Sprintf("BERT encoder, %d layers of width %d, as masked language model", layers, width),
		Source:    "transformers 5.23, BertForMaskedLM",
		Batches:   []int{4, 8, 16, 32, 64, 128},
		BatchUnit: "sequence",
		Settings: []models.Setting{
			hf.LengthSetting(128, positions),
			{Name: "layers", Usage: "encoder layers", Default: layers, Min: 1, Max: 256},
			hf.PaddingSetting(1),
		},
		Adapts: true, HalfWeights: true,
		Notes: []string{
			"stage head trains the output layer, whose weight is that of the word embeddings",
			hf.PaddingNote,
		},
	}, 32, func(c models.Case) train.Task {
		return MaskedLM(Config{
			Vocab: vocab, Width: width, Layers: c.Settings["layers"], Heads: heads, Inner: 4 * width,
			Positions: positions, Types: types,
			HiddenDropout: dropout, AttentionDropout: dropout,
		}, hf.TextOf(c))
	})
}
