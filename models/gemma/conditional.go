package gemma

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/llama"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// multimodalModel is Gemma4Model or Gemma4UnifiedModel, trained on text.
type multimodalModel struct {
	nn.Module
	Before        *nn.NamedModule `torch:""`
	LanguageModel *gemma4
	After         *nn.NamedModule `torch:""`
	c             *Config
}

// ConditionalGeneration returns the task of next-token prediction on text with a multimodal model.
func ConditionalGeneration(c Config, w llama.Wrapper, text hf.Text) *hf.TextTask {
	c.Liger, c.Cache = text.Liger, text.Cache
	m := newGemma4(&c)
	model := &multimodalModel{Before: w.Before, LanguageModel: m, After: w.After, c: &c}
	text.SoftCap = c.ScoreCap
	return hf.CausalLM(nil, model, model, m.Rest.embed.table, outputLayer(&c, m), text)
}

func (w *multimodalModel) Call(f *frame, ids, padding *tensor, text hf.Text) *tensor {
	g := f.ModuleFrame(w, ids, padding)
	in := w.embedTokens(g, ids)
	w.prepareMasks(g, &in, padding, text)
	return g.Return(w.callDecoder(g, in, padding, text))
}

func (w *multimodalModel) callDecoder(f *frame, in decoderInputs, padding *tensor, text hf.Text) *tensor {
	g := f.ModuleFrame(w.LanguageModel, in.embeds, in.perLayer, padding)
	return g.Return(w.LanguageModel.run(g, in, padding, text))
}

// embedTokens looks up embeddings of tokens, with placeholders of images and sound replaced by the padding token.
func (w *multimodalModel) embedTokens(g *frame, ids *tensor) (in decoderInputs) {
	m := w.LanguageModel.Rest
	senses := g.BindAll([]*tensor{ids.EqScalar(), ids.EqScalar(), ids.EqScalar()})
	mask := g.Bind(senses[0].And(senses[1]).And(senses[2]))
	own := g.Bind(ids.Clone())
	g.Set(&own, trace.WhereScalar(mask, own))
	in.embeds = g.Bind(m.embed.call(g, own))
	if w.c.PerLayer > 0 {
		weight := nn.EmbeddingOf(m.embed.Table).Weight
		pad := g.Bind(weight.Select(0, 0))
		g.Bind(trace.Where(mask.Unsqueeze(-1), pad.View(1, 1, -1), in.embeds))
		in.perLayer = g.Bind(m.perLayerInputs(g, own))
	}
	return in
}

// prepareMasks computes position ids and masks in the forward of the multimodal model, outside of the decoder.
func (w *multimodalModel) prepareMasks(g *frame, in *decoderInputs, padding *tensor, text hf.Text) {
	in.made, in.positions = true, positionIDs(g, in.embeds)
	var blocks *tensor
	if w.c.Blocks && !w.c.Flash {
		blocks = g.Bind(g.Tape().Filled("full", trace.I64, in.embeds.Size(0), in.embeds.Size(1)))
	}
	masks := w.c.attentionMasks(g, in.embeds, in.positions, padding, blocks, text)
	in.full, in.window = masks[0], masks[1]
}
