package nn

import "github.com/vprof/vprof/profiler/trace"

// MultiheadAttention is torch.nn.MultiheadAttention with one embedding size for query, key and value.
type MultiheadAttention struct {
	Module
	InProjWeight, InProjBias *Parameter
	OutProj                  *Linear
	heads                    int64
	dropout                  float64
	batchFirst               bool
}

// MultiheadOptions are the arguments of NewMultiheadAttention besides sizes.
type MultiheadOptions struct {
	// Dropout is the dropout probability of the attention weights.
	Dropout float64
	// BatchFirst means that tensors are [batch, length, embedding] instead of [length, batch, embedding].
	BatchFirst bool
}

// NewMultiheadAttention returns a layer with biases; heads must divide embed.
func NewMultiheadAttention(embed, heads int64, o MultiheadOptions) *MultiheadAttention {
	return &MultiheadAttention{
		InProjWeight: NewParameter(3*embed, embed), InProjBias: NewParameter(3 * embed),
		OutProj: NewLinear(embed, embed, true),
		heads:   heads, dropout: o.Dropout, batchFirst: o.BatchFirst,
	}
}

// MultiheadArgs are the arguments of MultiheadAttention.forward besides query, key and value, by PyTorch's names.
type MultiheadArgs struct {
	// KeyPaddingMask is [batch, keys]. AttnMask is [queries, keys] or [batch*heads, queries, keys]. Bool or additive.
	KeyPaddingMask, AttnMask *trace.Tensor
	// NeedWeights also returns the attention weights, averaged over heads, which is PyTorch's default.
	NeedWeights bool
	// IsCausal tells PyTorch that AttnMask is causal.
	IsCausal bool
}

// Attend records MultiheadAttention.forward; weights is nil unless requested. Unused results must be passed to
// [trace.Frame.Discard].
func (m *MultiheadAttention) Attend(f *trace.Frame, query, key, value *trace.Tensor, a MultiheadArgs) (y,
	weights *trace.Tensor,
) {
	g := f.ModuleFrame(m, query, key, value)
	a.KeyPaddingMask = canonicalMask(g, a.KeyPaddingMask, query)
	a.AttnMask = canonicalMask(g, a.AttnMask, query)
	switch {
	case m.usesFastPath(query, key, value, a):
		y, weights = query.NativeMultiheadAttention(m.weights(), a.NeedWeights)
	case m.batchFirst:
		query, key, value = swapBatchAndLength(g, query, key, value)
		y, weights = m.forward(g, query, key, value, a)
		y = y.Transpose(1, 0)
	default:
		y, weights = m.forward(g, query, key, value, a)
	}
	return g.ReturnPair(y, weights)
}

// swapBatchAndLength swaps the batch and length dimensions; arguments that are the same tensor stay the same.
func swapBatchAndLength(f *trace.Frame, query, key, value *trace.Tensor) (q, k, v *trace.Tensor) {
	q, k, v = query, key, value
	f.Set(&q, query.Transpose(1, 0))
	if key == query {
		f.Set(&k, q)
	} else {
		f.Set(&k, key.Transpose(1, 0))
	}
	switch value {
	case key:
		f.Set(&v, k)
	case query:
		f.Set(&v, q)
	default:
		f.Set(&v, value.Transpose(1, 0))
	}
	return q, k, v
}

// canonicalMask records _canonical_mask, which converts a bool mask to an additive one of 0 and -inf.
func canonicalMask(f *trace.Frame, mask, like *trace.Tensor) *trace.Tensor {
	if mask == nil || mask.DType() != trace.Bool {
		return mask
	}
	return f.Bind(f.Tape().Zeros(like.DType(), mask.Shape()...).MaskedFillInPlace(mask))
}

// forward records torch.nn.functional.multi_head_attention_forward over [length, batch, embedding].
func (m *MultiheadAttention) forward(f *trace.Frame, query, key, value *trace.Tensor, a MultiheadArgs) (y,
	weights *trace.Tensor,
) {
	g := f.FunctionFrame(query, key, value)
	length, batch, embed := query.Size(0), query.Size(1), query.Size(2)
	keys, size := key.Size(0), embed/m.heads
	mask := a.AttnMask
	if a.IsCausal && a.KeyPaddingMask == nil && !a.NeedWeights {
		mask = nil
	} else if a.KeyPaddingMask != nil {
		a.IsCausal = false
	}
	q, k, v := m.inProjection(g, query, key, value)
	if mask != nil && mask.NDim() == 2 {
		mask = g.Bind(mask.Unsqueeze(0))
	}
	g.Set(&q, q.View(length, batch*m.heads, size).Transpose(0, 1))
	g.Set(&k, k.View(keys, batch*m.heads, size).Transpose(0, 1))
	g.Set(&v, v.View(keys, batch*m.heads, size).Transpose(0, 1))
	if p := a.KeyPaddingMask; p != nil {
		padding := g.Bind(p.View(batch, 1, 1, keys).Expand(-1, m.heads, -1, -1).Reshape(batch*m.heads, 1, keys))
		if mask == nil {
			mask = padding
		} else {
			g.Set(&mask, mask.Add(padding))
		}
	}
	dropout := m.dropout
	if !m.Training() {
		dropout = 0
	}
	var out *trace.Tensor
	if a.NeedWeights {
		out, weights = m.attentionWithWeights(g, q, k, v, mask, dropout)
		out = g.Bind(out)
		g.Set(&out, out.Transpose(0, 1).Contiguous().View(length*batch, embed))
	} else {
		out = m.fusedAttention(g, batch, q, k, v,
			trace.AttentionArgs{Mask: mask, Dropout: dropout, IsCausal: a.IsCausal})
	}
	g.Set(&out, out.Linear(m.OutProj.Weight.TensorOrNil(), m.OutProj.Bias.TensorOrNil()))
	g.Set(&out, out.View(length, batch, embed))
	if weights != nil {
		g.Set(&weights, weights.View(batch, m.heads, length, keys))
		g.Set(&weights, weights.Mean(false, 1))
	}
	return g.ReturnPair(out, weights)
}

