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
	// Padded says that some row is padded, Packed that some row holds several
	// sequences. Attention needs a mask in both cases.
	Padded, Packed bool
	// Checkpointing recomputes layers in backward: every one, or every Every-th;
	// Reentrant has another way of doing it.
	Checkpointing bool
	Reentrant     bool
	Every         int
	// Liger has the kernels of liger-kernel.
	Liger bool
	// ScoreCap holds the scores of words down by a tanh.
	ScoreCap bool
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
func PaddingSetting(usual int64) models.Setting {
	return models.Setting{Name: paddingSetting, Usage: "1 if a sequence of the batch is padded, 0 if none is", Default: usual, Min: 0, Max: 1}
}

// PaddingNote tells what padding costs.
const PaddingNote = "a batch without padding needs no attention mask, and flash attention serves it in half precision: --set padding=0"

// PackedSetting says whether rows hold several sequences, which needs a mask.
func PackedSetting(usual int64) models.Setting {
	return models.Setting{Name: packedSetting, Usage: "1 if rows hold several sequences, 0 if each holds one", Default: usual, Min: 0, Max: 1}
}

// PackedNote tells what packing costs.
const PackedNote = "rows that hold one sequence each need no attention mask, and flash attention serves them in half precision: --set packed=0"

// TextOf reads the settings of a case.
func TextOf(c models.Case) Text {
	return Text{
		Length: c.Settings[lengthSetting],
		Padded: c.Settings[paddingSetting] == 1, Packed: c.Settings[packedSetting] == 1,
		Checkpointing: c.Checkpointing, Reentrant: c.Recompute == models.Reentrant, Every: c.EveryLayers(),
		Liger: c.Liger,
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
	// Classes says what Output tells of a row; nil if it gives a score for
	// every word of the vocabulary at every token instead.
	Classes *Classes
	// Heads are the places of the layers that peft trains as a whole beside
	// adapters, with task_type SEQ_CLS.
	Heads []*nn.Layer
	// Bidirectional says that a batch comes with a padding mask even if no row
	// is padded.
	Bidirectional bool
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
	if t.Classes == nil {
		return []nn.Layer{t.Output}
	}
	return nil
}

// Saved implements [train.Adaptable].
func (t *TextTask) Saved() []*nn.Layer { return t.Heads }

// RequireInputGrads implements [train.Adaptable].
func (t *TextTask) RequireInputGrads() { t.Inputs.RequireGrads() }

// Load implements [train.Task].
func (t *TextTask) Load(tape *trace.Tape, n int64) {
	fresh := func(op string, shape ...int64) *tensor {
		return tape.Hold(tape.New(op, program.Batch, trace.I64, shape...))
	}
	t.batch = TextBatch{IDs: fresh("randint", n, t.Length)}
	if t.Bidirectional || t.Padded {
		t.batch.Padding = fresh("ones", n, t.Length)
	}
	if t.Classes == nil {
		t.batch.Labels = fresh("clone", n, t.Length)
	} else {
		t.batch.Labels = t.Classes.Labels(tape, n)
	}
}

// Loss implements [train.Task].
func (t *TextTask) Loss(f *trace.Frame, loss **trace.Tensor) {
	f.Set(loss, t.Call(f, t.batch))
	f.Tape().Mark("forward")
}
