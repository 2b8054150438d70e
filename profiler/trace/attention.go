package trace

import "github.com/vprof/vprof/profiler/program"

// AttentionArgs are the optional arguments of scaled_dot_product_attention,
// under their PyTorch names.
type AttentionArgs struct {
	// Mask is attn_mask: Bool, or added to the scores; nil for none.
	Mask *Tensor
	// Dropout is dropout_p.
	Dropout float64
	// IsCausal masks the future.
	IsCausal bool
	// EnableGQA lets several heads of the query share one of key and value.
	EnableGQA bool
}

// ScaledDotProductAttention records
// torch.nn.functional.scaled_dot_product_attention(q, k, v, ...) over tensors
// [batch, heads, length, head size]. The kernel, and with it the tensors saved for
// backward, is PyTorch's choice for the GPU of the recording.
func (q *Tensor) ScaledDotProductAttention(k, v *Tensor, a AttentionArgs) *Tensor {
	c := q.tape.begin("scaled_dot_product_attention", q, k, v, a.Mask)
	c.lower(&q, &k, &v, &a.Mask)
	return c.end(q.attention(k, v, a))
}

func (q *Tensor) attention(k, v *Tensor, a AttentionArgs) *Tensor {
	c := q.tape.begin("scaled_dot_product_attention", q, k, v, a.Mask)
	backend, why := c.t.attentionBackend(q, k, v, a)
	c.t.facts.attention(Attention{attentionNames[backend], q.dtype, q.Size(-1), a.Mask != nil, why})
	if a.Mask != nil {
		a.Mask = c.let(a.Mask.additiveMask(q.dtype))
	}
	switch backend {
	case cudnnAttention:
		return c.end(q.cudnnAttention(k, v, a))
	case flashAttention:
		qp, kp, vp := c.let(q.padLastDim()), c.let(k.padLastDim()), c.let(v.padLastDim())
		y := qp.flashAttention(kp, vp, a)
		if d := q.Size(-1); y.Size(-1) != d {
			return c.end(y.Slice(-1, 0, d))
		}
		return c.end(y)
	case efficientAttention:
		if a.Mask != nil {
			c.set(&a.Mask, a.Mask.alignMask(q, k))
		}
		return c.end(q.efficientAttention(k, v, a))
	}
	return c.end(q.mathAttention(k, v, a))
}

// additiveMask turns a boolean mask into one that is added: 0 or -inf.
func (m *Tensor) additiveMask(d DType) *Tensor {
	if m.dtype != Bool {
		return m
	}
	c := m.tape.begin("convert_boolean_attn_mask", m)
	return c.end(whereScalar("where_ScalarSelf", m, m.tape.scalarTensor(d)))
}

// maskAlignment is the multiple in elements that the memory-efficient kernels
// need of a mask's strides.
const maskAlignment = 8

// alignMask pads the rows of a mask where the memory-efficient kernels need
// it, and broadcasts it (preprocess_mask).
func (m *Tensor) alignMask(q, k *Tensor) *Tensor {
	c := m.tape.begin("preprocess_mask", m)
	x := c.let(m)
	for _, s := range m.strides[:len(m.strides)-1] {
		if s%maskAlignment != 0 {
			n := m.Size(-1)
			c.set(&x, m.constantPad([]int64{0, maskAlignment - n%maskAlignment}).Slice(-1, 0, n))
			break
		}
	}
	return c.end(x.Expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2]))
}

// padLastDim pads the head size to a multiple of eight (pad_last_dim).
func (x *Tensor) padLastDim() *Tensor {
	if over := x.Size(-1) % 8; over != 0 {
		return x.constantPad([]int64{0, 8 - over})
	}
	return x
}

