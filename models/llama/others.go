package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// falconHeads is FalconAttention._split_heads, with heads before tokens.
func (a *attention) falconHeads(f *frame, x *tensor) (q, k, v *tensor) {
	c, batch, length := a.c, x.Size(0), x.Size(1)
	all := f.Let(f.Call(a.QkvProj, x))
	g := f.FuncFrame(all)
	if c.Order != FalconTwice {
		heads := g.Let(all.View(batch, length, c.Heads+2, c.HeadSize))
		q = g.Let(heads.Slice(2, 0, c.Heads))
		k, v = g.Let(falconPick(heads, 2)), g.Let(falconPick(heads, 2))
	} else {
		groups := c.Heads / c.KVHeads
		heads := g.Let(all.View(batch, length, -1, groups+2, c.HeadSize))
		q = g.Let(heads.Slice(3, 0, groups))
		k, v = g.Let(falconPick(heads, 3)), g.Let(falconPick(heads, 3))
		g.Set(&k, k.Expand(q.Shape()...))
		g.Set(&v, v.Expand(q.Shape()...))
		q, k, v = g.Let(q.Flatten(2, 3)), g.Let(k.Flatten(2, 3)), g.Let(v.Flatten(2, 3))
	}
	g.End(q, k, v)
	f.LetAll([]*tensor{q, k, v})
	for _, y := range []**tensor{&q, &k, &v} {
		f.Set(y, (*y).Transpose(1, 2))
	}
	return q, k, v
}

// falconPick takes heads whose place a list of one has.
func falconPick(x *tensor, dim int) *tensor {
	at := make([]*tensor, dim+1)
	at[dim] = x.Tape().Filled("index", trace.I64, 1)
	return x.Index(at...)
}

// falconAttend is scaled_dot_product_attention as FalconAttention calls it, with a mask and
// heads of key and value as they are.
func (a *attention) falconAttend(f *frame, q, k, v, mask *tensor) *tensor {
	y := f.Let(q.ScaledDotProductAttention(k, v, trace.AttentionArgs{Mask: mask}))
	return f.Set(&y, y.Permute(0, 2, 1, 3))
}

// biasedAttention is MptAttention: eager, with biases by distance (ALiBi) in the place of
// rotary positions.
type biasedAttention struct {
	nn.Module
	QkvProj nn.Layer `torch:"Wqkv"`
	OutProj nn.Layer
	c       *Config
}

func newBiasedAttention(c *Config) *biasedAttention {
	return &biasedAttention{
		QkvProj: nn.NewLinear(c.Width, 3*c.Width, false),
		OutProj: nn.NewLinear(c.Width, c.Width, false), c: c,
	}
}

// call takes the biases [heads, 1, longest] in the place of cosines.
func (a *biasedAttention) call(f *frame, x *tensor, in inputs) (y, weights *tensor) {
	g := f.ModuleFrame(a, x, in.mask, in.cos)
	bias := in.cos
	batch, length := x.Size(0), x.Size(1)
	mixed := g.Let(g.Call(a.QkvProj, x))
	if a.c.Clipped {
		g.Set(&mixed, mixed.Clamp())
	}
	parts := g.LetAll(mixed.Chunk(3, 2))
	for i := range parts {
		g.Set(&parts[i], parts[i].Reshape(batch, length, a.c.Heads, a.c.HeadSize).Transpose(1, 2))
	}
	parts[1], parts[2] = a.c.Cache.Update(g, parts[1], parts[2])
	scores := g.Let(parts[0].Matmul(parts[1].Transpose(-1, -2)).MulScalar())
	g.Set(&bias, bias.Slice(2, bias.Size(2)-length, bias.Size(2)))
	g.Set(&scores, scores.Add(bias))
	g.Set(&scores, scores.MaskedFill(in.mask))
	weights = g.Let(scores.To(trace.F32).Softmax(-1).To(parts[2].DType()))
	g.Set(&weights, weights.Dropout(a.c.AttentionDropout, a.Training()))
	states := g.Let(weights.Matmul(parts[2]))
	g.Set(&states, states.Permute(0, 2, 1, 3).Contiguous().View(batch, length, -1))
	y = g.Let(g.Call(a.OutProj, states))
	return g.ReturnPair(y, weights)
}

// distances is build_mpt_alibi_tensor: a slope for each head times distances, [heads, 1,
// longest].
func (c *Config) distances(f *frame) *tensor {
	g := f.FuncFrame()
	t, heads := g.Tape(), int64(1)
	for heads < c.Heads {
		heads *= 2
	}
	far := g.Let(t.Filled("arange", trace.I32, c.ALiBi).View(1, 1, 1, c.ALiBi))
	base := g.Let(t.Arange(heads).To(trace.F32))
	g.Set(&base, base.MulScalar())
	slopes := g.Let(trace.ScalarPow(base).RDivScalar())
	g.Set(&slopes, slopes.View(1, heads, 1, 1))
	if heads != c.Heads {
		g.Set(&slopes, trace.Cat(1, slopes.SliceStep(1, 1, heads, 2), slopes.SliceStep(1, 0, heads, 2)).
			Slice(1, 0, c.Heads))
	}
	g.Set(&far, far.Mul(slopes))
	return g.Return(far.Squeeze(0))
}

