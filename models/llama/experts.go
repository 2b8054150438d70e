package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// Experts is a mixture of experts that replaces the feed-forward layers.
type Experts struct {
	// Count is the number of experts; zero without a mixture. PerToken is the number of experts for each token, Inner
	// their inner width.
	Count, PerToken, Inner int64
	hf.ExpertParallelism
	// Dense marks the layers with an ordinary feed-forward layer instead; nil for none.
	Dense   LayerFlags
	Routing Routing
	// Normalized normalizes the weights of a token's experts to a sum of one.
	Normalized bool
	// Shared is the inner width of the shared expert, which processes all tokens; zero without one. SharedGate
	// multiplies its result by a gate.
	Shared     int64
	SharedGate bool
	// SharedLast runs the shared expert after the others.
	SharedLast bool
	// NoGate means experts without a gate projection. LatentWidth is the width to which tokens are projected for the
	// experts; zero means no projection.
	NoGate      bool
	LatentWidth int64
	// Clamped selects GPT-OSS's experts: with biases, transposed weights, interleaved gate and up projections, and
	// clamped values.
	Clamped bool
	// Listed reports whether each expert has linear layers of its own.
	Listed bool
	Groups Groups
}

// Routing is how a router chooses experts.
type Routing string

const (
	// RouteSoftmax chooses by an fp32 softmax of the router's logits, as Qwen does.
	RouteSoftmax Routing = ""
	// RouteSoftmaxFloat is RouteSoftmax with weights that stay in fp32, as in Mixtral.
	RouteSoftmaxFloat Routing = "RouteSoftmaxFloat"
	// RouteBiased chooses by logits with biases; the weights are a softmax of the chosen logits, as in GPT-OSS.
	RouteBiased Routing = "RouteBiased"
	// RouteGroups first chooses groups of experts, by an fp32 sigmoid of the logits plus a bias, as DeepSeek V3 does.
	RouteGroups Routing = "RouteGroups"
	// RouteGreedy is RouteSoftmaxFloat with fp32 logits, and optional groups, as in DeepSeek V2.
	RouteGreedy Routing = "RouteGreedy"
)

func (c *Config) isMoELayer(i int) bool { return c.Experts.Count > 0 && !c.Experts.Dense.isSet(i) }

// sparseMoEBlock is Qwen2MoeSparseMoeBlock and the blocks of similar mixtures.
type sparseMoEBlock struct {
	nn.Module
	TorchNames
	Gate             *router
	Experts          *ExpertWeights
	SharedExpert     *mlp
	SharedExpertGate nn.Layer
	c                *Config
}

func newSparseMoEBlock(c *Config) *sparseMoEBlock {
	s := &sparseMoEBlock{
		TorchNames: c.Names, Gate: &router{Weight: nn.NewParameter(c.Experts.Count, c.Width), c: c},
		Experts: NewExperts(c), c: c,
	}
	if c.Experts.Shared > 0 {
		s.SharedExpert = newMLPOf(c, c.Experts.Shared)
	}
	if c.Experts.Routing == RouteBiased {
		s.Gate.Bias = nn.NewParameter(c.Experts.Count)
	}
	if c.Experts.Routing == RouteGroups {
		s.Gate.ScoreBias = nn.NewBuffer(trace.F32, c.Experts.Count)
	}
	if c.Experts.SharedGate {
		s.SharedExpertGate = nn.NewLinear(c.Width, 1, false)
	}
	return s
}

