// Package opt is OPT as in transformers, trained as a causal language model and as a classifier. Linear layers are
// fields of type Layer, so that adapters can replace them.
package opt

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// Config has the fields of OPTConfig that affect memory.
type Config struct {
	Vocab, Width, Layers, Heads, Inner, Positions int64
	// EmbedWidth is the width of token embeddings (word_embed_proj_dim); linear layers project it to Width and back.
	EmbedWidth                int64
	Dropout, AttentionDropout float64
	// Activation is the name of an activation function, see [hf.Activations].
	Activation string
	// NormLast has norms after attention and feed-forward part, as opt-350m does, instead of before. NoFinalNorm leaves
	// out the final norm.
	NormLast, NoFinalNorm bool
	// Bias reports whether linear layers have biases, PlainNorms whether norms have no weights.
	Bias, PlainNorms bool
	Untied           bool
	Eager            bool
	// Cache holds the keys and values of all layers; nil for none.
	Cache *hf.KVCache
}

func (c *Config) norm() nn.Layer {
	n := nn.NewLayerNorm(c.Width)
	if c.PlainNorms {
		n.Weight, n.Bias = nil, nil
	}
	return n
}

// attention is OPTAttention.
type attention struct {
	nn.Module
	KProj, VProj, QProj, OutProj nn.Layer
	c                            *Config
}

func newAttention(c *Config) *attention {
	linear := func() nn.Layer { return nn.NewLinear(c.Width, c.Width, c.Bias) }
	return &attention{KProj: linear(), VProj: linear(), QProj: linear(), OutProj: linear(), c: c}
}

func (a *attention) call(f *frame, x, mask *tensor) (y, weights *tensor) {
	g := f.ModuleFrame(a, x, mask)
	size := a.c.Width / a.c.Heads
	q := g.Bind(g.Call(a.QProj, x).MulScalar())
	g.Set(&q, hf.SplitHeads(q, size))
	k, v := g.Bind(g.Call(a.KProj, x)), g.Bind(g.Call(a.VProj, x))
	g.Set(&k, hf.SplitHeads(k, size))
	g.Set(&v, hf.SplitHeads(v, size))
	k, v = a.c.Cache.Update(g, k, v)
	o := hf.AttentionOptions{Causal: true, Dropout: hf.DropoutInMode(a, a.c.AttentionDropout)}
	if a.c.Eager && !f.Tape().Rules().Libraries.PlainScores {
		y, weights = clampedAttention(g, q, k, v, mask, o.Dropout)
		g.BindAll([]*tensor{y, weights})
	} else {
		y, weights = hf.Attend(g, q, k, v, mask, o, a.c.Eager)
	}
	g.Set(&y, hf.MergeHeads(y))
	g.Set(&y, g.Call(a.OutProj, y))
	return g.ReturnPair(y, weights)
}

// clampedAttention records eager attention of OPTAttention before transformers 4.50. It clamps masked attention scores
// to the smallest number of their dtype and keeps them; backward compares them twice again.
func clampedAttention(f *frame, q, k, v, mask *tensor, dropout float64) (y, weights *tensor) {
	g := f.FunctionFrame(q, k, v, mask)
	weights = g.Bind(q.Matmul(k.Transpose(2, 3)).Add(mask))
	g.Set(&weights, weights.Maximum(g.Bind(g.Tape().Full(weights.DType()))))
	if weights.DType() == trace.F16 {
		g.Set(&weights, weights.SoftmaxTo(-1, trace.F32).To(trace.F16))
	} else {
		g.Set(&weights, weights.Softmax(-1))
	}
	probabilities := g.Bind(weights.Dropout(dropout, dropout > 0))
	y = g.Bind(probabilities.Matmul(v))
	return g.ReturnPair(g.Set(&y, y.Transpose(1, 2)), weights)
}

type layer struct {
	nn.Module
	SelfAttn          *attention
	ActivationFn      *nn.FuncLayer
	SelfAttnLayerNorm nn.Layer
	Fc1, Fc2          nn.Layer
	FinalLayerNorm    nn.Layer
	c                 *Config
}

func newLayer(c *Config) *layer {
	return &layer{
		SelfAttn: newAttention(c), ActivationFn: hf.Activation(c.Activation), SelfAttnLayerNorm: c.norm(),
		Fc1: nn.NewLinear(c.Width, c.Inner, c.Bias), Fc2: nn.NewLinear(c.Inner, c.Width, c.Bias),
		FinalLayerNorm: c.norm(), c: c,
	}
}

