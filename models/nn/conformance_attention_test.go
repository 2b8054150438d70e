package nn_test

import (
	"github.com/vprof/vprof/internal/opvectors"
	"github.com/vprof/vprof/profiler/trace"
)

// attentionOperators are scaled_dot_product_attention and its relatives.
func attentionOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"sdpa":                   attention(trace.AttentionArgs{}),
		"sdpa_bhsd_view":         attention(trace.AttentionArgs{}),
		"sdpa_causal":            attention(trace.AttentionArgs{IsCausal: true}),
		"sdpa_dropout":           attention(trace.AttentionArgs{Dropout: 0.1}),
		"sdpa_bool":              attention(trace.AttentionArgs{}),
		"sdpa_bool_bcast":        attention(trace.AttentionArgs{}),
		"sdpa_float":             attention(trace.AttentionArgs{}),
		"sdpa_gqa":               attention(trace.AttentionArgs{IsCausal: true, EnableGQA: true}),
		"attention_by_hand":      opvectors.Call(attentionByHand),
		"attention_by_hand_mask": opvectors.Call(maskedAttentionByHand),
	}
}

// attention runs the fused function; a fourth input is the mask.
func attention(a trace.AttentionArgs) opvectors.Call {
	return one(func(_ *vector, in []*tensor, _ params) *tensor {
		if len(in) > 3 {
			a.Mask = in[3]
		}
		return in[0].ScaledDotProductAttention(in[1], in[2], a)
	})
}

// attentionByHand is dropout(softmax(q @ k^T * scale)) @ v.
func attentionByHand(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
	scores := f.Let(transposedProduct(in[0], in[1]).MulScalar())
	f.Set(&scores, scores.Softmax(-1))
	f.Set(&scores, scores.Dropout(0.1, true))
	return []*tensor{scores.Matmul(in[2])}
}

// maskedAttentionByHand is softmax(q @ k^T / scale + mask) @ v.
func maskedAttentionByHand(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
	scores := f.Let(transposedProduct(in[0], in[1]).DivScalar())
	f.Set(&scores, scores.Add(in[3]))
	f.Set(&scores, scores.Softmax(-1))
	return []*tensor{scores.Matmul(in[2])}
}