// mathAttention records _scaled_dot_product_attention_math: ordinary operators, in
// fp32 whatever the type of the inputs.
func (q *Tensor) mathAttention(k, v *Tensor, a AttentionArgs) *Tensor {
	c := q.tape.begin("_scaled_dot_product_attention_math", q, k, v, a.Mask)
	from := q.dtype
	full := func(x *Tensor) *Tensor {
		if x.dtype.IsHalf() {
			return x.to(F32)
		}
		return x
	}
	q, k, v = c.let(full(q)), c.let(full(k)), c.let(full(v))
	place := len(c.t.locals) // of attn_mask, which is set later
	query := c.let(q.MulScalar())
	mask := a.Mask
	if a.IsCausal {
		mask = c.let(c.t.Full(Bool, q.Size(-2), k.Size(-2)).Tril())
		c.set(&mask, mask.additiveMask(q.dtype))
		c.t.locals[place], c.t.locals[place+1] = c.t.locals[place+1], c.t.locals[place]
	}
	if a.EnableGQA && q.shape[len(q.shape)-3] != k.shape[len(k.shape)-3] {
		groups := q.Size(-3) / k.Size(-3)
		k, v = k.repeatHeads(groups), v.repeatHeads(groups)
		c.letAll([]*Tensor{k, v})
	}
	scores := c.let(query.matmul(k.Transpose(-2, -1).MulScalar()))
	if mask != nil {
		scores.AddInPlace(mask)
		c.statement()
	}
	c.set(&scores, scores.safeSoftmax())
	if a.Dropout > 0 {
		c.set(&scores, scores.dropout(a.Dropout, true))
	}
	weights := scores.to(from) // the second result, which nobody wants
	y := scores.matmul(v).to(from)
	return c.endAll(y, weights)[0]
}

// repeatHeads records repeat_interleave(n, -3).
func (x *Tensor) repeatHeads(n int64) *Tensor {
	c := x.tape.begin("repeat_interleave", x)
	d := len(x.shape) - 3
	shape := append([]int64(nil), x.shape...)
	shape = append(shape[:d+1:d+1], append([]int64{n}, x.shape[d+1:]...)...)
	flat := append([]int64(nil), x.shape...)
	flat[d] *= n
	wide := c.let(x.Unsqueeze(d + 1))
	c.set(&wide, wide.Expand(shape...))
	return c.end(wide.CloneContiguous().View(flat...))
}

// safeSoftmax records _safe_softmax over the last dimension: rows that are masked
// altogether become zero, in place.
func (x *Tensor) safeSoftmax() *Tensor {
	c := x.tape.begin("_safe_softmax", x)
	y := c.let(x.softmax(&opSoftmax, x.dtype))
	masked := c.let(c.t.map1("isneginf", Bool, 1, x))
	rows := c.let(masked.reduce(reduction{op: "all", out: Bool, accSize: 1}, []int{-1}, true))
	zero := c.let(c.t.scalarTensor(y.dtype))
	c.t.launchElementwise(y, 1, y, rows, zero)
	return c.end(y)
}

// launchAttention records an attention kernel: passes is the number of matrix
// products of its size that it computes.
func (t *Tape) launchAttention(q, k *Tensor, causal bool, passes int64, writes, reads []*Tensor) {
	p := program.Product{M: q.shape[2], N: k.shape[2], K: q.shape[3], Batch: q.shape[0] * q.shape[1]}
	flops := 2 * passes * p.Batch * p.M * p.N * p.K
	if causal {
		flops /= 2
	}
	t.setProduct(t.launch(program.Attention, flops, writes, reads), p)
}

// MultiheadWeights are the parameters of a multi-head attention: the packed
// projection of query, key and value, and the projection of the output.
type MultiheadWeights struct {
	Heads              int64
	InWeight, InBias   *Tensor
	OutWeight, OutBias *Tensor
}

