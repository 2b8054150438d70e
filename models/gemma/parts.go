package gemma

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/liger"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// norm is Gemma4RMSNorm of transformers, which may have no weight.
type norm struct {
	nn.Module
	Weight *nn.Parameter
	liger  bool
}

func newNorm(c *Config, width int64) *norm {
	return &norm{Weight: nn.NewParameter(width), liger: c.Liger}
}

func (n *norm) Forward(f *frame, x *tensor) *tensor {
	if n.liger && n.Weight != nil {
		return liger.Norm{OutOfPlace: true}.RMSNorm(f, x, n.Weight.Tensor)
	}
	y := f.Bind(normalize(f, x.To(trace.F32)))
	if n.Weight != nil {
		f.Set(&y, y.Mul(n.Weight.To(trace.F32)))
	}
	return y.To(x.DType())
}

// normalize follows transformers' Gemma4RMSNorm._norm.
func normalize(f *frame, x *tensor) *tensor {
	g := f.FunctionFrame(x)
	squared := g.Bind(x.Pow(2).Mean(true, -1).AddScalar())
	return g.Return(x.Mul(squared.Pow(-0.5)))
}

// scaledEmbedding is Gemma4TextScaledWordEmbedding, or an adapter that has replaced it.
type scaledEmbedding struct {
	nn.Module
	Table nn.Layer `torch:""`
	table *nn.Embedding
}

func newScaledEmbedding(n, width int64) *scaledEmbedding {
	table := nn.NewEmbedding(n, width)
	table.EmbedScale = nn.NewBuffer(trace.F32)
	return &scaledEmbedding{Table: table, table: table}
}

func (s *scaledEmbedding) call(f *frame, ids *tensor) *tensor { return f.Call(s.Table, ids) }

// rotary is Gemma4TextRotaryEmbedding, for full and for sliding-window attention; nil if no layer has that kind.
type rotary struct {
	nn.Module
	Kinds []*hf.Frequencies `torch:""`
}

func newRotary(c *Config) *rotary {
	m := &rotary{Kinds: make([]*hf.Frequencies, 2)}
	for _, l := range c.Layers {
		m.Kinds[l.kind()] = hf.NewFrequencies(l.HeadSize)
	}
	return m
}

// call returns cosines and sines of positions [1, length] for a kind of layers, in the dtype of x.
func (m *rotary) call(f *frame, kind int, x, positions *tensor) (cos, sin *tensor) {
	g := f.ModuleFrame(m, x, positions)
	g.Tape().NoGrad(func() {
		freqs := g.Bind(positions.Unsqueeze(-1).To(trace.F32).Mul(m.Kinds[kind].InvFreq.Tensor))
		emb := g.Bind(trace.Cat(-1, freqs, freqs))
		cos = g.Bind(emb.Cos().MulScalar())
		sin = g.Bind(emb.Sin().MulScalar())
		cos, sin = cos.To(x.DType()), sin.To(x.DType())
	})
	return g.ReturnPair(cos, sin)
}

// applyRotary records apply_rotary_pos_emb of transformers' Gemma 4 over [batch, length, heads, size].
func applyRotary(f *frame, x, cos, sin *tensor) *tensor {
	g := f.FunctionFrame(x, cos, sin)
	g.Set(&cos, cos.Unsqueeze(2))
	g.Set(&sin, sin.Unsqueeze(2))
	return g.Return(x.Mul(cos).Add(hf.RotateHalf(g, x).Mul(sin)))
}

// attention is Gemma4TextAttention of transformers.
type attention struct {
	nn.Module
	QProj               nn.Layer
	QNorm, KNorm, VNorm *norm
	KProj, VProj, OProj nn.Layer
	c                   *Config
	l                   Layer
}

func newAttention(c *Config, l Layer) *attention {
	query, shared := c.Heads*l.HeadSize, l.KVHeads*l.HeadSize
	a := &attention{
		QProj: nn.NewLinear(c.Width, query, c.Bias), QNorm: newNorm(c, l.HeadSize),
		OProj: nn.NewLinear(query, c.Width, c.Bias), c: c, l: l,
	}
	if l.Shares {
		return a
	}
	a.KNorm, a.VNorm = newNorm(c, l.HeadSize), &norm{}
	a.KProj = nn.NewLinear(c.Width, shared, c.Bias)
	if !c.KeysAreValues || l.Slides {
		a.VProj = nn.NewLinear(c.Width, shared, c.Bias)
	}
	return a
}

// call returns the attention output for x [batch, length, width], and the attention weights if attention is eager.
func (a *attention) call(f *frame, x, mask, cos, sin *tensor, shared keysValues) (y, weights *tensor) {
	g := f.ModuleFrame(a, x, mask, cos, sin)
	q := g.Bind(a.projectHeads(g, a.QProj, x))
	g.Set(&q, g.Call(a.QNorm, q))
	g.Set(&q, applyRotary(g, q, cos, sin))
	g.Set(&q, q.Transpose(1, 2))
	var k, v *tensor
	if a.l.Shares {
		k, v = g.Bind(shared.key.Value()), g.Bind(shared.value.Value())
	} else {
		k, v = a.projectKeysValues(g, x, cos, sin)
		k, v = a.c.Cache.Update(g, k, v)
	}
	if a.l.Stores {
		shared.key.Fill(k)
		shared.value.Fill(v)
	}
	o := hf.AttentionOptions{
		Causal: true, Groups: q.Size(1) / k.Size(1),
		Dropout: hf.DropoutInMode(a, a.c.AttentionDropout),
	}
	y, weights = hf.Attend(g, q, k, v, mask, o, a.c.Eager)
	g.Set(&y, hf.MergeHeads(y))
	g.Set(&y, g.Call(a.OProj, y))
	return g.ReturnPair(y, weights)
}

// projectKeysValues computes keys and values [batch, heads, length, size].
func (a *attention) projectKeysValues(g *frame, x, cos, sin *tensor) (k, v *tensor) {
	k = g.Bind(a.projectHeads(g, a.KProj, x))
	v = k
	if a.VProj != nil {
		v = a.projectHeads(g, a.VProj, x)
	}
	g.Bind(v)
	g.Set(&k, g.Call(a.KNorm, k))
	g.Set(&k, applyRotary(g, k, cos, sin))
	g.Set(&k, k.Transpose(1, 2))
	g.Set(&v, g.Call(a.VNorm, v))
	g.Set(&v, v.Transpose(1, 2))
	return k, v
}

// projectHeads projects x to [batch, length, heads, size].
func (a *attention) projectHeads(f *frame, project nn.Layer, x *tensor) *tensor {
	return f.Call(project, x).View(x.Size(0), x.Size(1), -1, a.l.HeadSize)
}