// Forward records the block's forward over [batch, length, width].
func (s *sparseMoEBlock) Forward(f *frame, x *tensor) *tensor {
	shape := x.Shape()
	rows := f.Bind(x.View(-1, x.Size(-1)))
	var shared *tensor
	if s.SharedExpert != nil && !s.c.Experts.SharedLast {
		shared = f.Bind(f.Call(s.SharedExpert, rows))
	}
	scores, weights, chosen := s.Gate.call(f, rows)
	f.BindAll([]*tensor{scores, weights, chosen})
	y := f.Bind(s.Experts.Call(f, rows, chosen, weights))
	if shared != nil {
		if s.SharedExpertGate != nil {
			f.Set(&shared, f.Call(s.SharedExpertGate, rows).Sigmoid().Mul(shared))
		}
		f.Set(&y, y.Add(shared))
	}
	if s.c.Experts.SharedLast {
		return y.View(shape...).Add(f.Call(s.SharedExpert, x))
	}
	return y.Reshape(shape...)
}

// router is Qwen2MoeTopKRouter.
type router struct {
	nn.Module
	Weight *nn.Parameter
	Bias   *nn.Parameter
	// ScoreBias is added to the scores that choose experts.
	ScoreBias *nn.Buffer        `torch:"e_score_correction_bias"`
	Wrappers  *nn.ParamWrappers `torch:""`
	c         *Config
}

func (r *router) WrapParameters(wrap nn.WrapParameter) {
	r.Wrappers = r.Wrappers.AddOuter(wrap("weight", r.Weight, false))
}

// routers maps each routing to a function that returns the router's logits of tokens x [tokens, width], and the
// weights and indices of the chosen experts, all bound in its frame.
var routers = map[Routing]func(r *router, f *frame, x *tensor) (scores, weights, chosen *tensor){
	RouteSoftmax:      (*router).softmaxTopK,
	RouteSoftmaxFloat: (*router).softmaxTopK,
	RouteBiased:       (*router).biasedTopK,
	RouteGroups:       (*router).groupedTopK,
	RouteGreedy:       (*router).greedyTopK,
}

func (r *router) call(f *frame, x *tensor) (scores, weights, chosen *tensor) {
	all := r.Wrappers.RunForward(f, []*tensor{x}, func(f *frame) []*tensor {
		g, rows := f.ModuleFrame(r, x), x
		g.Set(&rows, x.Reshape(-1, x.Size(-1)))
		a, b, c := routers[r.c.Experts.Routing](r, g, rows)
		g.End(a, b, c)
		return []*tensor{a, b, c}
	})
	return all[0], all[1], all[2]
}

// softmaxTopK records the forward of Qwen2MoeTopKRouter and of Mixtral's router.
func (r *router) softmaxTopK(f *frame, x *tensor) (scores, weights, chosen *tensor) {
	e := r.c.Experts
	scores = f.Bind(x.Linear(r.Weight.ReadAttribute(f), r.Bias.TensorOrNil()))
	var probabilities *tensor
	if e.Routing == RouteSoftmaxFloat {
		probabilities = f.Bind(scores.To(trace.F32).Softmax(-1))
	} else {
		probabilities = f.Bind(scores.SoftmaxTo(-1, trace.F32))
	}
	weights, chosen = probabilities.TopK(e.PerToken, -1)
	f.BindAll([]*tensor{weights, chosen})
	if e.Normalized {
		weights.DivInPlace(weights.Sum(true, -1))
	}
	if e.Routing == RouteSoftmax {
		f.Set(&weights, weights.To(scores.DType()))
	}
	return scores, weights, chosen
}

// biasedTopK records GptOssTopKRouter.forward.
func (r *router) biasedTopK(f *frame, x *tensor) (scores, weights, chosen *tensor) {
	scores = f.Bind(x.Linear(r.Weight.ReadAttribute(f), r.Bias.TensorOrNil()))
	best, chosen := scores.TopK(r.c.Experts.PerToken, -1)
	f.BindAll([]*tensor{best, chosen})
	return scores, f.Bind(best.SoftmaxTo(1, best.DType())), chosen
}

// ExpertWeights is Qwen2MoeExperts: each parameter holds the weights of all experts of a layer.
type ExpertWeights struct {
	nn.Module
	GateUpProj, UpProj, GateUpProjBias, DownProj, DownProjBias *nn.Parameter
	Wrappers                                                   *nn.ParamWrappers `torch:""`
	ActFn                                                      *nn.FuncLayer
	c                                                          *Config
}

