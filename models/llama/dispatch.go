package llama

import (
	"math"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// ExpertParallelCount returns the number of experts of a layer that ranks can share (expert parallelism); zero if vprof
// does not support that for the model.
func (c *Config) ExpertParallelCount() int64 {
	e := c.Experts
	if e.Clamped || e.NoGate || c.Llama4.Enabled {
		return 0
	}
	return e.Count
}

func (e Experts) localCount() int64 { return e.Count / max(1, e.Ranks) }

func (e Experts) localWidth() int64 {
	if e.Ranks > 0 {
		return e.Inner
	}
	return ceil.Div(e.Inner, max(1, e.Tensor))
}

// receivedTokens returns the number of tokens that a rank receives if each rank has the given number. A token is sent
// once to a rank if it chose any of its experts. All choices are equally likely, times the expert load factor.
func (e Experts) receivedTokens(tokens int64) int64 {
	missed := 1.0
	for i := range e.PerToken {
		missed *= float64(e.Count-e.localCount()-i) / float64(e.Count-i)
	}
	share := min(1, (1-max(0, missed))*e.Load)
	return int64(math.Round(float64(tokens*e.Ranks) * share))
}

// deepEPForward records deep_ep_grouped_mm_experts_forward of axolotl: tokens are sent to the ranks of their experts,
// and the experts' results are sent back.
func (e *ExpertWeights) deepEPForward(f *frame, x, chosen, weights *tensor) *tensor {
	g := f.ModuleFrame(e, x, chosen, weights)
	t, own := g.Tape(), x.DType()
	g.Set(&x, x.To(trace.BF16))
	g.Set(&weights, weights.To(trace.F32))
	n, tokens := e.c.Experts.Ranks, x.Size(0)
	g.BindAll([]*tensor{t.Empty(trace.I32, n), t.Empty(trace.I32, e.c.Experts.Count), t.Empty(trace.U8, tokens, n)})
	came := g.BindAll(g.Apply(e.deepEPDispatch(tokens), x, chosen, weights))
	y := g.Bind(e.maskedForward(g, came[0], came[1], came[2]))
	out := g.Bind(g.Apply(e.deepEPCombine(tokens), y)[0])
	return g.Return(g.Set(&out, out.To(own)))
}

// maskedForward records axolotl's _grouped_mm_local: tokens of other ranks' experts go to expert 0 with weight zero.
func (e *ExpertWeights) maskedForward(f *frame, x, chosen, weights *tensor) *tensor {
	g := f.FunctionFrame(x, chosen, weights)
	h := g.FunctionFrame(chosen, weights)
	safe := h.Bind(trace.Where(chosen.EqScalar(), chosen, chosen.ZerosLike()))
	valid := h.Bind(chosen.EqScalar().To(weights.DType()))
	left := h.Bind(weights.Mul(valid))
	h.End(safe, left)
	g.BindAll([]*tensor{safe, left})
	k := g.FunctionFrame(x, safe, left)
	y := e.groupedProducts(k, x, safe, left, nil)
	k.End(y)
	return g.Return(y)
}

// allToAllForward records AllToAllEP of transformers: each pair of a token and an expert is sent to the expert's rank.
// The result is sent back, weighted and summed.
func (e *ExpertWeights) allToAllForward(f *frame, x, chosen, weights *tensor) *tensor {
	g := f.ModuleFrame(e, x, chosen, weights)
	local := e.localWeights(g)
	h := g.FunctionFrame(x, chosen, weights)
	if c := e.c.Experts; c.Tensor == c.Ranks && !g.Tape().RequiresGrad(x) {
		out := g.Bind(h.Return(e.allReduceForward(h, x, chosen, weights, local)))
		return g.Return(out.To(x.DType()))
	}
	tokens, numbers, ones, order, share := e.dispatchTokens(h, x, chosen, weights)
	y := h.Bind(e.runLocal(h, tokens, numbers, ones, local))
	out := g.Bind(h.Return(e.combineTokens(h, y, order, share, x.Size(0))))
	return g.Return(out.To(x.DType()))
}

// runLocal calls the experts' own forward with the rank's weights.
func (e *ExpertWeights) runLocal(f *frame, x, chosen, weights *tensor, local []*tensor) *tensor {
	g := f.FunctionFrame(x, chosen, weights)
	return g.Return(e.groupedProducts(g, x, chosen, weights, local))
}

// allReduceForward records AllReduceEP, which AutoEP uses without gradients if all ranks have the same tokens: each
// rank runs its experts on all tokens, and an all-reduce sums the results.
func (e *ExpertWeights) allReduceForward(f *frame, x, chosen, weights *tensor, local []*tensor) *tensor {
	g := f.FunctionFrame(x, chosen, weights)
	others := g.Bind(trace.Compare("ne_Scalar", chosen.FloorDivide(trace.IntNumber)))
	numbers := g.Bind(trace.WhereScalar(others, trace.Pointwise("remainder_Scalar", 1, chosen)))
	y := g.Bind(e.runLocal(g, x, numbers, weights.MaskedFill(others), local))
	return g.Return(y.SumInPlace(e.c.Experts.Ranks))
}

// localWeights returns the rank's part of the weights (_use_local_dtensor_params).
func (e *ExpertWeights) localWeights(g *frame) []*tensor {
	return g.BindAll([]*tensor{(*e.firstWeight()).Local(), e.DownProj.Local()})
}

// tensorParallelForward records MoeExpertsParallel of transformers: each rank of a tensor-parallel group has a part of
// every expert, and an all-reduce sums their results.
func (e *ExpertWeights) tensorParallelForward(f *frame, x, chosen, weights *tensor) *tensor {
	g, ranks := f.ModuleFrame(e, x, chosen, weights), e.c.Experts.Tensor
	g.Set(&x, x.SumGradient(ranks))
	g.Set(&weights, weights.SumGradient(ranks))
	y := g.Bind(e.runLocal(g, x, chosen, weights, e.localWeights(g)))
	return g.Return(y.SumInPlace(ranks))
}

// dispatchTokens records _dispatch_tokens of transformers' AllToAllEP. It returns the rows received for the rank's
// experts, the indices of their experts, weights of one, the order in which the rank sent its own pairs, and the
// weights of these. Ranks with the same tokens each send a part of them.
func (e *ExpertWeights) dispatchTokens(f *frame, x, chosen, weights *tensor) (tokens, ids, ones, order, share *tensor) {
	g := f.FunctionFrame(x, chosen, weights)
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
	g.Set(&counts, counts.View(n, e.c.Experts.localCount()))
	coming := g.Bind(counts.EmptyLike())
	t.Collective(program.Send, n, coming, counts)
	g.Discard(trace.Stack(0, counts.Sum(false, 1), coming.Sum(false, 1)))
	tokens = g.Bind(sent.AllToAll(n, e.c.Experts.receivedPairs(chosen.Numel())))
	tokens.Wait()
	ids = g.Bind(t.Arange(e.c.Experts.localCount()).Repeat(n))
	g.Set(&ids, ids.RepeatInterleaveBy(coming.Reshape(-1), 0, tokens.Size(0)))
	g.Set(&ids, ids.Unsqueeze(-1))
	ones = g.Bind(ids.FilledLike("ones_like", tokens.DType()))
	g.End(tokens, ids, ones, order, weights)
	f.BindAll([]*tensor{tokens, ids, ones, order, weights})
	return tokens, ids, ones, order, weights
}

// combineTokens records _combine_tokens of transformers' AllToAllEP: it weights the experts' results for the rank's own
// pairs and sums them for each token. Ranks with the same tokens gather all rows.
func (e *ExpertWeights) combineTokens(f *frame, y, order, weights *tensor, rows int64) *tensor {
	g := f.FunctionFrame(y, order, weights)
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

// receivedPairs returns the number of token-expert pairs that a rank receives if every rank sends the given number: the
// same number if experts are chosen evenly, times the expert load factor. A token chooses each expert at most once.
func (e Experts) receivedPairs(pairs int64) int64 {
	most := float64(e.Ranks) * min(1, float64(e.localCount())/float64(e.PerToken))
	return int64(math.Round(float64(pairs) * min(e.Load, most)))
}

// deepEPDispatch records _DeepEPDispatch, which sends tokens, expert indices and weights to other ranks; backward
// returns the gradients.
func (e *ExpertWeights) deepEPDispatch(tokens int64) *trace.Function {
	return &trace.Function{
		Name: "_DeepEPDispatchBackward",
		Forward: func(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			t, x, n := f.Tape(), in[0], e.c.Experts.Ranks
			each := in[1].Size(1)
			rows := e.c.Experts.receivedTokens(tokens)
			out := []*tensor{
				t.Empty(x.DType(), rows, x.Size(1)), t.Empty(trace.I64, rows, each),
				t.Empty(trace.F32, rows, each),
			}
			f.BindAll(out)
			for _, part := range []*tensor{t.Empty(trace.I32, rows), t.Empty(trace.I32, tokens, n)} { // DeepEP's handle
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

// deepEPCombine records _DeepEPCombine, which returns experts' results to the tokens' ranks; backward sends gradients
// to the experts.
func (e *ExpertWeights) deepEPCombine(tokens int64) *trace.Function {
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
			return exchange(f, grads[0], e.c.Experts.receivedTokens(tokens))
		},
	}
}
