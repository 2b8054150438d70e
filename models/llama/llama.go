// Package llama implements transformers' Llama family of decoders as causal language models and classifiers. [Config]
// holds the differences from Llama: norms, projections, feed-forward layers, rotary embeddings. Linear layers are
// fields of type Layer, so that adapters can replace them.
package llama

import (
	"cmp"
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/tower"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// Model is LlamaModel.
type Model struct {
	nn.Module
	TorchNames
	EmbedTokens nn.Layer
	Layers      []*layer
	Norm        nn.Layer
	RotaryEmb   *rotary
	embedding   *nn.Embedding
	c           *Config
}

// New returns the model of a configuration.
func New(c Config) *Model {
	embedding := nn.NewEmbedding(c.Vocab+c.ExtraTokens, c.Width)
	m := &Model{TorchNames: c.Names, EmbedTokens: embedding, embedding: embedding, Norm: newNorm(&c, c.Width), c: &c}
	if !c.NoRotary && !c.Rotary.Own {
		m.RotaryEmb = newRotary(&c)
	}
	if c.EmbedScale == ByBuffer {
		embedding.EmbedScale = nn.NewBuffer(trace.F32)
	}
	m.Layers = lists.Make(c.Layers, func(i int64) *layer { return newLayer(&c, int(i)) })
	return m
}

// Call records the decoder's forward, for [hf.Decoder].
func (m *Model) Call(f *frame, ids, padding *tensor, text hf.Text) *tensor {
	g := f.CallFrame(ids, padding)
	embeds := g.Bind(g.Call(m.EmbedTokens, ids))
	return g.Return(m.runLayers(g, tower.DecoderInputs{Embeds: embeds}, padding, text))
}

// callWithEmbeddings runs the model on token embeddings, or on ids if layers have cross-attention to images.
func (m *Model) callWithEmbeddings(f *frame, ids *tensor, in tower.DecoderInputs, padding *tensor, t hf.Text) *tensor {
	args := []*tensor{in.Embeds, padding, in.Positions, in.ImageTokens, in.Full, in.Window}
	g := f.CallFrame(slices.Concat(args, in.Deepstack, in.Cross)...)
	if in.Embeds == nil {
		in.Embeds = g.Bind(g.Call(m.EmbedTokens, ids))
	}
	return g.Return(m.runLayers(g, in, padding, t))
}

// runLayers runs the layers on token embeddings, in the model's frame.
func (m *Model) runLayers(g *frame, seen tower.DecoderInputs, padding *tensor, text hf.Text) *tensor {
	embeds := seen.Embeds
	if m.c.EmbedScale == ByNumber {
		g.Set(&embeds, embeds.MulScalar())
	}
	positions := m.positionIDs(g, seen, embeds, text)
	full, window := seen.Full, seen.Window
	// transformers does not check masks with these arguments for packed sequences.
	if full == nil && (seen.Positions == nil || padding != nil || m.c.Eager) {
		full, window = m.attentionMasks(g, embeds, positions, padding, text.Packed)
	}
	blocks := m.blockMasks(g, embeds, positions, padding, text.Packed)
	x := g.Bind(embeds)
	g.Set(&x, x.Dropout(m.c.EmbedDropout, m.Training()))
	cos, sin := m.rotaryAngles(g, x, cmp.Or(seen.Positions, positions))
	given := positions
	if seen.Positions != nil { // layers get no positions of several axes
		given = nil
	}
	for i, l := range m.Layers {
		if m.c.CrossAttention.isSet(i) {
			if seen.Cross != nil {
				g.Set(&x, text.CallLayer(g, i, l, l.crossAttentionForward, []*tensor{x}, seen.Cross...))
			}
			continue
		}
		in := inputs{
			x: x, mask: full, positions: given, cos: cos[0], sin: sin[0], rows: padding,
			blocks: blocks[m.c.Windowed.isSet(i)],
		}
		if last := len(cos) - 1; m.c.Windowed.isSet(i) {
			in.mask, in.cos, in.sin = window, cos[last], sin[last]
		}
		attends, recurs := m.c.mixerKinds(i)
		if !attends {
			in.mask, in.blocks = nil, nil
		}
		if !recurs {
			in.rows = nil
		}
		g.Set(&x, l.callFromModel(g, i, in, seen.Cross, text))
		if i < len(seen.Deepstack) {
			g.Set(&x, seen.AddDeepstack(g, x, i))
		}
	}
	g.Set(&x, g.Call(m.Norm, x))
	if m.c.StateCap {
		hf.SoftCap(g, &x)
	}
	return x
}

// callFromModel calls layer i with the image states, which the model passes to every layer.
func (l *layer) callFromModel(f *frame, i int, in inputs, images []*tensor, text hf.Text) *tensor {
	forward := func(f *frame, args []*tensor) *tensor {
		own := inputs{x: args[0], mask: args[1], positions: args[2], cos: args[3], sin: args[4], rows: args[5]}
		own.blocks = args[6 : 6+len(in.blocks)]
		return layerStructures[l.c.Order].forward(l, f, own)
	}
	named := append([]*tensor{in.mask, in.positions, in.cos, in.sin, in.rows}, in.blocks...)
	return text.CallLayer(f, i, l, forward, []*tensor{in.x}, append(named, images...)...)
}

// positionIDs returns position ids [1, length]: positions of images, given ones, or computed ones.
func (m *Model) positionIDs(g *frame, seen tower.DecoderInputs, embeds *tensor, text hf.Text) *tensor {
	switch {
	case seen.Positions != nil:
		return g.Bind(seen.Positions.Select(0, 0))
	case text.Positions() != nil:
		return g.Bind(text.Positions())
	}
	positions := g.Bind(g.Tape().Arange(embeds.Size(1)).AddScalar())
	return g.Set(&positions, positions.Unsqueeze(0))
}

// rotaryAngles returns the cosines and sines for each kind of layers; nil if layers compute their own.
func (m *Model) rotaryAngles(f *frame, x, positions *tensor) (cos, sin []*tensor) {
	if m.RotaryEmb == nil {
		return []*tensor{nil}, []*tensor{nil}
	}
	for kind := range m.RotaryEmb.Kinds {
		a, b := m.RotaryEmb.call(f, kind, x, positions)
		if b != nil { // complex angles have no sines
			f.Bind(b)
		}
		cos, sin = append(cos, f.Bind(a)), append(sin, b)
	}
	return cos, sin
}

// attentionMasks returns the masks of full attention and of windows or chunks; nil if kernels or layers need none.
func (m *Model) attentionMasks(f *frame, embeds, positions, padding *tensor, packed hf.Packing) (full, part *tensor) {
	c := m.c
	if c.Flex {
		return nil, nil
	}
	if c.hasFullMask() {
		if full = m.fullMask(f, embeds, positions, padding, packed); full != nil {
			f.Bind(full)
		}
	}
	if c.hasWindowMask() {
		if part = m.windowMask(f, embeds, positions, padding, packed); part != nil {
			f.Bind(part)
		}
	}
	return full, part
}

// blockMasks returns the tensors of flex_attention's block masks, at true for windowed layers.
func (m *Model) blockMasks(f *frame, embeds, positions, padding *tensor, packed hf.Packing) map[bool][]*tensor {
	c := m.c
	if !c.Flex {
		return nil
	}
	blocks := map[bool][]*tensor{}
	if c.hasFullMask() {
		blocks[false] = f.BindAll(hf.FlexMask(f, embeds.Size(0), positions, padding, packed, false))
	}
	if c.hasWindowMask() {
		blocks[true] = f.BindAll(hf.FlexMask(f, embeds.Size(0), positions, padding, packed,
			c.Llama4.HasChunkedAttention))
	}
	return blocks
}

// hasFullMask reports whether the model creates a full attention mask, hasWindowMask one of a window or of chunks.
func (c *Config) hasFullMask() bool {
	return c.AlwaysFullMask || len(c.Windowed) == 0 || slices.Contains(c.Windowed, false)
}

func (c *Config) hasWindowMask() bool {
	return c.Llama4.HasChunkedAttention || c.AlwaysWindowMask || slices.Contains(c.Windowed, true)
}

func (m *Model) fullMask(f *frame, embeds, positions, padding *tensor, packed hf.Packing) *tensor {
	if m.c.Eager {
		return hf.EagerCausalMask(f, embeds, positions, padding, packed)
	}
	return hf.CausalMask(f, embeds.Size(0), positions, padding, packed)
}

func (m *Model) windowMask(f *frame, embeds, positions, padding *tensor, packed hf.Packing) *tensor {
	switch {
	case m.c.Eager && m.c.Llama4.HasChunkedAttention:
		return hf.EagerChunkMask(f, embeds, positions, padding, packed)
	case m.c.Eager:
		return hf.EagerWindowMask(f, embeds, positions, padding, packed)
	case m.c.Llama4.HasChunkedAttention:
		return hf.ChunkMask(f, embeds.Size(0), positions, padding, packed, m.c.Window)
	}
	return hf.WindowMask(f, embeds.Size(0), positions, padding, packed, m.c.Window)
}

// applyTraining sets the fields that the case's training options determine.
func (c *Config) applyTraining(text hf.Text) {
	c.Liger, c.Tiles, c.Context, c.Cache = text.Liger, text.Tiles, text.Context, text.Cache
	c.Experts.ExpertParallelism = text.Experts
}

// CausalLM returns the task of next-token prediction.
func CausalLM(c Config, text hf.Text) *hf.TextTask {
	c.applyTraining(text)
	m := New(c)
	text.SoftCap, text.ScaledLogits, text.FloatLogits = c.ScoreCap, c.ScoreScaled, c.ScoresFloat
	text.OwnLoss = c.OwnLoss
	task := hf.CausalLM(c.Names, m, m, m.embedding, m.newOutputLayer(), text)
	task.Attentions = m.promptAttentions()
	return task
}

// newOutputLayer returns the output layer, which can share the embedding's weight.
func (m *Model) newOutputLayer() *nn.Linear {
	head := nn.NewLinear(m.c.Width, m.c.Vocab, m.c.HeadBias)
	if m.c.Tied {
		head.Weight = m.embedding.Weight
	}
	return head
}

// Classification returns the task of sequence classification. padToken reports whether there is a padding token.
func Classification(c Config, classes hf.Classes, padToken bool, text hf.Text) *hf.TextTask {
	c.applyTraining(text)
	m := New(c)
	return hf.SequenceClassification(c.Names, m, m, m.embedding, c.Width, classes, padToken, text)
}

// tokenClassifier is LlamaForTokenClassification.
type tokenClassifier struct {
	nn.Module
	TorchNames
	Model   *Model
	Dropout *nn.Dropout
	Score   nn.Layer
}

// TokenClassification returns the task of token classification.
func TokenClassification(c Config, classes hf.Classes, dropout *nn.Dropout, text hf.Text) *hf.TextTask {
	c.applyTraining(text)
	m := New(c)
	net := &tokenClassifier{
		TorchNames: c.Names, Model: m, Dropout: dropout,
		Score: nn.NewLinear(c.Width, classes.Count, true),
	}
	head := hf.TokenHead{Dropout: dropout, Score: &net.Score, FloatLogits: true}
	return hf.TokenClassification(net, m.embedding, head, classes, text, func(f *frame, b hf.TextBatch) *tensor {
		return m.Call(f, b.IDs, b.Padding, text)
	})
}
