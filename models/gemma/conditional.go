package gemma

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/llama"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// EmbedderSizes is the sizes of the embedders of Gemma 3n, which a step on text calls, too: how
// many tokens those for images and for sound have, and how wide they are.
type EmbedderSizes struct{ VisionVocab, VisionWidth, AudioVocab, AudioWidth int64 }

// wrapped is Gemma4Model, and those of Gemma 3n and of Gemma 4 Unified, trained on text.
type wrapped struct {
	nn.Module
	Before                  *nn.Parts `torch:""`
	LanguageModel           decoder
	After                   *nn.Parts `torch:""`
	EmbedVision, EmbedAudio *embedder
	c                       *Config
}

// ConditionalGeneration returns the task of predicting each next token of a text with a decoder
// among other modules. EmbedderSizes are zero but for Gemma 3n.
func ConditionalGeneration(c Config, w llama.Wrapper, s EmbedderSizes, text hf.Text) *hf.TextTask {
	c.Liger, c.Cache = text.Liger, text.Cache
	m := newDecoder(&c)
	model := &wrapped{Before: w.Before, LanguageModel: m, After: w.After, c: &c}
	if s.VisionVocab > 0 {
		model.EmbedVision, model.EmbedAudio = newEmbedder(&c, s.VisionVocab, s.VisionWidth),
			newEmbedder(&c, s.AudioVocab, s.AudioWidth)
	}
	text.ScoreCap = c.ScoreCap
	return hf.CausalLM(nil, model, model, m.inner().embed.table, head(&c, m), text)
}

// Call implements [hf.Decoder].
func (w *wrapped) Call(f *frame, ids, padding *tensor, text hf.Text) *tensor {
	g := f.ModuleFrame(w, ids, padding)
	var in decoderInputs
	if w.EmbedVision != nil {
		in = w.embedMultimodal(g, ids)
	} else {
		in = w.embedTokens(g, ids)
		w.prepareMasks(g, &in, padding, text)
	}
	return g.Return(w.callDecoder(g, in, padding, text))
}

// callDecoder runs the decoder.
func (w *wrapped) callDecoder(f *frame, in decoderInputs, padding *tensor, text hf.Text) *tensor {
	g := f.ModuleFrame(w.LanguageModel, in.embeds, in.perLayer, padding)
	return g.Return(w.LanguageModel.run(g, in, padding, text))
}

// embedTokens looks tokens up, but for those that stand for images and sound, of which a text
// has none.
func (w *wrapped) embedTokens(g *frame, ids *tensor) (in decoderInputs) {
	m := w.LanguageModel.inner()
	senses := g.LetAll([]*tensor{ids.EqScalar(), ids.EqScalar(), ids.EqScalar()})
	mask := g.Let(senses[0].And(senses[1]).And(senses[2]))
	own := g.Let(ids.Clone())
	g.Set(&own, trace.WhereScalar(mask, own))
	in.embeds = g.Let(m.embed.call(g, own))
	if w.c.PerLayer > 0 {
		weight := nn.Table(m.embed.Table).Weight
		pad := g.Let(weight.Select(0, 0))
		g.Let(trace.Where(mask.Unsqueeze(-1), pad.View(1, 1, -1), in.embeds))
		in.perLayer = g.Let(m.perLayerInputs(g, own))
	}
	return in
}

// prepareMasks makes positions and masks outside of the decoder.
func (w *wrapped) prepareMasks(g *frame, in *decoderInputs, padding *tensor, text hf.Text) {
	in.made, in.positions = true, positions(g, in.embeds)
	var blocks *tensor
	if w.c.Blocks && !w.c.Flash {
		blocks = g.Let(g.Tape().Filled("full", trace.I64, in.embeds.Size(0), in.embeds.Size(1)))
	}
	masks := w.c.masks(g, in.embeds, in.positions, padding, blocks, text)
	in.full, in.window = masks[0], masks[1]
}

// embedMultimodal returns what Gemma3nModel makes of ids: tokens that stand for images and sound are looked
// up in tables of their own, whether there are any or not.
func (w *wrapped) embedMultimodal(g *frame, ids *tensor) (in decoderInputs) {
	m := w.LanguageModel.(*gemma3n)
	in.embeds = g.Let(m.EmbedTokens.call(g, ids))
	in.perLayer = g.Let(m.perLayerInputs(g, ids))
	for i, e := range []*embedder{w.EmbedVision, w.EmbedAudio} {
		mask := ids.GtScalar()
		if i == 0 {
			mask = mask.And(ids.GtScalar())
		}
		g.Let(mask)
		own := g.Let(trace.WhereScalar(mask, ids))
		embeds := g.Let(g.Call(e, own))
		g.Set(&embeds, embeds.To(in.embeds.DType()))
		expanded := g.Let(mask.Unsqueeze(-1))
		g.Set(&in.embeds, trace.Where(expanded, embeds, in.embeds))
	}
	return in
}

// embedder is Gemma3nMultimodalEmbedder.
type embedder struct {
	nn.Module
	Embedding                            nn.Layer
	HardEmbeddingNorm, SoftEmbeddingNorm *norm
	EmbeddingProjection                  nn.Layer
	EmbeddingPostProjectionNorm          *norm
}

func newEmbedder(c *Config, vocab, width int64) *embedder {
	return &embedder{
		Embedding: nn.NewEmbedding(vocab, width), HardEmbeddingNorm: newNorm(c, width),
		SoftEmbeddingNorm:   newNorm(c, width),
		EmbeddingProjection: nn.NewLinear(width, c.Width, false), EmbeddingPostProjectionNorm: &norm{},
	}
}

func (e *embedder) Forward(f *frame, ids *tensor) *tensor {
	hard := f.Let(f.Call(e.Embedding, ids.AddScalar()))
	normed := f.Let(f.Call(e.HardEmbeddingNorm, hard))
	return f.Call(e.EmbeddingPostProjectionNorm, f.Let(f.Call(e.EmbeddingProjection, normed)))
}
