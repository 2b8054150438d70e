package gpt

import (
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
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
	return models.Model{
		Name:      name,
		Summary:   fmt.Sprintf("GPT-2 decoder, %d layers of width %d, as causal language model", layers, width),
		Source:    "transformers 5.23, GPT2LMHeadModel",
		Stages:    train.Stages(),
		Default:   models.Case{Model: name, Stage: "full", Batch: 4, Accumulate: 1},
		Batches:   []int{1, 2, 4, 8, 16, 32},
		BatchUnit: "sequence",
		Settings: []models.Setting{
			{Name: "seq-len", Usage: "tokens of a sequence", Default: positions, Min: 1, Max: positions},
			{Name: "layers", Usage: "decoder layers", Default: layers, Min: 1, Max: 256},
			{Name: "packed", Usage: "1 if rows hold several sequences, 0 if each holds one", Default: 1, Min: 0, Max: 1},
		},
		Notes: []string{
			"stage head trains the output layer, whose weight is that of the word embeddings",
			"rows that hold one sequence each need no attention mask, and flash attention serves them in half precision: --set packed=0",
		},
		Build: func(c models.Case) (models.Trainer, error) {
			config := Config{
				Vocab: vocab, Width: width, Layers: c.Settings["layers"], Heads: heads, Inner: 4 * width, Positions: positions,
				EmbedDropout: dropout, AttentionDropout: dropout, ResidualDropout: dropout,
			}
			return train.NewTrainer(&prediction{
				net: newLanguageModel(config), length: c.Settings["seq-len"], packed: c.Settings["packed"] == 1, checkpointing: c.Checkpointing,
			}, c), nil
		},
	}
}

// prediction is the task of predicting next tokens.
type prediction struct {
	net                   *languageModel
	length                int64
	packed, checkpointing bool
	ids, labels           *tensor
}

func (t *prediction) Model() any { return t.net }
func (t *prediction) Head() any  { return t.net.LmHead }

// Load implements [train.Task].
func (t *prediction) Load(tape *trace.Tape, n int64) {
	t.ids = tape.Hold(tape.New("randint", program.Batch, trace.I64, n, t.length))
	t.labels = tape.Hold(tape.New("clone", program.Batch, trace.I64, n, t.length))
}

// Loss implements [train.Task].
func (t *prediction) Loss(f *frame, loss **tensor) {
	f.Set(loss, t.net.call(f, t.ids, t.labels, t.packed, t.checkpointing))
	f.Tape().Mark("forward")
}
