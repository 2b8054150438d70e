package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
)

// crossAttention is MllamaTextCrossAttention. A text-only step skips its layers.
type crossAttention struct {
	nn.Module
	QProj, KProj, VProj, OProj nn.Layer
	QNorm, KNorm               nn.Layer
	c                          *Config
}

// call computes attention of x [rows, length, width] to the image states.
func (a *crossAttention) call(f *frame, x, states, mask *tensor) *tensor {
	g := f.ModuleFrame(a, x, states, mask)
	rows, heads := x.Size(0), func(y *tensor) *tensor {
		return y.View(x.Size(0), -1, y.Size(-1)/a.c.HeadSize, a.c.HeadSize).Transpose(1, 2)
	}
	q := g.Bind(g.Call(a.QProj, x))
	g.Set(&q, heads(q))
	g.Set(&q, g.Call(a.QNorm, q))
	k, v := g.Bind(g.Call(a.KProj, states)), g.Bind(g.Call(a.VProj, states))
	g.Set(&k, heads(k))
	g.Set(&v, heads(v))
	g.Set(&k, g.Call(a.KNorm, k))
	y := g.Bind(hf.Attention(g, q, k, v, mask, hf.AttentionOptions{Groups: a.c.Heads / a.c.KVHeads}))
	g.Set(&y, y.Reshape(rows, x.Size(1), -1).Contiguous())
	return g.Return(g.Set(&y, g.Call(a.OProj, y)))
}

// crossAttentionForward records MllamaCrossAttentionDecoderLayer.forward. args are hidden states, image states, their
// mask, and a mask of the tokens that attend to any image.
func (l *layer) crossAttentionForward(f *frame, args []*tensor) *tensor {
	x, rows := args[0], args[3]
	residual := f.Bind(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	f.Set(&x, l.CrossAttn.call(f, x, args[1], args[2]))
	f.Set(&x, residual.Add(l.CrossAttnAttnGate.Tanh().Mul(x)))
	f.Set(&residual, x)
	f.Pass(&x, l.PostAttentionLayernorm, l.Mlp)
	f.Set(&x, rows.Select(1, 0).Mul(x))
	return f.Set(&x, residual.Add(l.CrossAttnMlpGate.Tanh().Mul(x)))
}

// newCrossAttentionLayer returns MllamaCrossAttentionDecoderLayer.
func newCrossAttentionLayer(c *Config) *layer {
	query, shared := c.Heads*c.HeadSize, c.KVHeads*c.HeadSize
	return &layer{
		TorchNames: c.Names, c: c,
		CrossAttn: &crossAttention{
			QProj: nn.NewLinear(c.Width, query, false), KProj: nn.NewLinear(c.Width, shared, false),
			VProj: nn.NewLinear(c.Width, shared, false),
			OProj: nn.NewLinear(query, c.Width, false), QNorm: newNorm(c, c.HeadSize),
			KNorm: newNorm(c, c.HeadSize), c: c,
		},
		CrossAttnAttnGate: nn.NewParameter(1), CrossAttnMlpGate: nn.NewParameter(1),
		Mlp: newMLP(c), InputLayernorm: newNorm(c, c.Width), PostAttentionLayernorm: newNorm(c, c.Width),
	}
}
