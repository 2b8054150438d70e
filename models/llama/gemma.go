package llama

import (
	"github.com/vprof/vprof/profiler/trace"
)

// Gemma is what Gemma 2 does otherwise than Llama: attention is eager, its scores and
// those of the words may be held down by a tanh, norms come after each half of a layer,
// too, and words are scaled.
type Gemma struct{ AttentionCap, ScoreCap bool }

// gemmaForward is Gemma2RMSNorm: all in fp32.
func (n *rmsNorm) gemmaForward(f *frame, x *tensor) *tensor {
	output := f.Let(gemmaNormalized(f, x.To(trace.F32)))
	f.Set(&output, output.Mul(n.Weight.To(trace.F32).AddScalar()))
	return output.To(x.DType())
}

// gemmaNormalized is Gemma2RMSNorm._norm.
func gemmaNormalized(f *frame, x *tensor) *tensor {
	g := f.FuncFrame(x)
	y := x.Mul(x.Pow(2).Mean(true, -1).AddScalar().Rsqrt())
	g.End(y)
	return y
}

// gemmaForward is Gemma2DecoderLayer.forward.
func (l *layer) gemmaForward(f *frame, args []*tensor) *tensor {
	x, mask, cos, sin := args[0], args[1], args[3], args[4]
	residual := f.Let(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	f.Set(&x, l.SelfAttn.call(f, x, mask, cos, sin))
	f.Set(&x, f.Call(l.PostAttentionLayernorm, x))
	f.Set(&x, residual.Add(x))
	f.Set(&residual, x)
	f.Set(&x, f.Call(l.PreFeedforwardLayernorm, x))
	f.Set(&x, f.Call(l.Mlp, x))
	f.Set(&x, f.Call(l.PostFeedforwardLayernorm, x))
	f.Set(&x, residual.Add(x))
	return x
}

// embed looks words up, and scales them as Gemma2TextScaledWordEmbedding does.
func (m *Model) embed(f *frame, ids *tensor) *tensor {
	if m.EmbedScale == nil {
		return f.Call(m.EmbedTokens, ids)
	}
	g := f.CallFrame(ids)
	g.In(m.EmbedTokens)
	y := m.EmbedTokens.Forward(g, ids).Mul(m.EmbedScale.To(m.EmbedTokens.Weight.DType))
	g.End(y)
	return y
}