// NewExperts returns the expert weights of a mixture.
func NewExperts(c *Config) *ExpertWeights {
	e := c.Experts
	if e.Clamped {
		return &ExpertWeights{
			GateUpProj:     nn.NewParameter(e.localCount(), c.Width, 2*e.Inner),
			GateUpProjBias: nn.NewParameter(e.localCount(), 2*e.Inner),
			DownProj:       nn.NewParameter(e.localCount(), e.Inner, c.Width),
			DownProjBias:   nn.NewParameter(e.localCount(), c.Width), c: c,
		}
	}
	if e.NoGate {
		in := c.Width
		if e.LatentWidth > 0 {
			in = e.LatentWidth
		}
		return &ExpertWeights{
			UpProj:   nn.NewParameter(e.localCount(), e.localWidth(), in),
			DownProj: nn.NewParameter(e.localCount(), in, e.localWidth()), ActFn: hf.Activation(c.Activation), c: c,
		}
	}
	return &ExpertWeights{
		GateUpProj: nn.NewParameter(e.localCount(), 2*e.localWidth(), c.Width),
		DownProj:   nn.NewParameter(e.localCount(), c.Width, e.localWidth()),
		ActFn:      hf.Activation(c.Activation), c: c,
	}
}

// QuantizeParameters replaces the experts' weights by quantized ones.
func (e *ExpertWeights) QuantizeParameters(pack func(*nn.Parameter) *nn.Parameter) {
	in := e.firstWeight()
	*in, e.DownProj = pack(*in), pack(e.DownProj)
}

// firstWeight returns the field of the first weight that tokens are multiplied by.
func (e *ExpertWeights) firstWeight() **nn.Parameter {
	if e.c.Experts.NoGate {
		return &e.UpProj
	}
	return &e.GateUpProj
}

// WrapParameters wraps the experts' weights in adapters.
func (e *ExpertWeights) WrapParameters(wrap nn.WrapParameter) {
	swapped := !e.c.Experts.Clamped
	name := "gate_up_proj"
	if e.c.Experts.NoGate {
		name = "up_proj"
	}
	e.Wrappers = e.Wrappers.AddOuter(wrap(name, *e.firstWeight(), swapped))
	e.Wrappers = e.Wrappers.AddOuter(wrap("down_proj", e.DownProj, swapped))
}

// Call runs the experts. chosen [tokens, experts per token] holds the experts of each token of x [tokens, width];
// their results are summed with the given weights.
func (e *ExpertWeights) Call(f *frame, x, chosen, weights *tensor) *tensor {
	call := e.groupedForward
	switch {
	case e.c.Experts.AllToAll:
		call = e.allToAllForward
	case e.c.Experts.Ranks > 1:
		call = e.deepEPForward
	case e.c.Experts.Tensor > 1:
		call = e.tensorParallelForward
	}
	return e.Wrappers.RunForward(f, []*tensor{x, chosen, weights}, func(f *frame) []*tensor {
		return []*tensor{call(f, x, chosen, weights)}
	})[0]
}

// groupedForward records grouped_mm_experts_forward of transformers' moe.py, which sorts tokens [tokens, width] by
// expert. None of its sizes depends on the number of tokens of an expert.
func (e *ExpertWeights) groupedForward(f *frame, x, chosen, weights *tensor) *tensor {
	g := f.ModuleFrame(e, x, chosen, weights)
	return g.Return(e.groupedProducts(g, x, chosen, weights, nil))
}

