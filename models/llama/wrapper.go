package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
)

// Wrapper is what stands beside the decoder of a model that sees or hears: modules that a
// step on text alone holds and never calls.
type Wrapper struct {
	// Decoder is the name of the decoder, "language_model" if empty.
	Decoder       string
	Before, After *nn.Parts
}

// wrapped is the model around a decoder, without the output layer, as Mistral3Model is.
// Trained on text alone, it does nothing but call the decoder.
type wrapped struct {
	nn.Module
	Names
	Before        *nn.Parts `torch:""`
	LanguageModel *Model
	After         *nn.Parts `torch:""`
}

// Call implements [hf.Decoder].
func (w *wrapped) Call(f *frame, ids, padding *tensor, text hf.Text) *tensor {
	g := f.CallFrame(ids, padding)
	g.In(w)
	y := w.LanguageModel.Call(g, ids, padding, text)
	g.End(y)
	return y
}

// conditional is Mistral3ForConditionalGeneration.
type conditional struct {
	nn.Module
	Model  *wrapped
	LmHead nn.Layer
}

// ConditionalGeneration is the task of predicting each next token of a text with a
// decoder that has other modules beside it, which see no gradient.
func ConditionalGeneration(c Config, w Wrapper, text hf.Text) *hf.TextTask {
	c.Liger = text.Liger
	m := New(c)
	model := &wrapped{Before: w.Before, LanguageModel: m, After: w.After}
	if w.Decoder != "" {
		model.Names = Names{"language_model": w.Decoder}
	}
	head := nn.NewLinear(c.Width, c.Vocab, c.HeadBias)
	if c.Tied {
		head.Weight = m.words.Weight
	}
	text.ScoreCap, text.ScoreScaled = c.ScoreCap, c.ScoreScaled
	net := &conditional{Model: model, LmHead: head}
	return hf.CausalLM(net, model, m.words, &net.LmHead, text)
}