// NativeMultiheadAttention records torch._native_multi_head_attention of x with
// itself, [batch, length, embedding]: what nn.MultiheadAttention runs in
// evaluation when nothing needs a gradient. weights is nil unless needed.
func (x *Tensor) NativeMultiheadAttention(w MultiheadWeights, needWeights bool) (y, weights *Tensor) {
	c := x.tape.begin("_native_multi_head_attention", x)
	batch, length, embed := x.shape[0], x.shape[1], x.shape[2]
	size := embed / w.Heads
	heads := func(z *Tensor) *Tensor { return c.let(z.View(batch, length, w.Heads, size).Transpose(1, 2)) }
	if size%8 == 0 && !needWeights {
		q := heads(x)
		if backend, _ := c.t.attentionBackend(q, q, q, AttentionArgs{}); backend != mathAttention {
			qkv := c.let(x.linear(w.InWeight, w.InBias))
			split := func(i int64) *Tensor { return heads(qkv.Slice(-1, i*embed, (i+1)*embed)) }
			out := c.let(split(0).attention(split(1), split(2), AttentionArgs{}))
			past := c.let(out.Transpose(1, 2).reshape([]int64{batch, length, embed}))
			return c.end(past.linear(w.OutWeight, w.OutBias)), nil
		}
	}
	qkv := c.let(x.matmul(w.InWeight.T()))
	packed := c.let(c.t.empty(x.dtype, 3, batch, w.Heads, length, size)) // _transform_bias_rescale_qkv
	c.t.launchElementwise(packed, 2, qkv, w.InBias)
	c.drop(qkv)
	scores := c.let(c.t.empty(x.dtype, batch, w.Heads, length, length))
	c.t.useBLAS()
	c.t.launchGEMM(scores, batch*w.Heads, length, length, size, packed)
	c.t.launch(program.Softmax, 5*scores.numel, []*Tensor{scores}, []*Tensor{scores})
	c.t.useBLAS()
	c.t.launchGEMM(packed, batch*w.Heads, length, size, length, scores, packed) // into what held the queries
	if !needWeights {
		c.drop(scores)
	}
	context := c.let(c.t.empty(x.dtype, batch, length, embed))
	c.t.launchCopy(context, packed)
	y = c.let(context.linear(w.OutWeight, w.OutBias))
	c.drop(context)
	if needWeights {
		c.set(&scores, scores.sum("sum_dim_IntList", []int{1}, false))
		c.t.launchElementwise(scores, 1, scores)
		c.endAll(y, scores)
		return y, scores
	}
	return c.end(y), nil
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

// TransformerEncoderLayerForward records torch._transformer_encoder_layer_fwd of
// [batch, length, embedding]: what nn.TransformerEncoderLayer runs in
// evaluation when nothing needs a gradient.
func (src *Tensor) TransformerEncoderLayerForward(w EncoderLayerWeights) *Tensor {
	c := src.tape.begin("_transformer_encoder_layer_fwd", src)
	x := c.let(src)
	norm := func(weight, bias *Tensor) { c.set(&x, x.LayerNorm(1, weight, bias)) }
	if w.NormFirst {
		norm(w.Norm1Weight, w.Norm1Bias)
	}
	y, _ := x.NativeMultiheadAttention(w.Attention, false)
	c.set(&x, y)
	c.t.launchElementwise(x, 1, x, src)
	if !w.NormFirst {
		norm(w.Norm1Weight, w.Norm1Bias)
	}
	residual := c.let(x)
	if w.NormFirst {
		norm(w.Norm2Weight, w.Norm2Bias)
	}
	c.set(&x, x.feedForward(w))
	c.t.launchElementwise(x, 1, x, residual)
	if !w.NormFirst {
		norm(w.Norm2Weight, w.Norm2Bias)
	}
	return c.end(x)
}

// feedForward returns two linear layers; the activation is part of the first.
func (x *Tensor) feedForward(w EncoderLayerWeights) *Tensor {
	c := x.tape.begin("linear_for_ffn", x)
	y := c.let(x.linear(w.Linear1Weight, w.Linear1Bias))
	return c.end(c.set(&y, y.linear(w.Linear2Weight, w.Linear2Bias)))
}
