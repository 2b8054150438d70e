package llama

import (
	"errors"

	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// normAttentionNorm is DbrxNormAttentionNorm: attention between two norms.
type normAttentionNorm struct {
	nn.Module
	Norm1 nn.Layer `torch:"norm_1"`
	Attn  *dbrxAttention
	Norm2 nn.Layer `torch:"norm_2"`
	c     *Config
}

func newNormAttentionNorm(c *Config) *normAttentionNorm {
	return &normAttentionNorm{Norm1: newNorm(c, c.Width), Attn: newDbrxAttention(c), Norm2: newNorm(c, c.Width), c: c}
}

// call gives the residual stream and what the feed-forward half sees.
func (n *normAttentionNorm) call(f *frame, in inputs) (residual, y *tensor) {
	g := f.ModuleFrame(n, in.x, in.mask, in.cos, in.sin)
	d := in.x.DType()
	residual = g.Let(in.x)
	y = in.x
	g.Set(&y, g.Call(n.Norm1, y).To(d))
	g.Set(&y, n.Attn.call(g, y, in.mask, in.cos, in.sin))
	g.Set(&y, y.Dropout(n.c.ResidualDropout, n.Training()))
	g.Set(&y, y.Add(residual))
	g.Set(&residual, y)
	g.Set(&y, g.Call(n.Norm2, y).To(y.DType()))
	return g.ReturnPair(residual, y)
}

// dbrxAttention is DbrxAttention, which holds query, key and value within bounds.
type dbrxAttention struct {
	nn.Module
	QkvProj nn.Layer `torch:"Wqkv"`
	OutProj nn.Layer
	c       *Config
}

func newDbrxAttention(c *Config) *dbrxAttention {
	return &dbrxAttention{
		QkvProj: nn.NewLinear(c.Width, c.Width+2*c.KVHeads*c.HeadSize, false),
		OutProj: nn.NewLinear(c.Width, c.Width, false), c: c,
	}
}

func (a *dbrxAttention) call(f *frame, x, mask, cos, sin *tensor) *tensor {
	g := f.ModuleFrame(a, x, mask, cos, sin)
	c := a.c
	all := g.Let(g.Call(a.QkvProj, x))
	g.Set(&all, all.Clamp())
	parts := g.LetAll(all.SplitSizes([]int64{c.Width, c.KVHeads * c.HeadSize, c.KVHeads * c.HeadSize}, 2))
	for i := range parts {
		g.Set(&parts[i], hf.Heads(parts[i], c.HeadSize))
	}
	q, k := c.Rotary.rotate(g, parts[0], parts[1], cos, sin)
	g.Set(&parts[0], q)
	g.Set(&parts[1], k)
	o := hf.AttentionOptions{Causal: true, Groups: c.Heads / c.KVHeads, Dropout: hf.DropoutIn(a, c.AttentionDropout)}
	y := g.Let(hf.Attention(g, parts[0], parts[1], parts[2], mask, o))
	g.Set(&y, hf.Merge(y))
	return g.Return(g.Set(&y, g.Call(a.OutProj, y)))
}

// dbrx is DbrxBlock.forward.
func (l *layer) dbrx(f *frame, in inputs) *tensor {
	residual, y := l.NormAttnNorm.call(f, in)
	f.LetAll([]*tensor{residual, y})
	f.Set(&y, f.Call(l.Mlp, y))
	f.Set(&y, l.dropout(y))
	return f.Set(&y, residual.Add(y))
}

// loopedExperts is DbrxFFN: experts that run one after the other, each over its tokens.
type loopedExperts struct {
	nn.Module
	Router  *dbrxRouter
	Experts *dbrxExperts
	c       *Config
}

func newLoopedExperts(c *Config) *loopedExperts {
	return &loopedExperts{
		Router:  &dbrxRouter{Layer: nn.NewLinear(c.Width, c.Experts.Count, false), c: c},
		Experts: newDbrxExperts(c), c: c,
	}
}

// Forward maps [batch, length, width] to the same.
func (s *loopedExperts) Forward(f *frame, x *tensor) *tensor {
	scores := f.Let(f.Call(s.Router, x))
	g := f.FuncFrame(scores)
	g.Set(&scores, scores.SoftmaxTo(1, scores.DType()))
	weights, chosen := scores.TopK(s.c.Experts.PerToken, -1)
	g.LetAll([]*tensor{weights, chosen})
	if s.c.Experts.Normalized {
		g.Set(&weights, weights.Div(weights.Norm(1, true, -1)))
	}
	g.End(weights, chosen)
	f.LetAll([]*tensor{weights, chosen})
	return f.Let(s.Experts.call(f, x, chosen, weights))
}

// dbrxRouter is DbrxRouter.
type dbrxRouter struct {
	nn.Module
	Layer nn.Layer
	c     *Config
}

// Forward gives the scores of tokens.
func (r *dbrxRouter) Forward(f *frame, x *tensor) *tensor {
	if r.c.Experts.Jittered && r.Training() {
		x.MulInPlace(x.EmptyLike())
	}
	f.Set(&x, x.View(-1, x.Size(-1)))
	return f.Let(f.Call(r.Layer, x))
}

// dbrxExperts is DbrxExperts.
type dbrxExperts struct {
	nn.Module
	Mlp *dbrxWeights
	c   *Config
}

// dbrxWeights is DbrxExpertGLU: the weights of all experts, one below the other.
type dbrxWeights struct {
	nn.Module
	W1, V1, W2   *nn.Parameter
	ActivationFn nn.Layer
}

func newDbrxExperts(c *Config) *dbrxExperts {
	made := func() *nn.Parameter { return nn.NewParameter(c.Experts.Count*c.Experts.Inner, c.Width) }
	return &dbrxExperts{Mlp: &dbrxWeights{
		W1: made(), V1: made(), W2: made(),
		ActivationFn: activation(c.Activation),
	}, c: c}
}

// errMixedExperts is what PyTorch says where autocast makes a softmax in fp32 of what else is
// in half precision.
var errMixedExperts = errors.New(
	"DbrxExperts of transformers 5.23 fails: index_add_(): self and source must have the same scalar type, which " +
		"fp32 weights of experts under autocast are not with weights in half precision; use --amp none, or " +
		"--weights fp32")

// call runs the experts. Each is taken to see as many tokens as the others: what autograd keeps
// is the same however they are shared out, what an expert needs for a moment is not.
func (e *dbrxExperts) call(f *frame, x, chosen, weights *tensor) *tensor {
	g := f.ModuleFrame(e, x, chosen, weights)
	t, count, each := g.Tape(), e.c.Experts.Count, e.c.Experts.PerToken
	batch, width := x.Size(0), x.Size(2)
	g.Set(&x, x.Reshape(-1, width))
	next := g.Let(x.ZerosLike())
	var mask *tensor
	t.NoGrad(func() {
		mask = g.Let(chosen.OneHot(count + 1))
		g.Set(&mask, mask.Permute(2, 1, 0))
	})
	tokens := x.Size(0) * each
	var places, row, token, states *tensor
	var taken [3]*tensor
	for i := range count {
		n := tokens / count
		if i < tokens%count {
			n++
		}
		if n == 0 {
			continue
		}
		g.Set(&places, t.New("nonzero", program.Activations, trace.I64, 2, n))
		g.Set(&row, places.Select(0, 0))
		g.Set(&token, places.Select(0, 1))
		g.Del(&places)
		for k, w := range []*nn.Parameter{e.Mlp.V1, e.Mlp.W1, e.Mlp.W2} {
			g.Set(&taken[k], w.View(-1, e.c.Experts.Inner, width).Select(0, i))
		}
		g.Set(&states, e.Mlp.call(g, x.Index(token), taken[1], taken[0], taken[2]))
		g.Set(&states, states.View(-1, width).Mul(weights.Unsqueeze(2).Index(token, row)))
		if states.DType() != next.DType() {
			t.Raise(errMixedExperts)
		}
		next.IndexAddInPlace(0, token, states)
	}
	return g.Return(g.Set(&next, next.View(batch, -1, width)))
}

// call returns an expert.
func (m *dbrxWeights) call(f *frame, x, w1, v1, w2 *tensor) *tensor {
	g := f.ModuleFrame(m, x, w1, v1, w2)
	gate := g.Let(x.Matmul(w1.T()))
	up := g.Let(x.Matmul(v1.T()))
	g.Set(&gate, g.Call(m.ActivationFn, gate))
	inside := g.Let(gate.Mul(up))
	return g.Return(g.Let(inside.Matmul(w2)))
}