// fusedAttention records scaled_dot_product_attention over [batch*heads, length, size], which returns no weights. The
// result is [length*batch, embedding]. All variables stay bound in g.
func (m *MultiheadAttention) fusedAttention(g *trace.Frame, batch int64, q, k, v *trace.Tensor,
	a trace.AttentionArgs,
) *trace.Tensor {
	length, keys, size := q.Size(1), k.Size(1), q.Size(2)
	if a.Mask != nil {
		if a.Mask.Size(0) == 1 && a.Mask.NDim() == 3 {
			g.Set(&a.Mask, a.Mask.Unsqueeze(0))
		} else {
			g.Set(&a.Mask, a.Mask.View(batch, m.heads, -1, keys))
		}
	}
	g.Set(&q, q.View(batch, m.heads, length, size))
	g.Set(&k, k.View(batch, m.heads, keys, size))
	g.Set(&v, v.View(batch, m.heads, keys, size))
	out := g.Bind(q.ScaledDotProductAttention(k, v, a))
	if g.Tape().Rules().Attention.MultiheadFrees {
		g.Del(&q, &k, &v)
	}
	return g.Set(&out, out.Permute(2, 0, 1, 3).Contiguous().View(batch*length, m.heads*size))
}

// attentionWithWeights records attention by bmm, softmax and bmm, which also returns the weights. They stay bound in g.
func (m *MultiheadAttention) attentionWithWeights(g *trace.Frame, q, k, v, mask *trace.Tensor, dropout float64) (y,
	weights *trace.Tensor,
) {
	scaled := q.MulScalar()
	if !g.Tape().Rules().Attention.MultiheadFrees {
		g.Bind(scaled)
	}
	if mask != nil {
		weights = g.Bind(mask.BAddBMM(scaled, k.Transpose(-2, -1)))
	} else {
		weights = g.Bind(scaled.BMM(k.Transpose(-2, -1)))
	}
	g.Set(&weights, weights.Softmax(-1))
	if dropout > 0 {
		g.Set(&weights, weights.Dropout(dropout, true))
	}
	return weights.BMM(v), weights
}

// inProjection records _in_projection_packed; the results are bound in f.
func (m *MultiheadAttention) inProjection(f *trace.Frame, query, key, value *trace.Tensor) (q, k, v *trace.Tensor) {
	g := f.FunctionFrame(query, key, value)
	embed := query.Size(-1)
	weight, bias := m.InProjWeight.TensorOrNil(), m.InProjBias.TensorOrNil()
	switch {
	case key == value && query == key:
		packed := unpackProjection(g, query.Linear(weight, bias), 3)
		q, k, v = packed.Select(0, 0), packed.Select(0, 1), packed.Select(0, 2)
	case key == value:
		w, b := g.BindAll(weight.SplitSizes([]int64{embed, 2 * embed}, 0)),
			g.BindAll(bias.SplitSizes([]int64{embed, 2 * embed}, 0))
		q = g.Bind(query.Linear(w[0], b[0]))
		packed := unpackProjection(g, key.Linear(w[1], b[1]), 2)
		k, v = packed.Select(0, 0), packed.Select(0, 1)
	default:
		w, b := g.BindAll(weight.Chunk(3, 0)), g.BindAll(bias.Chunk(3, 0))
		q, k, v = query.Linear(w[0], b[0]), key.Linear(w[1], b[1]), value.Linear(w[2], b[2])
	}
	g.End(q, k, v)
	return f.Bind(q), f.Bind(k), f.Bind(v)
}

// unpackProjection splits the projection [L, B, n*E] into [n, L, B, E] (L length, B batch, E embedding).
func unpackProjection(f *trace.Frame, x *trace.Tensor, n int64) *trace.Tensor {
	x = f.Bind(x)
	l, b, e := x.Size(0), x.Size(1), x.Size(2)/n
	return f.Set(&x, x.View(l, b, n, e).Unsqueeze(0).Transpose(0, -2).Squeeze(-2).Contiguous())
}

// usesFastPath reports whether PyTorch computes the layer by one fused operator: for self-attention in evaluation mode
// if nothing requires a gradient. PyTorch does so with some masks, too, which is not recorded.
func (m *MultiheadAttention) usesFastPath(query, key, value *trace.Tensor, a MultiheadArgs) bool {
	t := query.Tape()
	_, autocast := t.Autocasting()
	return !m.Training() && m.batchFirst && query == key && key == value && query.NDim() == 3 &&
		a.KeyPaddingMask == nil && a.AttnMask == nil && m.heads%2 == 0 && !autocast &&
		query.DType() == m.InProjBias.TensorOrNil().DType() &&
		!t.RequiresGrad(query, m.InProjWeight.TensorOrNil(), m.InProjBias.TensorOrNil(), m.OutProj.Weight.TensorOrNil(),
			m.OutProj.Bias.TensorOrNil())
}

func (m *MultiheadAttention) weights() trace.MultiheadWeights {
	return trace.MultiheadWeights{
		Heads:    m.heads,
		InWeight: m.InProjWeight.TensorOrNil(), InBias: m.InProjBias.TensorOrNil(),
		OutWeight: m.OutProj.Weight.TensorOrNil(), OutBias: m.OutProj.Bias.TensorOrNil(),
	}
}
