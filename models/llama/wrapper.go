package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/tower"
)

// Wrapper holds the modules of a multimodal model besides its decoder, which a step on text alone never calls, and how
// a step on images calls them.
type Wrapper struct {
	// Decoder is the name of the decoder, "language_model" if empty.
	Decoder       string
	Before, After *nn.Parts
	// WithHead reports whether the decoder comes with its output layer, as Llama 4's does.
	WithHead bool
	// Vision puts images among the token embeddings; nil for a step on text alone.
	Vision tower.Vision
}

// wrapped is the model around a decoder, without the output layer, like Mistral3Model. With text alone it only calls
// the decoder.
type wrapped struct {
	nn.Module
	TorchNames
	Before        *nn.Parts `torch:""`
	LanguageModel *Model
	After         *nn.Parts `torch:""`
	vision        tower.Vision
}

// Call implements [hf.Decoder].
func (w *wrapped) Call(f *frame, ids, padding *tensor, text hf.Text) *tensor {
	g := f.ModuleFrame(w, ids, padding)
	if w.vision != nil {
		var embeds *tensor
		if w.vision.ReplacesTokens() {
			embeds = g.Bind(g.Call(w.LanguageModel.EmbedTokens, ids))
		}
		seen := w.vision.Encode(g, ids, padding, embeds, text)
		y := w.LanguageModel.run(g, ids, seen, padding, text)
		f.BindAll(seen.Kept)
		return g.Return(y)
	}
	return g.Return(w.LanguageModel.Call(g, ids, padding, text))
}

// ConditionalGeneration returns the task of predicting each next token of a text with the decoder of a multimodal
// model. The step does not call the other modules, so they get no gradient.
func ConditionalGeneration(c Config, w Wrapper, text hf.Text) *hf.TextTask {
	c.applyTraining(text)
	m := New(c)
	model := &wrapped{Before: w.Before, LanguageModel: m, After: w.After, vision: w.Vision}
	if w.Decoder != "" {
		model.TorchNames = TorchNames{"language_model": w.Decoder}
	}
	head := m.head()
	if w.WithHead {
		return causalLMWithHead(w, &languageModel{TorchNames: c.Names, Model: m, LmHead: head}, text)
	}
	text.SoftCap, text.ScaledLogits = c.ScoreCap, c.ScoreScaled
	task := hf.CausalLM(nil, model, model, m.embedding, head, text)
	if w.Vision != nil {
		task.Extra = w.Vision
	}
	return task
}

// languageModel is Llama4ForCausalLM.
type languageModel struct {
	nn.Module
	TorchNames
	Model  *Model
	LmHead nn.Layer
}

// conditionalWithHead is Llama4ForConditionalGeneration, around a model with its output layer.
type conditionalWithHead struct {
	nn.Module
	Before        *nn.Parts `torch:""`
	LanguageModel *languageModel
}

// Call implements [hf.Decoder].
func (w *conditionalWithHead) Call(f *frame, ids, padding *tensor, text hf.Text) *tensor {
	return w.LanguageModel.Model.Call(f, ids, padding, text)
}

// causalLMWithHead returns the task of [ConditionalGeneration] of a decoder with its output layer.
func causalLMWithHead(w Wrapper, m *languageModel, text hf.Text) *hf.TextTask {
	net := &conditionalWithHead{Before: w.Before, LanguageModel: m}
	task := hf.CausalLMOf(net, net, m.Model.embedding, &m.LmHead, text)
	if !text.IsModelCall() {
		return task
	}
	task.Call = func(f *frame, b hf.TextBatch) *tensor {
		g := f.ModuleFrame(net, b.IDs, b.Padding, b.Labels)
		text.Begin(g)
		embeds := g.Bind(g.Call(m.Model.EmbedTokens, b.IDs)) // kept to the end, as the scores are
		logits := g.Bind(m.scores(g, b, embeds, text))
		return text.EndWithLoss(g, g.Bind(hf.CausalLMLoss(g, logits, b.Labels)), logits)
	}
	return task
}

// scores returns the logits of a batch whose tokens have been embedded.
func (m *languageModel) scores(f *frame, b hf.TextBatch, embeds *tensor, text hf.Text) *tensor {
	g := f.ModuleFrame(m, embeds, b.Padding)
	x := g.Bind(m.Model.run(g, nil, tower.DecoderInputs{Embeds: embeds}, b.Padding, text))
	return g.Return(g.Bind(g.Call(m.LmHead, x)))
}
