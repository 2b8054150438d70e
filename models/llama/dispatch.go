package llama

import (
	"math"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// SharedExperts is the number of experts of a layer that ranks can share out (expert
// parallelism), zero for models of which vprof does not describe that.
func (c *Config) SharedExperts() int64 {
	e := c.Experts
	if e.Clamped || e.NoGate || c.Llama4.Enabled || c.Order == Dbrx || e.Routing == RouteTokenChoice {
		return 0
	}
	return e.Count
}

// local is how many experts the rank has.
func (e Experts) local() int64 { return e.Count / max(1, e.Ranks) }

// received is how many tokens come to a rank where every rank has some: those that choose at least one
// of the rank's, each once, where all choices of experts are equally likely, times the skew.
func (e Experts) received(tokens int64) int64 {
	missed := 1.0
	for i := range e.PerToken {
		missed *= float64(e.Count-e.local()-i) / float64(e.Count-i)
	}
	share := min(1, (1-max(0, missed))*e.Skew)
	return int64(math.Round(float64(tokens*e.Ranks) * share))
}

// dispatched is deep_ep_grouped_mm_experts_forward of axolotl: tokens go to the ranks that have
// their experts, which multiply what has come, and what they give comes back.
func (e *experts) dispatched(f *frame, x, chosen, weights *tensor) *tensor {
	g := f.ModuleFrame(e, x, chosen, weights)
	t, own := g.Tape(), x.DType()
	g.Set(&x, x.To(trace.BF16))
	g.Set(&weights, weights.To(trace.F32))
	n, tokens := e.c.Experts.Ranks, x.Size(0)
	g.LetAll([]*tensor{t.Empty(trace.I32, n), t.Empty(trace.I32, e.c.Experts.Count), t.Empty(trace.U8, tokens, n)})
	came := g.LetAll(g.Apply(e.send(tokens), x, chosen, weights))
	y := g.Let(e.masked(g, came[0], came[1], came[2]))
	out := g.Let(g.Apply(e.combine(tokens), y)[0])
	g.Set(&out, out.To(own))
	return g.Return(out)
}

// masked is _grouped_mm_local: choices of other ranks' experts count as the first expert, with
// no weight.
func (e *experts) masked(f *frame, x, chosen, weights *tensor) *tensor {
	g := f.FuncFrame(x, chosen, weights)
	h := g.FuncFrame(chosen, weights)
	safe := h.Let(trace.Where(chosen.EqScalar(), chosen, chosen.ZerosLike()))
	valid := h.Let(chosen.EqScalar().To(weights.DType()))
	left := h.Let(weights.Mul(valid))
	h.End(safe, left)
	g.LetAll([]*tensor{safe, left})
	k := g.FuncFrame(x, safe, left)
	y := e.products(k, x, safe, left)
	k.End(y)
	return g.Return(y)
}

// send is _DeepEPDispatch: tokens, the numbers of their experts and weights go to other ranks;
// in backward gradients come back.
func (e *experts) send(tokens int64) *trace.Function {
	return &trace.Function{
		Name: "_DeepEPDispatchBackward",
		Forward: func(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			t, x, n := f.Tape(), in[0], e.c.Experts.Ranks
			each := in[1].Size(1)
			rows := e.c.Experts.received(tokens)
			out := []*tensor{
				t.Empty(x.DType(), rows, x.Size(1)), t.Empty(trace.I64, rows, each),
				t.Empty(trace.F32, rows, each),
			}
			f.LetAll(out)
			for _, part := range []*tensor{t.Empty(trace.I32, rows), t.Empty(trace.I32, tokens, n)} { // the handle
				f.Let(part)
				ctx.Keep(part)
			}
			t.Collective(program.Send, n, out[0], x)
			return out
		},
		Backward: func(f *frame, _ *trace.FunctionContext, grads []*tensor) []*tensor {
			t := f.Tape()
			from := f.Let(grads[0].Contiguous())
			out := []*tensor{
				f.Let(t.Empty(from.DType(), tokens, from.Size(1))), nil,
				f.Let(t.Empty(trace.F32, tokens, e.c.Experts.PerToken)),
			}
			t.Collective(program.Send, e.c.Experts.Ranks, out[0], from)
			return out
		},
	}
}

// combine is _DeepEPCombine: what experts give comes back to the ranks of the tokens; in
// backward gradients go to the experts.
func (e *experts) combine(tokens int64) *trace.Function {
	exchange := func(f *frame, x *tensor, rows int64) []*tensor {
		from := f.Let(x.Contiguous())
		y := f.Let(f.Tape().Empty(x.DType(), rows, x.Size(1)))
		f.Tape().Collective(program.Send, e.c.Experts.Ranks, y, from)
		return []*tensor{y}
	}
	return &trace.Function{
		Name: "_DeepEPCombineBackward",
		Forward: func(f *frame, _ *trace.FunctionContext, in []*tensor) []*tensor {
			return exchange(f, in[0], tokens)
		},
		Backward: func(f *frame, _ *trace.FunctionContext, grads []*tensor) []*tensor {
			return exchange(f, grads[0], e.c.Experts.received(tokens))
		},
	}
}
