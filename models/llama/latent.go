package llama

import (
	"slices"

	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// Latent holds the sizes of multi-head latent attention, which projects the keys and values of all heads from one
// narrow vector. A Rank of zero means ordinary attention.
type Latent struct {
	// QueryRank is q_lora_rank, the width of the vector from which queries are projected; zero if they are projected
	// directly. Rank is kv_lora_rank.
	QueryRank, Rank int64
	// NoPE is qk_nope_head_dim, RoPE qk_rope_head_dim, and Value v_head_dim: the sizes of a head without and with
	// rotary embedding, and of a value head.
	NoPE, RoPE, Value int64
	// Interleaved rotates pairs of neighboring elements.
	Interleaved bool
}

// selfAttention is the attention module of a decoder layer. weights is nil unless attention is eager.
type selfAttention interface {
	call(f *frame, x *tensor, in inputs) (y, weights *tensor)
}

func newSelfAttention(c *Config, i int) selfAttention {
	if c.Latent.Rank > 0 {
		return newLatentAttention(c)
	}
	if c.Llama4.Enabled {
		return newLlama4Attention(c, i)
	}
	return newAttention(c, i)
}

// latentAttention is DeepseekV3Attention.
type latentAttention struct {
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

func newLatentAttention(c *Config) *latentAttention {
	s := c.Latent
	query := c.Heads * (s.NoPE + s.RoPE)
	l := &latentAttention{
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

func (l *latentAttention) call(f *frame, x *tensor, in inputs) (y, weights *tensor) {
	g := f.ModuleFrame(l, x, in.mask, in.positions, in.cos, in.sin)
	s, batch, length := l.c.Latent, x.Size(0), x.Size(1)
	q := g.Bind(l.projectQueries(g, x))
	g.Set(&q, hf.SplitHeads(q, s.NoPE+s.RoPE))
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
	key, value := l.expandKV(g, ks[0], ks[1])
	g.BindAll([]*tensor{key, value})
	o := hf.AttentionOptions{Causal: true, Dropout: hf.DropoutInMode(l, l.c.AttentionDropout)}
	y, weights = l.c.attendAndProject(g, query, key, value, in, o, l.OProj)
	return g.ReturnPair(y, weights)
}

func (l *latentAttention) projectQueries(f *frame, x *tensor) *tensor {
	if l.QProj != nil {
		return f.Call(l.QProj, x)
	}
	return f.Call(l.QBProj, f.Call(l.QALayernorm, f.Call(l.QAProj, x)))
}

// applyRotary rotates the rotary parts of query and key.
func (l *latentAttention) applyRotary(f *frame, q, k, cos, sin *tensor) (*tensor, *tensor) {
	switch {
	case l.c.Rotary.Complex:
		return rotateComplex(f, q, k, cos)
	case l.c.Latent.Interleaved:
		return rotatePairs(f, q, k, cos, sin)
	}
	return l.c.Rotary.rotate(f, q, k, cos, sin)
}

// rotatePairs records apply_rotary_pos_emb_interleave of transformers' DeepSeek V3.
func rotatePairs(f *frame, q, k, cos, sin *tensor) (*tensor, *tensor) {
	g := f.FunctionFrame(q, k, cos, sin)
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

// rotateComplex records apply_rotary_emb of DeepSeek V2, in which neighboring elements form complex numbers.
func rotateComplex(f *frame, q, k, angles *tensor) (*tensor, *tensor) {
	g := f.FunctionFrame(q, k, angles)
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

// expandKV records expand_kv of transformers' latent attention: keys and values of all heads from latent vectors
// [batch, 1, length, rank] and the rotated part of the keys.
func (l *latentAttention) expandKV(f *frame, x, turned *tensor) (key, value *tensor) {
	g := f.FunctionFrame(x, turned)
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