// groupedProducts records grouped_mm_experts_forward in its frame. local are the local tensors of weights that are
// DTensors. Rows of other ranks' experts are masked.
func (e *ExpertWeights) groupedProducts(g *frame, x, chosen, weights *tensor, local []*tensor) *tensor {
	t, part := g.Tape(), local != nil && e.c.Experts.Ranks > 1
	access := func(i int, p *nn.Parameter) *tensor {
		if local != nil {
			return local[i]
		}
		return p.ReadAttribute(g)
	}
	tokens, each, width := x.Size(0), chosen.Size(-1), x.Size(-1)
	flat := g.Bind(weights.Reshape(-1))
	numbers := g.Bind(chosen.Reshape(-1))
	sorted, order := numbers.Sort(0)
	g.BindAll([]*tensor{sorted, order})
	rows := g.Bind(x.Index(order.FloorDivide(trace.IntNumber)))
	ordered := g.Bind(flat.Index(order))
	ends := e.expertEnds(g, sorted)
	var others *tensor
	if part {
		others = g.Bind(g.Bind(trace.Compare("ge_Scalar", sorted)).Unsqueeze(-1))
		sorted.ClampInPlace()
		rows.MaskedFillInPlace(others)
	}
	masked := func(y **tensor) {
		if part {
			g.Set(y, (*y).MaskedFill(others))
		}
	}
	up := access(0, *e.firstWeight())
	bias := e.sortedBiases(g, e.GateUpProjBias, sorted)
	y := g.Bind(e.groupedLinear(g, rows, up, bias, ends))
	masked(&y)
	if e.c.Experts.NoGate {
		g.Set(&y, g.Call(e.ActFn, y))
	} else {
		g.Set(&y, e.applyGate(g, y))
	}
	down := access(1, e.DownProj)
	if bias != nil {
		g.Set(&bias, e.DownProjBias.Index(sorted))
	}
	g.Set(&y, e.groupedLinear(g, y, down, bias, ends))
	masked(&y)
	weighted := g.Bind(y.Mul(ordered.Unsqueeze(-1)))
	back := g.Bind(order.EmptyLike())
	back.IndexPutInPlace([]*tensor{order}, t.Arange(order.Size(0)), false)
	g.Set(&weighted, weighted.Index(back))
	sum := g.Bind(weighted.View(tokens, each, width).Sum(false, 1))
	out := sum.To(x.DType())
	if local == nil {
		nn.EndAttributeReads(t, []*nn.Parameter{*e.firstWeight(), e.DownProj}, []*tensor{up, down})
	}
	return out
}

// expertEnds computes the end of each expert's rows in the sorted order.
func (e *ExpertWeights) expertEnds(f *frame, sorted *tensor) *tensor {
	t := f.Tape()
	numbers := f.Bind(sorted.To(trace.I32))
	counts := f.Bind(t.Zeros(trace.I32, e.c.Experts.localCount()))
	t.Kernel("histc", numbers.Numel(), []*tensor{counts}, []*tensor{numbers})
	return f.Bind(counts.CumSumTo(trace.I32, 0))
}

// sortedBiases selects the experts' biases for the sorted tokens; nil without biases.
func (e *ExpertWeights) sortedBiases(f *frame, of *nn.Parameter, sorted *tensor) *tensor {
	if of == nil {
		return nil
	}
	return f.Bind(of.Index(sorted))
}

// applyGate records _default_apply_gate of transformers' integrations/moe.py.
func (e *ExpertWeights) applyGate(f *frame, x *tensor) *tensor {
	if e.c.Experts.Clamped {
		return applyClampedGate(f, x)
	}
	g := f.FunctionFrame(x)
	parts := g.BindAll(x.Chunk(2, -1))
	return g.Return(g.Call(e.ActFn, parts[0]).Mul(parts[1]))
}

// applyClampedGate records transformers' GptOssExperts._apply_gate.
func applyClampedGate(f *frame, x *tensor) *tensor {
	g := f.FunctionFrame(x)
	gate := g.Bind(x.SliceStep(-1, 0, x.Size(-1), 2))
	up := g.Bind(x.SliceStep(-1, 1, x.Size(-1), 2))
	g.Set(&gate, gate.ClampOneSided())
	g.Set(&up, up.Clamp())
	glu := g.Bind(gate.Mul(gate.MulScalar().Sigmoid()))
	return g.Return(g.Bind(up.AddScalar().Mul(glu)))
}

