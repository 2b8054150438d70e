package llama

import (
	"math"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// SharedExperts returns the number of experts in a layer that can be distributed over ranks (expert parallelism), or
// zero for models that vprof does not support with it.
func (c *Config) SharedExperts() int64 {
	e := c.Experts
	if e.Clamped || e.NoGate || c.Llama4.Enabled {
		return 0
	}
	return e.Count
}

// local returns the number of the rank's experts.
func (e Experts) local() int64 { return e.Count / max(1, e.Ranks) }

// width returns the inner width of an expert on the rank.
func (e Experts) width() int64 {
	if e.Ranks > 0 {
		return e.Inner
	}
	return ceil.Div(e.Inner, max(1, e.Tensor))
}

// received returns the number of tokens that a rank receives if each rank has this many. A token is sent once if it
// chooses at least one of the rank's experts. All choices are equally likely, times the expert load factor.
func (e Experts) received(tokens int64) int64 {
	missed := 1.0
	for i := range e.PerToken {
		missed *= float64(e.Count-e.local()-i) / float64(e.Count-i)
	}
	share := min(1, (1-max(0, missed))*e.Load)
	return int64(math.Round(float64(tokens*e.Ranks) * share))
}

// dispatched follows deep_ep_grouped_mm_experts_forward of axolotl: tokens are sent to the ranks of their experts,
// multiplied there, and the results are sent back.
func (e *ExpertWeights) dispatched(f *frame, x, chosen, weights *tensor) *tensor {
	g := f.ModuleFrame(e, x, chosen, weights)
	t, own := g.Tape(), x.DType()
	g.Set(&x, x.To(trace.BF16))
	g.Set(&weights, weights.To(trace.F32))
	n, tokens := e.c.Experts.Ranks, x.Size(0)
	g.BindAll([]*tensor{t.Empty(trace.I32, n), t.Empty(trace.I32, e.c.Experts.Count), t.Empty(trace.U8, tokens, n)})
	came := g.BindAll(g.Apply(e.send(tokens), x, chosen, weights))
	y := g.Bind(e.masked(g, came[0], came[1], came[2]))
	out := g.Bind(g.Apply(e.combine(tokens), y)[0])
	return g.Return(g.Set(&out, out.To(own)))
}

// masked follows _grouped_mm_local: choices of other ranks' experts become the first expert with weight zero.
func (e *ExpertWeights) masked(f *frame, x, chosen, weights *tensor) *tensor {
	g := f.FuncFrame(x, chosen, weights)
	h := g.FuncFrame(chosen, weights)
	safe := h.Bind(trace.Where(chosen.EqScalar(), chosen, chosen.ZerosLike()))
	valid := h.Bind(chosen.EqScalar().To(weights.DType()))
	left := h.Bind(weights.Mul(valid))
	h.End(safe, left)
	g.BindAll([]*tensor{safe, left})
	k := g.FuncFrame(x, safe, left)
	y := e.products(k, x, safe, left, nil)
	k.End(y)
	return g.Return(y)
}

// exchanged follows AllToAllEP of transformers: each pair of a token and an expert is sent to the rank of the expert,
// and the result is sent back, weighted and summed.
func (e *ExpertWeights) exchanged(f *frame, x, chosen, weights *tensor) *tensor {
	g := f.ModuleFrame(e, x, chosen, weights)
	local := e.local(g)
	h := g.FuncFrame(x, chosen, weights)
	if c := e.c.Experts; c.Tensor == c.Ranks && !g.Tape().RequiresGrad(x) {
		out := g.Bind(h.Return(e.reduced(h, x, chosen, weights, local)))
		return g.Return(out.To(x.DType()))
	}
	tokens, numbers, ones, order, share := e.dispatch(h, x, chosen, weights)
	y := h.Bind(e.ran(h, tokens, numbers, ones, local))
	out := g.Bind(h.Return(e.weighed(h, y, order, share, x.Size(0))))
	return g.Return(out.To(x.DType()))
}

// ran runs the experts' own forward with local weights.
func (e *ExpertWeights) ran(f *frame, x, chosen, weights *tensor, local []*tensor) *tensor {
	g := f.FuncFrame(x, chosen, weights)
	return g.Return(e.products(g, x, chosen, weights, local))
}

// reduced follows AllReduceEP, which AutoEP uses where no gradient is needed and all ranks have the same tokens: each
// rank runs its experts on all tokens, and the results are summed.
func (e *ExpertWeights) reduced(f *frame, x, chosen, weights *tensor, local []*tensor) *tensor {
	g := f.FuncFrame(x, chosen, weights)
	others := g.Bind(trace.Compare("ne_Scalar", chosen.FloorDivide(trace.IntNumber)))
	numbers := g.Bind(trace.WhereScalar(others, trace.Pointwise("remainder_Scalar", 1, chosen)))
	y := g.Bind(e.ran(g, x, numbers, weights.MaskedFill(others), local))
	return g.Return(y.SumInPlace(e.c.Experts.Ranks))
}

// local returns the weights under _use_local_dtensor_params.
func (e *ExpertWeights) local(g *frame) []*tensor {
	return g.BindAll([]*tensor{(*e.in()).Local(), e.DownProj.Local()})
}

// summed follows MoeExpertsParallel of transformers: each rank of a tensor-parallel group has a part of every expert,
// and their results are summed over the ranks.
func (e *ExpertWeights) summed(f *frame, x, chosen, weights *tensor) *tensor {
	g, ranks := f.ModuleFrame(e, x, chosen, weights), e.c.Experts.Tensor
	g.Set(&x, x.SumGradient(ranks))
	g.Set(&weights, weights.SumGradient(ranks))
	y := g.Bind(e.ran(g, x, chosen, weights, e.local(g)))
	return g.Return(y.SumInPlace(ranks))
}

// dispatch follows _dispatch_tokens. It returns the rows for the rank's experts, the indices of their experts, weights
// of one, the order in which the rank's own pairs were sent, and their weights. Ranks with the same tokens divide them.
func (e *ExpertWeights) dispatch(f *frame, x, chosen, weights *tensor) (tokens, numbers, ones, order, share *tensor) {
	g := f.FuncFrame(x, chosen, weights)
	t, n := g.Tape(), e.c.Experts.Ranks
	if ranks := e.c.Experts.Tensor; ranks > 1 {
		for _, all := range []**tensor{&x, &chosen, &weights} {
			g.Set(all, (*all).OwnRows(ranks))
		}
	}
	pairs := g.Bind(chosen.Reshape(-1))
	order = g.Bind(pairs.ArgSort(0))
	sent := g.Bind(x.Index(order.FloorDivide(trace.IntNumber)))
	counts := g.Bind(t.Zeros(trace.I64, e.c.Experts.Count))
	counts.ScatterAddInPlace(pairs, pairs.OnesLike())
	g.Set(&counts, counts.View(n, e.c.Experts.local()))
	coming := g.Bind(counts.EmptyLike())
	t.Collective(program.Send, n, coming, counts)
	g.Discard(trace.Stack(0, counts.Sum(false, 1), coming.Sum(false, 1)))
	tokens = g.Bind(sent.AllToAll(n, e.c.Experts.arriving(chosen.Numel())))
	tokens.Wait()
	numbers = g.Bind(t.Arange(e.c.Experts.local()).Repeat(n))
	g.Set(&numbers, numbers.RepeatInterleaveBy(coming.Reshape(-1), 0, tokens.Size(0)))
	g.Set(&numbers, numbers.Unsqueeze(-1))
	ones = g.Bind(numbers.FilledLike("ones_like", tokens.DType()))
	g.End(tokens, numbers, ones, order, weights)
	f.BindAll([]*tensor{tokens, numbers, ones, order, weights})
	return tokens, numbers, ones, order, weights
}

// weighed follows _combine_tokens: the experts' results for the rank's own pairs, in the order of its tokens. All ranks
// with the same tokens gather the rows.
func (e *ExpertWeights) weighed(f *frame, y, order, weights *tensor, rows int64) *tensor {
	g := f.FuncFrame(y, order, weights)
	back := g.Bind(y.AllToAll(e.c.Experts.Ranks, order.Size(0)))
	pairs := g.Bind(back.EmptyLike())
	g.Set(&pairs, pairs.IndexPutInPlace([]*tensor{order}, back, false))
	g.Set(&pairs, pairs.View(weights.Size(0), weights.Size(1), y.Size(1)))
	out := g.Bind(pairs.Mul(weights.Unsqueeze(-1)).Sum(false, 1))
	if ranks := e.c.Experts.Tensor; ranks > 1 {
		return g.Return(out.AllRows(ranks, rows))
	}
	return g.Return(out)
}

// arriving returns the number of token-expert pairs that a rank receives if every rank sends this many: the same number
// if experts are chosen equally often, times the expert load factor. A token chooses each expert at most once.
func (e Experts) arriving(pairs int64) int64 {
	most := float64(e.Ranks) * min(1, float64(e.local())/float64(e.PerToken))
	return int64(math.Round(float64(pairs) * min(e.Load, most)))
}

// send follows _DeepEPDispatch: it sends tokens, the indices of their experts and weights to other ranks; backward
// returns the gradients.
func (e *ExpertWeights) send(tokens int64) *trace.Function {
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
			f.BindAll(out)
			for _, part := range []*tensor{t.Empty(trace.I32, rows), t.Empty(trace.I32, tokens, n)} { // the handle
				f.Bind(part)
				ctx.Keep(part)
			}
			t.Collective(program.Send, n, out[0], x)
			return out
		},
		Backward: func(f *frame, _ *trace.FunctionContext, grads []*tensor) []*tensor {
			t := f.Tape()
			from := f.Bind(grads[0].Contiguous())
			out := []*tensor{
				f.Bind(t.Empty(from.DType(), tokens, from.Size(1))), nil,
				f.Bind(t.Empty(trace.F32, tokens, e.c.Experts.PerToken)),
			}
			t.Collective(program.Send, e.c.Experts.Ranks, out[0], from)
			return out
		},
	}
}

// combine follows _DeepEPCombine: it returns results of experts to the tokens' ranks; backward sends gradients to the
// experts.
func (e *ExpertWeights) combine(tokens int64) *trace.Function {
	exchange := func(f *frame, x *tensor, rows int64) []*tensor {
		from := f.Bind(x.Contiguous())
		y := f.Bind(f.Tape().Empty(x.DType(), rows, x.Size(1)))
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