// mpt is MptBlock.forward.
func (l *layer) mpt(f *frame, in inputs) *tensor {
	x := in.x
	seen := f.Let(f.Call(l.InputLayernorm, x))
	residual := f.Let(x)
	attended := f.Let(l.attend(f, seen, in))
	f.Set(&x, l.dropout(attended).Add(residual))
	f.Set(&seen, f.Call(l.PostAttentionLayernorm, x))
	f.Set(&residual, x)
	out := f.Let(f.Call(l.Mlp, seen))
	return f.Set(&out, l.dropout(out).Add(residual))
}

// invertedMask returns the causal mask as MPT takes it: of what is not seen.
func invertedMask(f *frame, embeds, positions, padding *tensor, packed hf.Packing) *tensor {
	return f.Let(hf.EagerCausalMask(f, embeds, positions, padding, packed).To(trace.Bool))
}

// tableAttention is GPTJAttention: each layer has sines and cosines of all positions, and
// turns queries and keys before their heads come before the tokens.
type tableAttention struct {
	nn.Module
	Names
	EmbedPositions             *nn.Buffer
	KProj, VProj, QProj, OProj nn.Layer
	c                          *Config
}

func newTableAttention(c *Config) *tableAttention {
	made := func() nn.Layer { return nn.NewLinear(c.Width, c.Width, false) }
	return &tableAttention{
		Names: c.Names, EmbedPositions: nn.NewBuffer(trace.F32, c.AngleTable, c.rotarySize()),
		KProj: made(), VProj: made(), QProj: made(), OProj: made(), c: c,
	}
}

func (a *tableAttention) call(f *frame, x *tensor, in inputs) (y, weights *tensor) {
	g := f.ModuleFrame(a, x, in.mask, in.positions)
	batch, length := x.Size(0), x.Size(1)
	q, k, v := g.Let(g.Call(a.QProj, x)), g.Let(g.Call(a.KProj, x)), g.Let(g.Call(a.VProj, x))
	g.Set(&q, q.View(batch, length, a.c.Heads, a.c.HeadSize))
	g.Set(&k, k.View(batch, length, a.c.Heads, a.c.HeadSize))
	g.Set(&v, v.View(batch, length, a.c.Heads, a.c.HeadSize).Permute(0, 2, 1, 3))
	table := g.Let(a.EmbedPositions.Repeat(1, 1, 1))
	places := g.Let(in.positions.Unsqueeze(-1).Repeat(1, 1, table.Size(-1)))
	angles := g.Let(table.Gather(places).To(k.DType()))
	halves := g.LetAll(angles.Split(angles.Size(-1)/2, -1))
	size := a.c.rotarySize()
	ks := a.c.Rotary.split(g, k, size)
	qs := a.c.Rotary.split(g, q, size)
	g.Set(&ks[0], rotateNeighbors(g, ks[0], halves[0], halves[1]))
	g.Set(&qs[0], rotateNeighbors(g, qs[0], halves[0], halves[1]))
	g.Set(&k, trace.Cat(-1, ks[0], ks[1]))
	g.Set(&q, trace.Cat(-1, qs[0], qs[1]))
	g.Set(&k, k.Permute(0, 2, 1, 3))
	g.Set(&q, q.Permute(0, 2, 1, 3))
	k, v = a.c.Cache.Update(g, k, v)
	if a.c.Eager {
		y, weights = a.attend(g, q, k, v, in.mask)
		g.LetEach(weights, y)
		g.Set(&y, y.Permute(0, 2, 1, 3).Contiguous().View(batch, length, -1))
	} else {
		y = g.Let(hf.Attention(g, q, k, v, nil, hf.AttentionOptions{Causal: true}))
		g.Set(&y, hf.Merge(y))
	}
	g.Set(&y, g.Call(a.OProj, y))
	g.Set(&y, y.Dropout(a.c.ResidualDropout, a.Training()))
	return g.ReturnPair(y, weights)
}

// attend is GPTJAttention._attn.
func (a *tableAttention) attend(f *frame, q, k, v, mask *tensor) (y, weights *tensor) {
	g := f.FuncFrame(q, k, v, mask)
	g.Set(&q, q.To(trace.F32))
	g.Set(&k, k.To(trace.F32))
	weights = g.Let(q.Matmul(k.Transpose(-1, -2)))
	g.Set(&weights, weights.DivScalar())
	g.Set(&weights, weights.Add(mask))
	g.Set(&weights, weights.Softmax(-1))
	g.Set(&weights, weights.To(v.DType()))
	g.Set(&weights, weights.Dropout(a.c.AttentionDropout, a.Training()))
	y = weights.Matmul(v)
	return g.ReturnPair(y, weights)
}

// rotateNeighbors is apply_rotary_pos_emb of GPT-J, over x [batch, length, heads, size].
func rotateNeighbors(f *frame, x, sin, cos *tensor) *tensor {
	g := f.FuncFrame(x, sin, cos)
	g.Set(&sin, sin.Unsqueeze(2).RepeatInterleave(2, 3))
	g.Set(&cos, cos.Unsqueeze(2).RepeatInterleave(2, 3))
	return g.Return(x.Mul(cos).Add(Rotary{Interleaved: true}.rotateHalf(g, x).Mul(sin)))
}
