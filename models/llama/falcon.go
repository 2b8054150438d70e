package llama

import "github.com/vprof/vprof/profiler/trace"

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
	f.Set(&y, y.Permute(0, 2, 1, 3))
	return y
}
