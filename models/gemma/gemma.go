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

// Config has the fields of a decoder's configuration that affect memory.
type Config struct {
	Vocab, Width, Heads int64
	Layers              []Layer
	// Window is how many tokens the layers with a window see.
	Window     int64
	Activation string
	// Bias gives the projections of attention a bias.
	Bias             bool
	AttentionDropout float64
	// PerLayer is the width of the embeddings that every layer looks up besides the residual
	// stream, in a table of PerLayerVocab tokens; zero means none.
	PerLayer, PerLayerVocab int64
	// KeysAreValues has the layers with full attention take keys for values.
	KeysAreValues bool
	// Experts are next to the feed-forward half of every layer; a count of zero means that there are none.
	Experts Experts
	// ScoreCap bounds the logits by a tanh, Tied reports whether the output layer shares the weight of the embeddings.
	ScoreCap, Tied bool
	// Blocks has the model around the decoder mark what tokens see each other both ways,
	// which is none of a text, but makes masks.
	Blocks bool
	// Flash has FlashAttention serve the layers whose heads it takes; Liger has the kernels
	// of liger-kernel compute norms and feed-forward halves.
	Flash, Liger bool
	// Eager has scores computed and kept.
	Eager bool
	// Cache has the keys and values of all layers that make some; nil for none.
	Cache *hf.KVCache
}

// Layer holds the settings in which layers differ.
type Layer struct {
	Slides            bool
	HeadSize, KVHeads int64
	Inner             int64
	// Shares takes keys and values from an earlier layer; Stores marks the last layer of its kind that makes its own.
	Shares, Stores bool
}

// Experts is the size of the mixture next to a feed-forward half.
type Experts struct{ Count, PerToken, Inner int64 }

// decoderInputs are the inputs of a decoder: token embeddings [batch, length, width], embeddings of all layers [batch,
// length, layers, width], and, if made is set, the positions and masks that the surrounding model has computed.
type decoderInputs struct {
	embeds, perLayer *tensor
	made             bool
	positions        *tensor
	full, window     *tensor
}

// CausalLM returns the task of predicting each next token.
func CausalLM(c Config, text hf.Text) *hf.TextTask {
	c.Liger, c.Cache = text.Liger, text.Cache
	m := newGemma4(&c)
	text.SoftCap = c.ScoreCap
	return hf.CausalLM(nil, m, m, m.Rest.embed.table, head(&c, m), text)
}

// head returns the output layer.
func head(c *Config, m *gemma4) *nn.Linear {
	l := nn.NewLinear(c.Width, c.Vocab, false)
	if c.Tied {
		l.Weight = m.Rest.embed.table.Weight
	}
	return l
}

// textModel holds the modules that follow the layers.
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

// state holds the arguments of the layers besides hidden states.
type state struct {
	positions *tensor
	// of layers with full attention, and of layers with a window
	mask, cos, sin [2]*tensor
	shared         [2]keysValues
}

// keysValues are the keys and values that later layers of the same kind share.
type keysValues struct{ key, value *trace.Slot }

// masks computes positions and masks, unless the surrounding model has.
func (m *textModel) masks(g *frame, in decoderInputs, padding *tensor, text hf.Text) *state {
	s := &state{positions: in.positions, mask: [2]*tensor{in.full, in.window}}
	if !in.made {
		s.positions = positions(g, in.embeds)
		s.mask = m.c.masks(g, in.embeds, s.positions, padding, nil, text)
	}
	return s
}

// positions binds the positions of tokens.
func positions(g *frame, embeds *tensor) *tensor {
	p := g.Bind(g.Tape().Arange(embeds.Size(1)).AddScalar())
	return g.Set(&p, p.Unsqueeze(0))
}

// masks binds the masks of full attention and of a window, nil where the kernels need none.
// Blocks mark tokens that see each other both ways, nil for none.
func (c *Config) masks(g *frame, embeds, positions, padding, blocks *tensor, text hf.Text) (masks [2]*tensor) {
	for kind, window := range []int64{0, c.Window} {
		if c.Flash && c.flashTakes(kind) {
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

// flashTakes reports whether FlashAttention supports the width of the heads of a kind of layer.
func (c *Config) flashTakes(kind int) bool {
	const widest = 256
	return !slices.ContainsFunc(c.Layers, func(l Layer) bool { return l.kind() == kind && l.HeadSize > widest })
}

// angles computes the cosines and sines for both kinds of layers, and the slots for shared keys and values.
func (m *textModel) angles(g *frame, s *state, x *tensor) {
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

// kind returns 0 for full attention, 1 for a window.
func (l Layer) kind() int {
	if l.Slides {
		return 1
	}
	return 0
}

// keywordArguments returns the arguments that a layer of a kind is called with by name.
func (s *state) keywordArguments(kind int) []*tensor {
	out := []*tensor{s.mask[kind], s.positions, s.cos[kind], s.sin[kind]}
	for _, kv := range s.shared {
		if kv.key != nil {
			out = append(out, kv.key.Handle(), kv.value.Handle())
		}
	}
	return out
}

// perLayerInputs follows get_per_layer_inputs of Gemma 4: embeddings of all layers [batch, length, layers, width].
func (m *textModel) perLayerInputs(f *frame, ids *tensor) *tensor {
	g := f.FuncFrame(ids)
	return g.Return(m.EmbedTokensPerLayer.call(g, ids).Reshape(ids.Size(0), ids.Size(1), -1, m.c.PerLayer))
}

// projectPerLayer follows transformers' project_per_layer_inputs.
func (m *textModel) projectPerLayer(f *frame, embeds, perLayer *tensor) *tensor {
	g := f.FuncFrame(embeds, perLayer)
	p := g.Bind(g.Call(m.PerLayerModelProjection, embeds).MulScalar())
	g.Set(&p, p.Reshape(embeds.Size(0), embeds.Size(1), -1, m.c.PerLayer))
	g.Set(&p, g.Call(m.PerLayerProjectionNorm, p))
	return g.Return(p.Add(perLayer).MulScalar())
}
