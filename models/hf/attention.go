// Package hf holds the code that models of Hugging Face transformers share: attention, masks, activations, losses.
// Names and statements follow transformers 5.23.
package hf

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// AttentionOptions are the keyword arguments of [Attention].
type AttentionOptions struct {
	Dropout float64
	// Causal is the module's is_causal attribute.
	Causal bool
	// Groups is num_key_value_groups, the number of query heads that share one head of keys and values; zero and one
	// mean no sharing.
	Groups int64
	// KeepsScoreType computes the softmax of eager attention in the scores' type, as Llama 4 does, not in fp32.
	KeepsScoreType bool
	// RepeatKV repeats keys and values for every query head even if the kernel does not need it, as torchtune does.
	RepeatKV bool
	// Flash uses flash-attn's kernels, which accept fewer heads of keys and values, and any memory layout.
	Flash bool
}

// Attention records transformers' sdpa_attention_forward over [batch, heads, length, head size]; mask can be nil. The
// result is [batch, length, heads, head size].
func Attention(f *frame, q, k, v, mask *tensor, o AttentionOptions) *tensor {
	g := f.FunctionFrame(q, k, v, mask)
	gqa, rules := false, &f.Tape().Rules().Libraries
	if o.Groups > 1 {
		fits := (rules.GroupedHeads || o.Flash && rules.SharedFunctions >= trace.SharedByMistral) && !o.RepeatKV
		if gqa = fits && mask == nil && k.Size(-1) == v.Size(-1) && v.Size(-1) <= 256; !gqa {
			g.Set(&k, repeatHeads(g, k, o.Groups))
			g.Set(&v, repeatHeads(g, v, o.Groups))
		}
	}
	if !rules.ViewedHeads && !o.Flash && (mask != nil || rules.SharedFunctions >= trace.SharedByMistral) {
		for _, x := range []**tensor{&q, &k, &v} {
			g.Set(x, (*x).Contiguous())
		}
	}
	y := g.Bind(q.ScaledDotProductAttention(k, v, trace.AttentionArgs{
		Mask: mask, Dropout: o.Dropout, IsCausal: o.Causal && mask == nil && q.Size(2) > 1, EnableGQA: gqa,
	}))
	g.Set(&y, y.Reshape(y.Size(0), -1, q.Size(2), v.Size(-1)))
	return g.Return(g.Set(&y, y.Transpose(1, 2).Contiguous()))
}

// Attend computes attention in the frame of an attention module, which keeps the results: [EagerAttention] if eager
// is set, else [Attention], whose weights are nil.
func Attend(f *frame, q, k, v, mask *tensor, o AttentionOptions, eager bool) (y, weights *tensor) {
	if eager {
		y, weights = EagerAttention(f, q, k, v, mask, o, false)
		f.BindAll([]*tensor{y, weights})
		return y, weights
	}
	return f.Bind(Attention(f, q, k, v, mask, o)), nil
}

// EagerAttention records transformers' eager_attention_forward over [batch, heads, length, head size], whose scores
// stay in memory; softcap limits them by tanh. It returns [batch, length, heads, head size] and the attention weights.
func EagerAttention(f *frame, q, k, v, mask *tensor, o AttentionOptions, softcap bool) (y, weights *tensor) {
	g := f.FunctionFrame(q, k, v, mask)
	keys, values := k, v
	if o.Groups > 1 {
		keys = g.Bind(repeatHeads(g, k, o.Groups))
		values = g.Bind(repeatHeads(g, v, o.Groups))
	}
	weights = g.Bind(q.Matmul(keys.Transpose(2, 3)).MulScalar())
	if softcap {
		g.Set(&weights, weights.DivScalar())
		g.Set(&weights, weights.Tanh())
		g.Set(&weights, weights.MulScalar())
	}
	if mask != nil {
		g.Set(&weights, weights.Add(mask))
	}
	if o.KeepsScoreType {
		g.Set(&weights, weights.Softmax(-1))
	} else {
		g.Set(&weights, weights.SoftmaxTo(-1, trace.F32).To(q.DType()))
	}
	g.Set(&weights, weights.Dropout(o.Dropout, o.Dropout > 0))
	y = g.Bind(weights.Matmul(values))
	g.Set(&y, y.Transpose(1, 2).Contiguous())
	return g.ReturnPair(y, weights)
}

// SinkAttention records eager_attention_forward of GPT-OSS: [EagerAttention] whose softmax includes a learned logit
// for each head (attention sink).
func SinkAttention(f *frame, q, k, v, mask, sinks *tensor, o AttentionOptions) (y, weights *tensor) {
	g := f.FunctionFrame(q, k, v, mask)
	keys, values := k, v
	if o.Groups > 1 {
		keys = g.Bind(repeatHeads(g, k, o.Groups))
		values = g.Bind(repeatHeads(g, v, o.Groups))
	}
	weights = g.Bind(q.Matmul(keys.Transpose(2, 3)).MulScalar())
	g.Set(&weights, weights.Add(mask))
	column := g.Bind(sinks.Reshape(1, -1, 1, 1).Expand(q.Size(0), -1, q.Size(2), -1))
	all := g.Bind(trace.Cat(-1, weights, column))
	most, places := all.MaxDim(true, -1)
	g.Set(&all, all.Sub(most))
	g.Discard(places)
	probabilities := g.Bind(all.SoftmaxTo(-1, all.DType()))
	scores := g.Bind(probabilities.Slice(-1, 0, probabilities.Size(-1)-1))
	g.Set(&weights, scores.Dropout(o.Dropout, o.Dropout > 0).To(v.DType()))
	y = g.Bind(weights.Matmul(values))
	g.Set(&y, y.Transpose(1, 2).Contiguous())
	return g.ReturnPair(y, weights)
}

// SelfAttention projects x [batch, length, width] to query, key and value, computes attention and merges the heads:
// the common part of encoders' attention modules. mask can be nil. weights is nil unless attention is eager.
func SelfAttention(f *frame, m trainingModule, x, mask *tensor, query, key, value nn.Layer, headSize int64,
	dropout float64, eager bool,
) (y, weights *tensor) {
	q := f.Bind(SplitHeads(f.Call(query, x), headSize))
	k := f.Bind(SplitHeads(f.Call(key, x), headSize))
	v := f.Bind(SplitHeads(f.Call(value, x), headSize))
	y, weights = Attend(f, q, k, v, mask, AttentionOptions{Dropout: DropoutInMode(m, dropout), KeepsScoreType: true},
		eager)
	return f.Set(&y, MergeHeads(y)), weights
}

type trainingModule interface{ Training() bool }

// DropoutInMode returns p in training mode and 0 in evaluation mode.
func DropoutInMode(m trainingModule, p float64) float64 {
	if m.Training() {
		return p
	}
	return 0
}

func repeatHeads(f *frame, x *tensor, n int64) *tensor {
	g := f.FunctionFrame(x)
	b, heads, length, size := x.Size(0), x.Size(1), x.Size(2), x.Size(3)
	g.Set(&x, x.Unsqueeze(2).Expand(b, heads, n, length, size))
	return g.Return(x.Reshape(b, heads*n, length, size))
}

// SplitHeads records view(batch, length, -1, size).transpose(1, 2) of a projection [batch, length, width].
func SplitHeads(x *tensor, size int64) *tensor {
	return x.View(x.Size(0), x.Size(1), -1, size).Transpose(1, 2)
}

// MergeHeads computes reshape(batch, length, -1).contiguous() of attention's result [batch, length, heads, size].
func MergeHeads(x *tensor) *tensor { return x.Reshape(x.Size(0), x.Size(1), -1).Contiguous() }
