package llama

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// choiceExperts is AfmoeSparseMoeBlock.
type choiceExperts struct {
	nn.Module
	Router        *choiceRouter
	SharedExperts *mlp
	Experts       *ExpertWeights
	ExpertBias    *nn.Parameter
}

func newChoiceExperts(c *Config) *choiceExperts {
	s := &choiceExperts{
		Router:        &choiceRouter{Gate: nn.NewLinear(c.Width, c.Experts.Count, false), c: c},
		SharedExperts: newMLPOf(c, c.Experts.Shared), Experts: NewExperts(c),
		ExpertBias: nn.NewParameter(c.Experts.Count),
	}
	s.ExpertBias.Frozen = true
	return s
}

// Forward maps [batch, length, width] to the same.
func (s *choiceExperts) Forward(f *frame, x *tensor) *tensor {
	shape := x.Shape()
	rows := f.Let(x.View(-1, x.Size(-1)))
	scores, weights, chosen := s.Router.call(f, x, s.ExpertBias.Tensor)
	f.LetAll([]*tensor{scores, weights, chosen})
	shared := f.Let(f.Call(s.SharedExperts, rows).View(shape...))
	y := f.Let(s.Experts.Call(f, rows, chosen, weights).View(shape...))
	return shared.Add(y)
}

// choiceRouter is AfmoeTokenChoiceRouter.
type choiceRouter struct {
	nn.Module
	Gate nn.Layer
	c    *Config
}

// call gives the scores of tokens x [batch, length, width], and the weights and numbers of the
// experts that see them; bias [experts] takes part in the choice.
func (r *choiceRouter) call(f *frame, x, bias *tensor) (scores, weights, chosen *tensor) {
	g := f.ModuleFrame(r, x, bias)
	g.Set(&x, x.View(-1, x.Size(-1)))
	scores = g.Let(g.Call(r.Gate, x).To(trace.F32))
	all := g.Let(scores.Sigmoid())
	best, chosen := all.Add(bias).TopK(r.c.Experts.PerToken, 1)
	g.LetAll([]*tensor{best, chosen})
	weights = g.Let(all.Gather(chosen))
	sum := g.Let(weights.Sum(true, -1).AddScalar())
	g.Set(&weights, weights.Div(sum))
	g.Set(&weights, weights.MulScalar())
	g.End(scores, weights, chosen)
	return scores, weights, chosen
}

// projectWithGate gives query, key and value as AfmoeAttention does, and the gate that has a
// layer of its own.
func (a *attention) projectWithGate(f *frame, x *tensor) (q, k, v, gate *tensor) {
	split := func(l nn.Layer) *tensor { return f.Let(f.Call(l, x).View(x.Size(0), x.Size(1), -1, a.c.HeadSize)) }
	q, k, v = split(a.QProj), split(a.KProj), split(a.VProj)
	gate = f.Let(f.Call(a.GateProj, x))
	f.Set(&q, f.Call(a.QNorm, q).Transpose(1, 2))
	f.Set(&k, f.Call(a.KNorm, k).Transpose(1, 2))
	f.Set(&v, v.Transpose(1, 2))
	return q, k, v, gate
}

// nextLayer is MiMoMTPLayers: a layer that predicts further tokens, which training does not
// call.
type nextLayer struct {
	nn.Module
	InputLayernorm, PostAttentionLayernorm, TokenLayernorm, HiddenLayernorm nn.Layer
	InputProj                                                               nn.Layer
	FinalLayernorm                                                          nn.Layer
	SelfAttn                                                                selfAttention
	Mlp                                                                     nn.Layer
}

func newNextLayer(c *Config) *nextLayer {
	made := func() nn.Layer { return newNorm(c, c.Width) }
	return &nextLayer{
		InputLayernorm: made(), PostAttentionLayernorm: made(), TokenLayernorm: made(), HiddenLayernorm: made(),
		InputProj: nn.NewLinear(2*c.Width, c.Width, false), FinalLayernorm: made(), SelfAttn: newAttention(c, 0),
		Mlp: newMLP(c),
	}
}
