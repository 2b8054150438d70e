package trace

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
)

// AttentionArgs are the optional arguments of scaled_dot_product_attention, under their PyTorch names.
type AttentionArgs struct {
	// Mask is attn_mask: of type Bool, or added to the attention scores; nil for none.
	Mask *Tensor
	// Dropout is dropout_p.
	Dropout float64
	// IsCausal is is_causal: a query attends only to keys up to its own position.
	IsCausal bool
	// EnableGQA lets several heads of the query share one of key and value.
	EnableGQA bool
}

// ScaledDotProductAttention records torch.nn.functional.scaled_dot_product_attention(q, k, v, ...) over tensors [batch,
// heads, length, head size]. The kernel and the saved tensors depend on the recording's GPU, as in PyTorch.
func (q *Tensor) ScaledDotProductAttention(k, v *Tensor, a AttentionArgs) *Tensor {
	c := q.tape.Begin("scaled_dot_product_attention", q, k, v, a.Mask)
	c.CastToLower(&q, &k, &v, &a.Mask)
	return c.End(q.attention(k, v, a))
}

func (q *Tensor) attention(k, v *Tensor, a AttentionArgs) *Tensor {
	c := q.tape.Begin("scaled_dot_product_attention", q, k, v, a.Mask)
	backend, why := c.t.attentionBackend(q, k, v, a)
	c.t.facts.Attention = lists.Union(c.t.facts.Attention,
		Attention{attentionNames[backend], q.dtype, q.Size(-1), a.Mask != nil, why})
	if a.Mask != nil {
		a.Mask = c.Bind(a.Mask.additiveMask(q.dtype))
	}
	switch backend {
	case cudnnAttention:
		return c.End(q.cudnnAttention(k, v, a))
	case flashAttention:
		qp, kp, vp := c.Bind(q.padLastDim()), c.Bind(k.padLastDim()), c.Bind(v.padLastDim())
		y := qp.flashAttention(kp, vp, a)
		if d := q.Size(-1); y.Size(-1) != d {
			return c.End(y.Slice(-1, 0, d))
		}
		return c.End(y)
	case efficientAttention:
		if a.Mask != nil {
			c.Set(&a.Mask, a.Mask.alignMask(q, k))
		}
		return c.End(q.efficientAttention(k, v, a))
	}
	return c.End(q.mathAttention(k, v, a))
}

// additiveMask converts a boolean mask to an additive one: 0 or -inf.
func (m *Tensor) additiveMask(d DType) *Tensor {
	if m.dtype != Bool {
		return m
	}
	c := m.tape.Begin("convert_boolean_attn_mask", m)
	return c.End(whereScalar("where_ScalarSelf", m, m.tape.ScalarTensor(d)))
}

// maskAlignment is the number of elements of which a mask's strides must be a multiple in memory-efficient kernels.
const maskAlignment = 8

// alignMask pads the rows of a mask as the memory-efficient kernels require, and broadcasts it (preprocess_mask).
func (m *Tensor) alignMask(q, k *Tensor) *Tensor {
	c := m.tape.Begin("preprocess_mask", m)
	x := c.Bind(m)
	for _, s := range m.strides[:len(m.strides)-1] {
		if s%maskAlignment != 0 {
			n := m.Size(-1)
			c.Set(&x, m.PadConstant([]int64{0, maskAlignment - n%maskAlignment}).Slice(-1, 0, n))
			break
		}
	}
	return c.End(x.Expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2]))
}

// padLastDim pads the head size to a multiple of eight (pad_last_dim).
func (x *Tensor) padLastDim() *Tensor {
	if over := x.Size(-1) % 8; over != 0 {
		return x.PadConstant([]int64{0, 8 - over})
	}
	return x
}

