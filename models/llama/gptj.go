package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

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
	ks := a.c.Rotary.cut(g, k, size)
	qs := a.c.Rotary.cut(g, q, size)
	g.Set(&ks[0], turnNeighbors(g, ks[0], halves[0], halves[1]))
	g.Set(&qs[0], turnNeighbors(g, qs[0], halves[0], halves[1]))
	g.Set(&k, trace.Cat(-1, ks[0], ks[1]))
	g.Set(&q, trace.Cat(-1, qs[0], qs[1]))
	g.Set(&k, k.Permute(0, 2, 1, 3))
	g.Set(&q, q.Permute(0, 2, 1, 3))
	k, v = a.c.Cache.Update(g, k, v)
	if a.c.Eager {
		y, weights = a.attend(g, q, k, v, in.mask)
		g.Let(weights)
		g.Let(y)
		g.Set(&y, y.Permute(0, 2, 1, 3).Contiguous().View(batch, length, -1))
	} else {
		y = g.Let(hf.Attention(g, q, k, v, nil, hf.AttentionOptions{Causal: true}))
		g.Set(&y, hf.Merge(y))
	}
	g.Set(&y, g.Call(a.OProj, y))
	g.Set(&y, y.Dropout(a.c.ResidualDropout, a.Training()))
	g.End(y, weights)
	return y, weights
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
	g.End(y, weights)
	return y, weights
}

// turnNeighbors is apply_rotary_pos_emb of GPT-J, over x [batch, length, heads, size].
func turnNeighbors(f *frame, x, sin, cos *tensor) *tensor {
	g := f.FuncFrame(x, sin, cos)
	g.Set(&sin, sin.Unsqueeze(2).RepeatInterleave(2, 3))
	g.Set(&cos, cos.Unsqueeze(2).RepeatInterleave(2, 3))
	return g.Return(x.Mul(cos).Add(Rotary{Interleaved: true}.rotateHalf(g, x).Mul(sin)))
}
