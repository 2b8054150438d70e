// Package gemma has the decoder of Gemma 4 as in transformers, alone and inside the multimodal models, trained on text.
// Its layers may have their own token embeddings, and the last layers may reuse keys and values of earlier ones.
package gemma

import (
	"slices"

	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// Config has the fields of Gemma4TextConfig that affect memory.
type Config struct {
	Vocab, Width, Heads int64
	Layers              []Layer
	// Window is the number of tokens that sliding-window layers attend to.
	Window     int64
	Activation string
	// Bias reports whether the projections of attention have a bias.
	Bias             bool
	AttentionDropout float64
	// PerLayer is the width of the token embeddings that each layer adds to the residual stream, from a table of
	// PerLayerVocab tokens; zero means none.
	PerLayer, PerLayerVocab int64
	// KeysAreValues reports whether layers with full attention use the keys as values (attention_k_eq_v).
	KeysAreValues bool
	// Experts run besides the feed-forward part of every layer; a count of zero means none.
	Experts Experts
	// ScoreCap reports whether tanh limits the logits, Tied whether the output layer shares the embeddings' weight.
	ScoreCap, Tied bool
	// Blocks reports whether the multimodal model creates masks of tokens that attend to each other in both directions,
	// even for a text, which has no such tokens.
	Blocks bool
	// Flash uses FlashAttention in layers whose head size it supports. Liger uses liger-kernel's norms and MLPs.
	Flash, Liger bool
	// Eager uses eager attention, which keeps its attention weights.
	Eager bool
	// Cache holds the keys and values of all layers that compute some; nil for none.
	Cache *hf.KVCache
}

// Layer holds the settings in which layers differ.
type Layer struct {
	Slides            bool
	HeadSize, KVHeads int64
	Inner             int64
	// Shares reports whether the layer uses keys and values of an earlier layer. Stores marks each kind's last layer
	// that computes some.
	Shares, Stores bool
}

// Experts holds the sizes of the mixture of experts besides a feed-forward part.
type Experts struct{ Count, PerToken, Inner int64 }

// decoderInputs are a decoder's inputs: token embeddings [batch, length, width] and per-layer embeddings [batch,
// length, layers, width]. If made is true, the multimodal model has computed positions and masks, too.
type decoderInputs struct {
	embeds, perLayer *tensor
	made             bool
	positions        *tensor
	full, window     *tensor
}

// CausalLM returns the task of next-token prediction.
func CausalLM(c Config, text hf.Text) *hf.TextTask {
	c.Liger, c.Cache = text.Liger, text.Cache
	m := newGemma4(&c)
	text.SoftCap = c.ScoreCap
	return hf.CausalLM(nil, m, m, m.Rest.embed.table, outputLayer(&c, m), text)
}

// outputLayer returns the linear layer that computes logits.
func outputLayer(c *Config, m *gemma4) *nn.Linear {
	l := nn.NewLinear(c.Width, c.Vocab, false)
	if c.Tied {
		l.Weight = m.Rest.embed.table.Weight
	}
	return l
}

// textModel holds the modules of Gemma4TextModel that are registered after the layers.
type textModel struct {
	nn.Module
	RotaryEmb               *rotary
	EmbedTokensPerLayer     *scaledEmbedding
	PerLayerModelProjection nn.Layer
	PerLayerProjectionNorm  *norm
	embed                   *scaledEmbedding
	c                       *Config
}

func newTextModel(c *Config) *textModel {
	m := &textModel{embed: newScaledEmbedding(c.Vocab, c.Width), RotaryEmb: newRotary(c), c: c}
	if c.PerLayer > 0 {
		all := int64(len(c.Layers)) * c.PerLayer
		m.EmbedTokensPerLayer = newScaledEmbedding(c.PerLayerVocab, all)
		m.PerLayerModelProjection = nn.NewLinear(c.Width, all, false)
		m.PerLayerProjectionNorm = newNorm(c, c.PerLayer)
	}
	return m
}

// layerArguments holds the arguments of a decoder layer besides hidden states.
type layerArguments struct {
	positions *tensor
	// by kind of attention: full, sliding window
	mask, cos, sin [2]*tensor
	shared         [2]keysValues
}

// keysValues are the keys and values that later layers of the same kind share.
type keysValues struct{ key, value *trace.Slot }

// prepare computes positions and masks, unless the multimodal model has computed them.
func (m *textModel) prepare(g *frame, in decoderInputs, padding *tensor, text hf.Text) *layerArguments {
	s := &layerArguments{positions: in.positions, mask: [2]*tensor{in.full, in.window}}
	if !in.made {
		s.positions = positionIDs(g, in.embeds)
		s.mask = m.c.attentionMasks(g, in.embeds, s.positions, padding, nil, text)
	}
	return s
}

// positionIDs records the computation of position_ids.
func positionIDs(g *frame, embeds *tensor) *tensor {
	p := g.Bind(g.Tape().Arange(embeds.Size(1)).AddScalar())
	return g.Set(&p, p.Unsqueeze(0))
}

// attentionMasks records the masks of full and of sliding-window attention, nil where the kernels need none. blocks
// marks tokens that attend to each other in both directions, nil for none.
func (c *Config) attentionMasks(g *frame, embeds, positions, padding, blocks *tensor, text hf.Text) (masks [2]*tensor) {
	for kind, window := range []int64{0, c.Window} {
		if c.Flash && c.flashSupports(kind) {
			continue
		}
		switch {
		case !c.Eager:
			masks[kind] = hf.BlockMask(g, embeds.Size(0), positions, padding, blocks, text.Packed, window)
		case kind == 0:
			masks[kind] = hf.EagerCausalMask(g, embeds, positions, padding, text.Packed)
		default:
			masks[kind] = hf.EagerWindowMask(g, embeds, positions, padding, text.Packed)
		}
		if masks[kind] != nil {
			g.Bind(masks[kind])
		}
	}
	return masks
}

// flashSupports reports whether FlashAttention supports the head size of a kind of layer.
func (c *Config) flashSupports(kind int) bool {
	const widest = 256
	return !slices.ContainsFunc(c.Layers, func(l Layer) bool { return l.kind() == kind && l.HeadSize > widest })
}

// rotaryAngles computes cosines and sines for both kinds of layers, and creates the slots for shared keys and values.
func (m *textModel) rotaryAngles(g *frame, s *layerArguments, x *tensor) {
	for kind := range s.cos {
		if m.RotaryEmb.Kinds[kind] == nil {
			continue
		}
		cos, sin := m.RotaryEmb.call(g, kind, x, s.positions)
		s.cos[kind], s.sin[kind] = g.Bind(cos), g.Bind(sin)
	}
	for _, l := range m.c.Layers {
		if kind := l.kind(); l.Stores {
			s.shared[kind] = keysValues{g.NewSlot(), g.NewSlot()}
		}
	}
}

// kind returns 0 for full attention, 1 for sliding-window attention.
func (l Layer) kind() int {
	if l.Slides {
		return 1
	}
	return 0
}

// keywordArguments returns the keyword arguments of a call of a layer of a kind.
func (s *layerArguments) keywordArguments(kind int) []*tensor {
	out := []*tensor{s.mask[kind], s.positions, s.cos[kind], s.sin[kind]}
	for _, kv := range s.shared {
		if kv.key != nil {
			out = append(out, kv.key.Handle(), kv.value.Handle())
		}
	}
	return out
}

// perLayerInputs records Gemma4TextModel.get_per_layer_inputs: embeddings of all layers [batch, length, layers, width].
func (m *textModel) perLayerInputs(f *frame, ids *tensor) *tensor {
	g := f.FunctionFrame(ids)
	return g.Return(m.EmbedTokensPerLayer.call(g, ids).Reshape(ids.Size(0), ids.Size(1), -1, m.c.PerLayer))
}

// projectPerLayer records Gemma4TextModel.project_per_layer_inputs.
func (m *textModel) projectPerLayer(f *frame, embeds, perLayer *tensor) *tensor {
	g := f.FunctionFrame(embeds, perLayer)
	p := g.Bind(g.Call(m.PerLayerModelProjection, embeds).MulScalar())
	g.Set(&p, p.Reshape(embeds.Size(0), embeds.Size(1), -1, m.c.PerLayer))
	g.Set(&p, g.Call(m.PerLayerProjectionNorm, p))
	return g.Return(p.Add(perLayer).MulScalar())
}
