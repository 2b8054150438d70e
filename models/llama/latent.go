package llama

import (
	"slices"

	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// Latent has the sizes of multi-head latent attention, in which keys and values of all heads are projected from one
// narrow vector. A Rank of zero means ordinary attention.
type Latent struct {
	// QueryRank is the width of the vector from which queries are projected, zero if they are projected directly; Rank
	// is the same for keys and values.
	QueryRank, Rank int64
	// NoPE is the number of elements of a query or key head without position (qk_nope_head_dim), RoPE the number of
	// rotated elements (qk_rope_head_dim), Value the width of a value head (v_head_dim).
	NoPE, RoPE, Value int64
	// Interleaved turns neighbors.
	Interleaved bool
}

// selfAttention is the attention of a decoder layer. If it is eager, it also returns its weights, which the layer's
// frame holds.
type selfAttention interface {
	call(f *frame, x *tensor, in inputs) (y, weights *tensor)
}

func newSelfAttention(c *Config, i int) selfAttention {
	if c.Latent.Rank > 0 {
		return newLatent(c)
	}
	if c.Llama4.Enabled {
		return newLlama4Attention(c, i)
	}
	return newAttention(c, i)
}

// latent is DeepseekV3Attention.
type latent struct {
	nn.Module
	QProj, QAProj  nn.Layer
	QALayernorm    nn.Layer `torch:"q_a_layernorm"`
	QBProj         nn.Layer
	KvAProjWithMqa nn.Layer
	KvALayernorm   nn.Layer `torch:"kv_a_layernorm"`
	KvBProj        nn.Layer
	OProj          nn.Layer
	c              *Config
}

func newLatent(c *Config) *latent {
	s := c.Latent
	query := c.Heads * (s.NoPE + s.RoPE)
	l := &latent{
		KvAProjWithMqa: nn.NewLinear(c.Width, s.Rank+s.RoPE, c.QKVBias), KvALayernorm: newNorm(c, s.Rank),
		KvBProj: nn.NewLinear(s.Rank, c.Heads*(s.NoPE+s.Value), false),
		OProj:   nn.NewLinear(c.Heads*s.Value, c.Width, c.OutputBias), c: c,
	}
	if s.QueryRank == 0 {
		l.QProj = nn.NewLinear(c.Width, query, false)
	} else {
		l.QAProj, l.QALayernorm, l.QBProj = nn.NewLinear(c.Width, s.QueryRank, c.QKVBias), newNorm(c, s.QueryRank),
			nn.NewLinear(s.QueryRank, query, false)
	}
	return l
}

func (l *latent) call(f *frame, x *tensor, in inputs) (y, weights *tensor) {
	g := f.ModuleFrame(l, x, in.mask, in.positions, in.cos, in.sin)
	s, batch, length := l.c.Latent, x.Size(0), x.Size(1)
	q := g.Bind(l.queries(g, x))
	g.Set(&q, hf.Heads(q, s.NoPE+s.RoPE))
	qs := g.BindAll(q.SplitSizes([]int64{s.NoPE, s.RoPE}, -1))
	compressed := g.Bind(g.Call(l.KvAProjWithMqa, x))
	ks := g.BindAll(compressed.SplitSizes([]int64{s.Rank, s.RoPE}, -1))
	g.Set(&ks[0], g.Call(l.KvALayernorm, ks[0]).View(batch, 1, length, s.Rank))
	g.Set(&ks[1], ks[1].View(batch, 1, length, s.RoPE))
	a, b := l.applyRotary(g, qs[1], ks[1], in.cos, in.sin)
	g.Set(&qs[1], a)
	g.Set(&ks[1], b)
	ks[0], ks[1] = l.c.Cache.Update(g, ks[0], ks[1])
	query := g.Bind(trace.Cat(-1, qs[0], qs[1]))
	key, value := l.expand(g, ks[0], ks[1])
	g.BindAll([]*tensor{key, value})
	o := hf.AttentionOptions{Causal: true, Dropout: hf.DropoutIn(l, l.c.AttentionDropout)}
	y, weights = l.c.attendAndProject(g, query, key, value, in, o, l.OProj)
	return g.ReturnPair(y, weights)
}

func (l *latent) queries(f *frame, x *tensor) *tensor {
	if l.QProj != nil {
		return f.Call(l.QProj, x)
	}
	return f.Call(l.QBProj, f.Call(l.QALayernorm, f.Call(l.QAProj, x)))
}

// applyRotary rotates the parts of query and key that encode positions.
func (l *latent) applyRotary(f *frame, q, k, cos, sin *tensor) (*tensor, *tensor) {
	switch {
	case l.c.Rotary.Complex:
		return rotateComplex(f, q, k, cos)
	case l.c.Latent.Interleaved:
		return rotatePairs(f, q, k, cos, sin)
	}
	return l.c.Rotary.rotate(f, q, k, cos, sin)
}

// rotatePairs follows apply_rotary_pos_emb_interleave.
func rotatePairs(f *frame, q, k, cos, sin *tensor) (*tensor, *tensor) {
	g := f.FuncFrame(q, k, cos, sin)
	half := cos.Size(-1) / 2
	g.Set(&cos, cos.Slice(-1, 0, half).Unsqueeze(1))
	g.Set(&sin, sin.Slice(-1, 0, half).Unsqueeze(1))
	neighbors := func(x *tensor) []*tensor {
		return g.BindAll([]*tensor{x.SliceStep(-1, 0, x.Size(-1), 2), x.SliceStep(-1, 1, x.Size(-1), 2)})
	}
	qs := neighbors(q)
	ks := neighbors(k)
	turned := func(x []*tensor) *tensor {
		return g.Bind(trace.Cat(-1, x[0].Mul(cos).Sub(x[1].Mul(sin)), x[1].Mul(cos).Add(x[0].Mul(sin))))
	}
	a := turned(qs)
	b := turned(ks)
	return g.ReturnPair(a, b)
}

// rotateComplex follows apply_rotary_emb of DeepSeek V2: neighbors are complex numbers.
func rotateComplex(f *frame, q, k, angles *tensor) (*tensor, *tensor) {
	g := f.FuncFrame(q, k, angles)
	qs := g.Bind(complexPairs(q))
	ks := g.Bind(complexPairs(k))
	g.Set(&angles, angles.Unsqueeze(1))
	a := g.Bind(qs.Mul(angles).ViewAsReal().Flatten(3, -1).To(q.DType()))
	b := g.Bind(ks.Mul(angles).ViewAsReal().Flatten(3, -1).To(k.DType()))
	return g.ReturnPair(a, b)
}

// complexPairs computes torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2)).
func complexPairs(x *tensor) *tensor {
	pairs := append(slices.Clone(x.Shape()[:x.NDim()-1]), -1, 2)
	return x.To(trace.F32).Reshape(pairs...).ViewAsComplex()
}

// expand follows expand_kv: keys and values of all heads, from vectors [batch, 1, length, rank] and the rotated part of
// keys.
func (l *latent) expand(f *frame, x, turned *tensor) (key, value *tensor) {
	g := f.FuncFrame(x, turned)
	s, batch, length := l.c.Latent, x.Size(0), x.Size(2)
	g.Set(&x, g.Call(l.KvBProj, x).View(batch, length, -1, s.NoPE+s.Value).Transpose(1, 2))
	parts := g.BindAll(x.SplitSizes([]int64{s.NoPE, s.Value}, -1))
	g.Set(&turned, turned.Expand(-1, l.c.Heads, -1, -1))
	key = g.Bind(g.Tape().Empty(x.DType(), batch, l.c.Heads, length, s.NoPE+s.RoPE))
	g.Discard(key.Slice(-1, 0, s.NoPE).CopyInPlace(parts[0]))
	g.Discard(key.Slice(-1, s.NoPE, s.NoPE+s.RoPE).CopyInPlace(turned))
	g.End(key, parts[1])
	return key, parts[1]
}
