package nn_test

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/opvectors"
)

// attentionOperators returns scaled_dot_product_attention and its relatives.
func attentionOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"sdpa":                   attention(),
		"sdpa_bhsd_view":         attention(),
		"sdpa_causal":            attention(arg("is_causal", true)),
		"sdpa_dropout":           attention(arg("dropout_p", 0.1)),
		"sdpa_bool":              attention(),
		"sdpa_bool_bcast":        attention(),
		"sdpa_float":             attention(),
		"sdpa_gqa":               attention(arg("is_causal", true), arg("enable_gqa", true)),
		"attention_by_hand":      opvectors.Call(attentionByHand),
		"attention_by_hand_mask": opvectors.Call(maskedAttentionByHand),
		"mha":                    opvectors.Call(multiheadAttention),
		"qkv_permute_unbind": func(_ *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
			x := in[0]
			return x.Reshape(x.Size(0), x.Size(1), 3, 3, x.Size(2)/9).Permute(2, 0, 3, 1, 4).Unbind(0)
		},

		"transformer_encoder_layer": opvectors.Call(encoderLayer),
		"transformer_decoder_layer": opvectors.Call(decoderLayer),
	}
}

// attention returns the fused function; a fourth input is the mask.
func attention(more ...aten.Arg) opvectors.Call {
	return operator("scaled_dot_product_attention.default", more...)
}

// attentionByHand records dropout(softmax(q @ k^T * scale)) @ v.
func attentionByHand(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
	scores := f.Bind(transposedProduct(in[0], in[1]).MulScalar())
	f.Set(&scores, scores.Softmax(-1))
	f.Set(&scores, scores.Dropout(0.1, true))
	return []*tensor{scores.Matmul(in[2])}
}

// maskedAttentionByHand records softmax(q @ k^T / scale + mask) @ v.
func maskedAttentionByHand(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
	scores := f.Bind(transposedProduct(in[0], in[1]).DivScalar())
	f.Set(&scores, scores.Add(in[3]))
	f.Set(&scores, scores.Softmax(-1))
	return []*tensor{scores.Matmul(in[2])}
}

// multiheadAttention records self-attention and keeps the first result.
func multiheadAttention(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
	m := nn.NewMultiheadAttention(v.Int("embed", 0), v.Int("heads", 0),
		nn.MultiheadOptions{Dropout: 0.1, BatchFirst: v.Bool("batch_first", false)})
	load(m, v, p)
	y, weights := m.Attend(f, in[0], in[0], in[0], nn.MultiheadArgs{NeedWeights: v.Bool("need_weights", true)})
	f.Bind(y)
	if weights != nil {
		f.Discard(weights)
	}
	return []*tensor{y}
}

// load gives a module the parameters of a vector, by name.
func load(model any, v *vector, p params) {
	tree := nn.NewTree(model)
	for i, name := range tree.Names() {
		tree.Parameters[i].Tensor = p[name]
	}
	tree.SetTraining(v.Eval == 0)
}

func encoderLayer(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
	o := nn.TransformerOptions{
		Dropout: 0.1, NormFirst: v.Bool("norm_first", false),
		BatchFirst: v.Bool("batch_first", false),
	}
	if v.String("activation", "") == "gelu" {
		o.Activation = nn.NewGELU()
	}
	l := nn.NewTransformerEncoderLayer(v.Int("d", 0), v.Int("heads", 0), v.Int("ffn", 0), o)
	load(l, v, p)
	return []*tensor{f.Call(l, in[0])}
}

func decoderLayer(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
	d := v.Int("d", 0)
	l := nn.NewTransformerDecoderLayer(d, v.Int("heads", 0), 2*d,
		nn.TransformerOptions{Dropout: 0.1, BatchFirst: d != 108})
	load(l, v, p)
	g := f.CallFrame(in...)
	y := l.Decode(g, in[0], in[1], nn.TransformerMasks{}, nn.TransformerMasks{})
	g.End(y)
	return []*tensor{y}
}
