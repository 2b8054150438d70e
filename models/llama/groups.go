package llama

import "github.com/vprof/vprof/profiler/trace"

// Groups are the groups that experts are divided into: a router chooses the best Chosen of
// Count groups first, and then experts among those.
type Groups struct {
	Count, Chosen int64
}

// grouped follows DeepseekV3TopkRouter.forward over tokens [tokens, width]: a sigmoid of scores
// in fp32, to which a bias is added for the choice.
func (r *router) grouped(f *frame, x *tensor) (scores, weights, chosen *tensor) {
	e := r.c.Experts
	scores = f.Let(x.To(trace.F32).Linear(r.Weight.Access(f).To(trace.F32), nil))
	weights = f.Let(scores.Sigmoid())
	choice := f.Let(weights.Add(r.ScoreBias.Tensor))
	best, places := choice.View(-1, e.Groups.Count, e.Count/e.Groups.Count).TopK(2, -1)
	f.Discard(places)
	byGroup := f.Let(best.Sum(false, -1))
	outside := r.outside(f, byGroup)
	f.Set(&choice, choice.MaskedFill(outside))
	best, chosen = choice.TopK(e.PerToken, -1)
	f.Discard(best)
	f.Let(chosen)
	f.Set(&weights, f.Let(weights.Gather(chosen)))
	if e.Normalized {
		weights.DivInPlace(f.Let(weights.Sum(true, -1).AddScalar()))
	}
	f.Set(&weights, weights.MulScalar())
	return scores, weights, chosen
}

// outside tells of each token which experts are not of the groups that are best by scores [tokens, groups].
func (r *router) outside(f *frame, byGroup *tensor) *tensor {
	e := r.c.Experts
	best, groups := byGroup.TopK(e.Groups.Chosen, -1)
	f.Discard(best)
	f.Let(groups)
	mask := f.Let(byGroup.ZerosLike())
	mask.ScatterInPlace(groups)
	inside := f.Let(mask.Unsqueeze(-1).Expand(-1, e.Groups.Count, e.Count/e.Groups.Count).Reshape(-1, e.Count))
	return trace.Compare("bitwise_not", inside.To(trace.Bool))
}

// greedy follows DeepseekV2TopkRouter.forward: a softmax of scores in fp32, of all experts or of the best groups.
func (r *router) greedy(f *frame, x *tensor) (scores, weights, chosen *tensor) {
	e := r.c.Experts
	scores = f.Let(x.To(trace.F32).Linear(r.Weight.Access(f).To(trace.F32), nil))
	all := f.Let(scores.SoftmaxTo(-1, trace.F32))
	if e.Groups.Count > 0 {
		best, places := all.View(-1, e.Groups.Count, e.Count/e.Groups.Count).MaxDim(false, -1)
		f.Discard(places)
		byGroup := f.Let(best)
		f.Set(&all, all.MaskedFill(r.outside(f, byGroup)))
	}
	weights, chosen = all.TopK(e.PerToken, -1)
	f.LetAll([]*tensor{weights, chosen})
	f.Set(&weights, weights.MulScalar())
	return scores, weights, chosen
}