// forward records the layer's forward; args are hidden states and a mask.
func (l *layer) forward(f *frame, args []*tensor) *tensor {
	x, mask := args[0], args[1]
	first := !l.c.NormLast
	norm := func(n nn.Layer, here bool) {
		if here {
			f.Set(&x, f.Call(n, x))
		}
	}
	residual := f.Bind(x)
	norm(l.SelfAttnLayerNorm, first)
	attended, weights := l.SelfAttn.call(f, x, mask)
	f.Set(&x, attended)
	f.BindEach(weights)
	f.Set(&x, x.Dropout(l.c.Dropout, l.Training()))
	f.Set(&x, residual.Add(x))
	norm(l.SelfAttnLayerNorm, !first)
	shape := x.Shape()
	f.Set(&x, x.Reshape(-1, x.Size(-1)))
	f.Set(&residual, x)
	norm(l.FinalLayerNorm, first)
	f.Pass(&x, l.Fc1, l.ActivationFn, l.Fc2)
	f.Set(&x, x.Dropout(l.c.Dropout, l.Training()))
	f.Set(&x, residual.Add(x).View(shape...))
	norm(l.FinalLayerNorm, !first)
	return x
}

// packingOf returns how sequences are packed, for masks. The model passes a padding mask of its own, and releases that
// do not skip masks then ignore packing.
func packingOf(f *frame, text hf.Text) hf.Packing {
	if !f.Tape().Rules().Libraries.SkipsMasks {
		return hf.UncheckedPacking
	}
	return text.Packed.WithoutPositions()
}

// Model is OPTDecoder.
type Model struct {
	nn.Module
	EmbedTokens           nn.Layer
	EmbedPositions        *nn.Embedding
	ProjectOut, ProjectIn nn.Layer
	FinalLayerNorm        nn.Layer
	Layers                []*layer
	embedding             *nn.Embedding // EmbedTokens unless an adapter wraps it
	c                     *Config
}

// New returns the modules of OPTDecoder.
func New(c Config) *Model {
	const offset = 2
	embedding := nn.NewEmbedding(c.Vocab, c.EmbedWidth)
	m := &Model{
		EmbedTokens: embedding, embedding: embedding, c: &c,
		EmbedPositions: nn.NewEmbedding(c.Positions+offset, c.Width),
	}
	if c.EmbedWidth != c.Width {
		m.ProjectOut = nn.NewLinear(c.Width, c.EmbedWidth, false)
		m.ProjectIn = nn.NewLinear(c.EmbedWidth, c.Width, false)
	}
	if !c.NormLast && !c.NoFinalNorm {
		m.FinalLayerNorm = c.norm()
	}
	m.Layers = lists.Make(c.Layers, func(int64) *layer { return newLayer(&c) })
	return m
}

// Call records OPTDecoder.forward, for [hf.Decoder].
func (m *Model) Call(f *frame, ids, padding *tensor, text hf.Text) *tensor {
	g := f.CallFrame(ids, padding)
	embeds := g.Bind(g.Call(m.EmbedTokens, ids))
	seen := padding
	if seen == nil {
		seen = g.Bind(g.Tape().Filled("ones", trace.F32, ids.Size(0), ids.Size(1)))
	}
	positions := g.Bind(seen.CumSum(1))
	g.Set(&positions, positions.Mul(seen).AddScalar().To(trace.I64))
	// Masks do not depend on positions, and so not on packed sequences.
	var mask *tensor
	if m.c.Eager {
		mask = g.Bind(hf.EagerCausalMask(g, embeds, positions, padding, text.Packed.WithoutPositions()))
	} else if mask = hf.CausalMask(g, ids.Size(0), positions, padding, packingOf(g, text)); mask != nil {
		g.Bind(mask)
	}
	positionEmbeds := g.Bind(g.Call(m.EmbedPositions, positions.AddScalar()))
	if m.ProjectIn != nil {
		g.Set(&embeds, g.Call(m.ProjectIn, embeds))
	}
	x := g.Bind(embeds.Add(positionEmbeds))
	for i, l := range m.Layers {
		g.Set(&x, text.CallLayer(g, i, l, l.forward, []*tensor{x}, mask, positions))
	}
	if m.FinalLayerNorm != nil {
		g.Set(&x, g.Call(m.FinalLayerNorm, x))
	}
	if m.ProjectOut != nil {
		g.Set(&x, g.Call(m.ProjectOut, x))
	}
	return g.Return(x)
}

// body is OPTModel.
type body struct {
	nn.Module
	Decoder *Model
}

// CausalLM returns the task of next-token prediction.
func CausalLM(c Config, text hf.Text) *hf.TextTask {
	c.Cache = text.Cache
	text.OwnLoss = hf.ModelLoss{Until: trace.SharedByMistral, Unconverted: true}
	m := New(c)
	head := nn.NewLinear(c.EmbedWidth, c.Vocab, false)
	if !c.Untied {
		head.Weight = m.embedding.Weight
	}
	return hf.CausalLM(nil, &body{Decoder: m}, m, m.embedding, head, text)
}

// Classification returns the sequence classification task. padToken: the configuration has a padding token.
func Classification(c Config, classes hf.Classes, padToken bool, text hf.Text) *hf.TextTask {
	c.Cache = text.Cache
	m := New(c)
	return hf.SequenceClassification(nil, &body{Decoder: m}, m, m.embedding, c.EmbedWidth, classes, padToken, text)
}
