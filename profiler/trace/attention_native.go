package trace

import "github.com/vprof/vprof/profiler/program"

// MultiheadWeights are the parameters of a multi-head attention: the packed
// projection of query, key and value, and that of the output.
type MultiheadWeights struct {
	Heads              int64
	InWeight, InBias   *Tensor
	OutWeight, OutBias *Tensor
}

// NativeMultiheadAttention is torch._native_multi_head_attention of x with
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

// TransformerEncoderLayerForward is torch._transformer_encoder_layer_fwd of
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

// feedForward is two linear layers; the activation is part of the first.
func (x *Tensor) feedForward(w EncoderLayerWeights) *Tensor {
	c := x.tape.begin("linear_for_ffn", x)
	y := c.let(x.linear(w.Linear1Weight, w.Linear1Bias))
	c.set(&y, y.linear(w.Linear2Weight, w.Linear2Bias))
	return c.end(y)
}