// groupedLinear records transformers' _grouped_linear, which autocast does not affect; bias can be nil.
func (e *ExpertWeights) groupedLinear(f *frame, x, weight, bias, ends *tensor) *tensor {
	g := f.FunctionFrame(x, bias)
	if !e.c.Experts.Clamped {
		weight = weight.Transpose(-2, -1)
	}
	rows := x.To(weight.DType())
	multiply := rows.GroupedMM
	if !g.Tape().GroupsProducts() {
		multiply = rows.GroupedMMFallback
	}
	y := multiply(weight, ends)
	if bias != nil {
		g.Bind(y).AddInPlace(bias)
	}
	return g.Return(y)
}

// Groups divides the experts into Count groups. A router chooses experts only in the best Chosen groups.
type Groups struct {
	Count, Chosen int64
}

// groupedTopK records DeepseekV3TopkRouter.forward over tokens [tokens, width]: an fp32 sigmoid of the logits, plus a
// bias for the choice.
func (r *router) groupedTopK(f *frame, x *tensor) (scores, weights, chosen *tensor) {
	e := r.c.Experts
	scores = f.Bind(x.To(trace.F32).Linear(r.Weight.ReadAttribute(f).To(trace.F32), nil))
	weights = f.Bind(scores.Sigmoid())
	choice := f.Bind(weights.Add(r.ScoreBias.Tensor))
	best, places := choice.View(-1, e.Groups.Count, e.Count/e.Groups.Count).TopK(2, -1)
	f.Discard(places)
	byGroup := f.Bind(best.Sum(false, -1))
	outside := r.outsideBestGroups(f, byGroup)
	f.Set(&choice, choice.MaskedFill(outside))
	best, chosen = choice.TopK(e.PerToken, -1)
	f.Discard(best)
	f.Bind(chosen)
	f.Set(&weights, f.Bind(weights.Gather(chosen)))
	if e.Normalized {
		weights.DivInPlace(f.Bind(weights.Sum(true, -1).AddScalar()))
	}
	f.Set(&weights, weights.MulScalar())
	return scores, weights, chosen
}

// outsideBestGroups returns a mask of the experts outside of each token's best groups, given scores [tokens, groups].
func (r *router) outsideBestGroups(f *frame, byGroup *tensor) *tensor {
	e := r.c.Experts
	best, groups := byGroup.TopK(e.Groups.Chosen, -1)
	f.Discard(best)
	f.Bind(groups)
	mask := f.Bind(byGroup.ZerosLike())
	mask.ScatterInPlace(groups)
	inside := f.Bind(mask.Unsqueeze(-1).Expand(-1, e.Groups.Count, e.Count/e.Groups.Count).Reshape(-1, e.Count))
	return trace.Compare("bitwise_not", inside.To(trace.Bool))
}

// greedyTopK records DeepseekV2TopkRouter.forward: an fp32 softmax of the logits over all experts or the best groups.
func (r *router) greedyTopK(f *frame, x *tensor) (scores, weights, chosen *tensor) {
	e := r.c.Experts
	scores = f.Bind(x.To(trace.F32).Linear(r.Weight.ReadAttribute(f).To(trace.F32), nil))
	all := f.Bind(scores.SoftmaxTo(-1, trace.F32))
	if e.Groups.Count > 0 {
		best, places := all.View(-1, e.Groups.Count, e.Count/e.Groups.Count).MaxDim(false, -1)
		f.Discard(places)
		byGroup := f.Bind(best)
		f.Set(&all, all.MaskedFill(r.outsideBestGroups(f, byGroup)))
	}
	weights, chosen = all.TopK(e.PerToken, -1)
	f.BindAll([]*tensor{weights, chosen})
	f.Set(&weights, weights.MulScalar())
	return scores, weights, chosen
}
