package hf

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Text is how a model over token ids is trained.
type Text struct {
	// Length is the number of tokens of a row.
	Length int64
	// Masked says that attention needs a mask: some row is padded, or holds
	// several sequences.
	Masked bool
	// Checkpointing recomputes layers in backward.
	Checkpointing bool
}

// The names of the settings of texts.
const (
	lengthSetting  = "seq-len"
	paddingSetting = "padding"
	packedSetting  = "packed"
)

// LengthSetting is the number of tokens of a row.
func LengthSetting(usual, most int64) models.Setting {
	return models.Setting{Name: lengthSetting, Usage: "tokens of a sequence", Default: min(usual, most), Min: 1, Max: most}
}

// PaddingSetting says whether rows are padded, which needs a mask.
func PaddingSetting() models.Setting {
	return models.Setting{Name: paddingSetting, Usage: "1 if a sequence of the batch is padded, 0 if none is", Default: 1, Min: 0, Max: 1}
}

// PaddingNote tells what padding costs.
const PaddingNote = "a batch without padding needs no attention mask, and flash attention serves it in half precision: --set padding=0"

// PackedSetting says whether rows hold several sequences, which needs a mask.
func PackedSetting() models.Setting {
	return models.Setting{Name: packedSetting, Usage: "1 if rows hold several sequences, 0 if each holds one", Default: 1, Min: 0, Max: 1}
}

// PackedNote tells what packing costs.
const PackedNote = "rows that hold one sequence each need no attention mask, and flash attention serves them in half precision: --set packed=0"

// TextOf reads the settings of a case.
func TextOf(c models.Case) Text {
	return Text{
		Length:        c.Settings[lengthSetting],
		Masked:        c.Settings[paddingSetting] == 1 || c.Settings[packedSetting] == 1,
		Checkpointing: c.Checkpointing,
	}
}

// TextBatch is a batch of token ids [n, length]; Padding is its attention mask
// or nil, Labels has one for each token or one for each row.
type TextBatch struct{ IDs, Padding, Labels *tensor }

// TextTask is a task over texts; it implements [train.Adaptable].
type TextTask struct {
	Text
	Net any
	// Inputs are the word embeddings, Output the last layer.
	Inputs *nn.Embedding
	Output nn.Layer
	// Words says that Output gives a score for every word; else it gives one
	// for every class of a row, or a single value.
	Words, SingleValue bool
	// Padded says that a batch comes with a padding mask.
	Padded bool
	// Call is the loss of a batch, of which nothing else outlives the call.
	Call func(f *trace.Frame, b TextBatch) *trace.Tensor

	batch TextBatch
}

// Model implements [train.Task].
func (t *TextTask) Model() any { return t.Net }

// Head implements [train.Task].
func (t *TextTask) Head() any { return t.Output }

// Unadapted implements [train.Adaptable].
func (t *TextTask) Unadapted() []nn.Layer {
	if t.Words {
		return []nn.Layer{t.Output}
	}
	return nil
}

// RequireInputGrads implements [train.Adaptable].
func (t *TextTask) RequireInputGrads() { t.Inputs.RequireGrads() }

// Load implements [train.Task].
func (t *TextTask) Load(tape *trace.Tape, n int64) {
	fresh := func(op string, shape ...int64) *tensor {
		return tape.Hold(tape.New(op, program.Batch, trace.I64, shape...))
	}
	t.batch = TextBatch{IDs: fresh("randint", n, t.Length)}
	if t.Padded {
		t.batch.Padding = fresh("ones", n, t.Length)
	}
	switch {
	case t.Words:
		t.batch.Labels = fresh("clone", n, t.Length)
	case t.SingleValue:
		t.batch.Labels = tape.Hold(tape.New("randn", program.Batch, trace.F32, n))
	default:
		t.batch.Labels = fresh("randint", n)
	}
}

// Loss implements [train.Task].
func (t *TextTask) Loss(f *trace.Frame, loss **trace.Tensor) {
	f.Set(loss, t.Call(f, t.batch))
	f.Tape().Mark("forward")
}