// mathAttention records _scaled_dot_product_attention_math: ordinary operators, in fp32 for every type of the inputs.
func (q *Tensor) mathAttention(k, v *Tensor, a AttentionArgs) *Tensor {
	c := q.tape.Begin("_scaled_dot_product_attention_math", q, k, v, a.Mask)
	from := q.dtype
	full := func(x *Tensor) *Tensor {
		if x.dtype.IsHalf() {
			return x.AsType(F32)
		}
		return x
	}
	q, k, v = c.Bind(full(q)), c.Bind(full(k)), c.Bind(full(v))
	place := len(c.t.locals) // of attn_mask, which is set later
	query := c.Bind(q.MulScalar())
	mask := a.Mask
	if a.IsCausal {
		mask = c.Bind(c.t.Full(Bool, q.Size(-2), k.Size(-2)).Tril())
		c.Set(&mask, mask.additiveMask(q.dtype))
		c.t.locals[place], c.t.locals[place+1] = c.t.locals[place+1], c.t.locals[place]
	}
	if a.EnableGQA && q.shape[len(q.shape)-3] != k.shape[len(k.shape)-3] {
		groups := q.Size(-3) / k.Size(-3)
		k, v = k.repeatHeads(groups), v.repeatHeads(groups)
		c.BindAll([]*Tensor{k, v})
	}
	scores := c.Bind(query.MatmulUncast(k.Transpose(-2, -1).MulScalar()))
	if mask != nil {
		scores.AddInPlace(mask)
		c.EndStatement()
	}
	c.Set(&scores, scores.safeSoftmax())
	if a.Dropout > 0 {
		c.Set(&scores, scores.dropout(a.Dropout, true))
	}
	weights := scores.AsType(from) // the second result, which is not used
	y := scores.MatmulUncast(v).AsType(from)
	return c.EndAll(y, weights)[0]
}

// repeatHeads records repeat_interleave(n, -3).
func (x *Tensor) repeatHeads(n int64) *Tensor {
	c := x.tape.Begin("repeat_interleave", x)
	d := len(x.shape) - 3
	shape := append([]int64(nil), x.shape...)
	shape = append(shape[:d+1:d+1], append([]int64{n}, x.shape[d+1:]...)...)
	flat := append([]int64(nil), x.shape...)
	flat[d] *= n
	wide := c.Bind(x.Unsqueeze(d + 1))
	c.Set(&wide, wide.Expand(shape...))
	return c.End(wide.CloneContiguous().View(flat...))
}

// safeSoftmax records _safe_softmax over the last dimension. Entirely masked rows become zero, in place.
func (x *Tensor) safeSoftmax() *Tensor {
	c := x.tape.Begin("_safe_softmax", x)
	y := c.Bind(x.softmax(&opSoftmax, x.dtype))
	masked := c.Bind(c.t.Map("isneginf", Bool, 1, x))
	rows := c.Bind(masked.reduce(reduction{op: "all", out: Bool, accSize: 1}, []int{-1}, true))
	zero := c.Bind(c.t.ScalarTensor(y.dtype))
	c.t.LaunchElementwise(y, 1, y, rows, zero)
	return c.End(y)
}

// launchAttention records an attention kernel that computes the given number of matrix products (passes).
func (t *Tape) launchAttention(q, k *Tensor, causal bool, passes int64, writes, reads []*Tensor) {
	p := program.Product{M: q.shape[2], N: k.shape[2], K: q.shape[3], Batch: q.shape[0] * q.shape[1]}
	flops := 2 * passes * p.Batch * p.M * p.N * p.K
	if causal {
		flops /= 2
	}
	op := t.Launch(program.Attention, flops, writes, reads)
	t.setProduct(op, p)
	t.useTF32(op, true) // CUTLASS's kernels of fp32 attention run on tensor cores, whatever torch.backends says
}

// MultiheadWeights are the parameters of multi-head attention: the projections of query, key and value, and of the
// output.
type MultiheadWeights struct {
	Heads              int64
	InWeight, InBias   *Tensor
	OutWeight, OutBias *Tensor
}

