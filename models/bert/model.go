package bert

import (
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
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
	return models.Model{
		Name:      name,
		Summary:   fmt.Sprintf("BERT encoder, %d layers of width %d, as masked language model", layers, width),
		Source:    "transformers 5.23, BertForMaskedLM",
		Stages:    train.Stages(),
		Default:   models.Case{Model: name, Stage: "full", Batch: 32, Accumulate: 1},
		Batches:   []int{4, 8, 16, 32, 64, 128},
		BatchUnit: "sequence",
		Settings: []models.Setting{
			{Name: "seq-len", Usage: "tokens of a sequence", Default: 128, Min: 1, Max: positions},
			{Name: "layers", Usage: "encoder layers", Default: layers, Min: 1, Max: 256},
			{Name: "padding", Usage: "1 if a sequence of the batch is padded, 0 if none is", Default: 1, Min: 0, Max: 1},
		},
		Notes: []string{
			"stage head trains the output layer, whose weight is that of the word embeddings",
			"a batch without padding needs no attention mask, and flash attention serves it in half precision: --set padding=0",
		},
		Build: func(c models.Case) (models.Trainer, error) {
			config := Config{
				Vocab: vocab, Width: width, Layers: c.Settings["layers"], Heads: heads, Inner: 4 * width, Positions: positions, Types: types,
				HiddenDropout: dropout, AttentionDropout: dropout,
			}
			return train.NewTrainer(&masking{
				net: newMaskedLM(config), length: c.Settings["seq-len"], padded: c.Settings["padding"] == 1, checkpointing: c.Checkpointing,
			}, c), nil
		},
	}
}

// masking is the task of predicting masked tokens.
type masking struct {
	net                   *maskedLM
	length                int64
	padded, checkpointing bool
	ids, padding, labels  *tensor
}

func (t *masking) Model() any { return t.net }
func (t *masking) Head() any  { return t.net.Cls.Predictions.Decoder }

// Load implements [train.Task].
func (t *masking) Load(tape *trace.Tape, n int64) {
	t.ids = tape.Hold(tape.New("randint", program.Batch, trace.I64, n, t.length))
	t.padding = tape.Hold(tape.New("ones", program.Batch, trace.I64, n, t.length))
	t.labels = tape.Hold(tape.New("clone", program.Batch, trace.I64, n, t.length))
}

// Loss implements [train.Task].
func (t *masking) Loss(f *frame, loss **tensor) {
	f.Set(loss, t.net.call(f, t.ids, t.padding, t.labels, t.padded, t.checkpointing))
	f.Tape().Mark("forward")
}
