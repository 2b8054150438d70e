package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/tower"
)

// Wrapper holds a multimodal model's modules around its decoder, which a text-only step does not run, and how a step
// with images calls them.
type Wrapper struct {
	// Decoder is the name of the decoder module; empty means "language_model".
	Decoder       string
	Before, After *nn.NamedModule
	// WithHead reports whether the decoder module includes the output layer, as Llama 4's does.
	WithHead bool
	// Vision inserts image embeddings among the token embeddings; nil for a text-only step.
	Vision tower.Vision
}

// wrappedModel is a multimodal model without output layer (Mistral3Model). A text-only step calls only its decoder.
type wrappedModel struct {
	nn.Module
	TorchNames
	Before        *nn.NamedModule `torch:""`
	LanguageModel *Model
	After         *nn.NamedModule `torch:""`
	vision        tower.Vision
}

func (w *wrappedModel) Call(f *frame, ids, padding *tensor, text hf.Text) *tensor {
	g := f.ModuleFrame(w, ids, padding)
	if w.vision != nil {
		var embeds *tensor
		if w.vision.ReplacesTokens() {
			embeds = g.Bind(g.Call(w.LanguageModel.EmbedTokens, ids))
		}
		seen := w.vision.Encode(g, ids, padding, embeds, text)
		y := w.LanguageModel.callWithEmbeddings(g, ids, seen, padding, text)
		f.BindAll(seen.Kept)
		return g.Return(y)
	}
	return g.Return(w.LanguageModel.Call(g, ids, padding, text))
}

// ConditionalGeneration returns the task of next-token prediction with a multimodal model's decoder. The step does
// not call other modules, which get no gradient.
func ConditionalGeneration(c Config, w Wrapper, text hf.Text) *hf.TextTask {
	c.applyTraining(text)
	m := New(c)
	model := &wrappedModel{Before: w.Before, LanguageModel: m, After: w.After, vision: w.Vision}
	if w.Decoder != "" {
		model.TorchNames = TorchNames{"language_model": w.Decoder}
	}
	head := m.newOutputLayer()
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

// conditionalWithHead is Llama4ForConditionalGeneration, whose decoder includes the output layer.
type conditionalWithHead struct {
	nn.Module
	Before        *nn.NamedModule `torch:""`
	LanguageModel *languageModel
}

func (w *conditionalWithHead) Call(f *frame, ids, padding *tensor, text hf.Text) *tensor {
	return w.LanguageModel.Model.Call(f, ids, padding, text)
}

// causalLMWithHead returns the task of [ConditionalGeneration] for a decoder that includes the output layer.
func causalLMWithHead(w Wrapper, m *languageModel, text hf.Text) *hf.TextTask {
	net := &conditionalWithHead{Before: w.Before, LanguageModel: m}
	task := hf.CausalLMOf(net, net, m.Model.embedding, &m.LmHead, text)
	if !text.IsModelCall() {
		return task
	}
	task.Call = func(f *frame, b hf.TextBatch) *tensor {
		g := f.ModuleFrame(net, b.IDs, b.Padding, b.Labels)
		text.Begin(g)
		embeds := g.Bind(g.Call(m.Model.EmbedTokens, b.IDs)) // kept until the end, as the logits are
		logits := g.Bind(m.logits(g, b, embeds, text))
		return text.EndWithLoss(g, g.Bind(hf.CausalLMLoss(g, logits, b.Labels)), logits)
	}
	return task
}

func (m *languageModel) logits(f *frame, b hf.TextBatch, embeds *tensor, text hf.Text) *tensor {
	g := f.ModuleFrame(m, embeds, b.Padding)
	x := g.Bind(m.Model.callWithEmbeddings(g, nil, tower.DecoderInputs{Embeds: embeds}, b.Padding, text))
	return g.Return(g.Bind(g.Call(m.LmHead, x)))
}