// NativeMultiheadAttention records torch._native_multi_head_attention of x [batch, length, embedding] with itself.
// nn.MultiheadAttention calls it in evaluation if nothing needs a gradient. weights is nil unless needWeights is set.
func (x *Tensor) NativeMultiheadAttention(w MultiheadWeights, needWeights bool) (y, weights *Tensor) {
	c := x.tape.Begin("_native_multi_head_attention", x)
	batch, length, embed := x.shape[0], x.shape[1], x.shape[2]
	size := embed / w.Heads
	heads := func(z *Tensor) *Tensor { return c.Bind(z.View(batch, length, w.Heads, size).Transpose(1, 2)) }
	if size%8 == 0 && !needWeights {
		q := heads(x)
		if backend, _ := c.t.attentionBackend(q, q, q, AttentionArgs{}); backend != mathAttention {
			qkv := c.Bind(x.LinearUncast(w.InWeight, w.InBias))
			split := func(i int64) *Tensor { return heads(qkv.Slice(-1, i*embed, (i+1)*embed)) }
			out := c.Bind(split(0).attention(split(1), split(2), AttentionArgs{}))
			past := c.Bind(out.Transpose(1, 2).AsShape([]int64{batch, length, embed}))
			return c.End(past.LinearUncast(w.OutWeight, w.OutBias)), nil
		}
	}
	qkv := c.Bind(x.MatmulUncast(w.InWeight.T()))
	packed := c.Bind(c.t.Alloc(x.dtype, 3, batch, w.Heads, length, size)) // _transform_bias_rescale_qkv
	c.t.LaunchElementwise(packed, 2, qkv, w.InBias)
	c.Drop(qkv)
	scores := c.Bind(c.t.Alloc(x.dtype, batch, w.Heads, length, length))
	c.t.UseBLAS()
	c.t.LaunchGEMM(scores, batch*w.Heads, length, length, size, packed)
	c.t.Launch(program.Softmax, 5*scores.numel, []*Tensor{scores}, []*Tensor{scores})
	c.t.UseBLAS()
	c.t.LaunchGEMM(packed, batch*w.Heads, length, size, length, scores, packed) // into the memory of the queries
	if !needWeights {
		c.Drop(scores)
	}
	context := c.Bind(c.t.Alloc(x.dtype, batch, length, embed))
	c.t.LaunchCopy(context, packed)
	y = c.Bind(context.LinearUncast(w.OutWeight, w.OutBias))
	c.Drop(context)
	if needWeights {
		c.Set(&scores, scores.SumUncast("sum_dim_IntList", []int{1}, false))
		c.t.LaunchElementwise(scores, 1, scores)
		c.EndAll(y, scores)
		return y, scores
	}
	return c.End(y), nil
}

// EncoderLayerWeights are the parameters of a transformer encoder layer.
type EncoderLayerWeights struct {
	Attention                  MultiheadWeights
	Norm1Weight, Norm1Bias     *Tensor
	Norm2Weight, Norm2Bias     *Tensor
	Linear1Weight, Linear1Bias *Tensor
	Linear2Weight, Linear2Bias *Tensor
	NormFirst                  bool
}

// TransformerEncoderLayerForward records torch._transformer_encoder_layer_fwd of src [batch, length, embedding].
// nn.TransformerEncoderLayer calls it in evaluation if nothing needs a gradient.
func (src *Tensor) TransformerEncoderLayerForward(w EncoderLayerWeights) *Tensor {
	c := src.tape.Begin("_transformer_encoder_layer_fwd", src)
	x := c.Bind(src)
	norm := func(weight, bias *Tensor) { c.Set(&x, x.LayerNorm(1, weight, bias)) }
	if w.NormFirst {
		norm(w.Norm1Weight, w.Norm1Bias)
	}
	y, _ := x.NativeMultiheadAttention(w.Attention, false)
	c.Set(&x, y)
	c.t.LaunchElementwise(x, 1, x, src)
	if !w.NormFirst {
		norm(w.Norm1Weight, w.Norm1Bias)
	}
	residual := c.Bind(x)
	if w.NormFirst {
		norm(w.Norm2Weight, w.Norm2Bias)
	}
	c.Set(&x, x.feedForward(w))
	c.t.LaunchElementwise(x, 1, x, residual)
	if !w.NormFirst {
		norm(w.Norm2Weight, w.Norm2Bias)
	}
	return c.End(x)
}

// feedForward records two linear layers, with the activation fused into the first.
func (x *Tensor) feedForward(w EncoderLayerWeights) *Tensor {
	c := x.tape.Begin("linear_for_ffn", x)
	y := c.Bind(x.LinearUncast(w.Linear1Weight, w.Linear1Bias))
	return c.End(c.Set(&y, y.LinearUncast(w.Linear2Weight, w.Linear2Bias)))
}
