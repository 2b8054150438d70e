package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// Experts describes the mixture of experts in the feed-forward half of layers.
type Experts struct {
	// Count is the number of experts, zero for none; PerToken the number that process a token; Inner their width.
	Count, PerToken, Inner int64
	hf.ExpertParallelism
	// Dense gives for each layer whether it has a feed-forward half like Llama's instead; nil means that none has.
	Dense   LayerFlags
	Routing Routing
	// Normalized has the weights of a token's experts sum to one.
	Normalized bool
	// Shared is the width of an expert that sees all tokens, SharedGate weighs what it gives; zero is none.
	Shared     int64
	SharedGate bool
	// SharedLast has that expert see tokens after the others.
	SharedLast bool
	// NoGate has experts of one layer in and one out. LatentWidth is the width of tokens for them; zero is all.
	NoGate      bool
	LatentWidth int64
	// Clamped has experts as in GPT-OSS: with biases, weights the other way round, and gates that are neighbors of what
	// they gate, both held within bounds.
	Clamped bool
	// Listed reports whether each expert has linear layers of its own.
	Listed bool
	Groups Groups
}

// Routing is how experts are chosen.
type Routing string

const (
	// RouteSoftmax chooses by a softmax of scores in fp32, as Qwen does.
	RouteSoftmax Routing = ""
	// RouteSoftmaxFloat is RouteSoftmax that leaves the weights in fp32, as Mixtral does.
	RouteSoftmaxFloat Routing = "RouteSoftmaxFloat"
	// RouteBiased chooses by scores with biases, and weighs by a softmax of those chosen, as GPT-OSS does.
	RouteBiased Routing = "RouteBiased"
	// RouteGroups chooses groups of experts first, by a sigmoid of scores in fp32 and a bias, as DeepSeek V3 does.
	RouteGroups Routing = "RouteGroups"
	// RouteGreedy is RouteSoftmaxFloat of scores in fp32, as DeepSeek V2 does; there may be groups.
	RouteGreedy Routing = "RouteGreedy"
)

func (c *Config) sparse(i int) bool { return c.Experts.Count > 0 && !c.Experts.Dense.has(i) }

// sparse is Qwen2MoeSparseMoeBlock, and the blocks of other mixtures.
type sparse struct {
	nn.Module
	TorchNames
	Gate             *router
	Experts          *ExpertWeights
	SharedExpert     *mlp
	SharedExpertGate nn.Layer
	c                *Config
}

func newSparseExperts(c *Config) *sparse {
	s := &sparse{
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

// Forward maps [batch, length, width] to the same.
func (s *sparse) Forward(f *frame, x *tensor) *tensor {
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
	// ScoreBias takes part in the choice.
	ScoreBias *nn.Buffer   `torch:"e_score_correction_bias"`
	Wrappers  *nn.Wrappers `torch:""`
	c         *Config
}

// Wrap implements [nn.WrapsParameters].
func (r *router) Wrap(wrap nn.WrapParameter) {
	r.Wrappers = r.Wrappers.Wrapping(wrap("weight", r.Weight, false))
}

// routers choose experts: each gives the scores of tokens x [tokens, width], and
// the weights and numbers of the experts that see them, bound to names of its frame.
var routers = map[Routing]func(r *router, f *frame, x *tensor) (scores, weights, chosen *tensor){
	RouteSoftmax:      (*router).softmax,
	RouteSoftmaxFloat: (*router).softmax,
	RouteBiased:       (*router).topBiased,
	RouteGroups:       (*router).grouped,
	RouteGreedy:       (*router).greedy,
}

func (r *router) call(f *frame, x *tensor) (scores, weights, chosen *tensor) {
	all := r.Wrappers.Around(f, []*tensor{x}, func(f *frame) []*tensor {
		g, rows := f.ModuleFrame(r, x), x
		g.Set(&rows, x.Reshape(-1, x.Size(-1)))
		a, b, c := routers[r.c.Experts.Routing](r, g, rows)
		g.End(a, b, c)
		return []*tensor{a, b, c}
	})
	return all[0], all[1], all[2]
}

// softmax follows Qwen2MoeTopKRouter.forward, and that of Mixtral.
func (r *router) softmax(f *frame, x *tensor) (scores, weights, chosen *tensor) {
	e := r.c.Experts
	scores = f.Bind(x.Linear(r.Weight.Access(f), r.Bias.T()))
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

// topBiased follows GptOssTopKRouter.forward.
func (r *router) topBiased(f *frame, x *tensor) (scores, weights, chosen *tensor) {
	scores = f.Bind(x.Linear(r.Weight.Access(f), r.Bias.T()))
	best, chosen := scores.TopK(r.c.Experts.PerToken, -1)
	f.BindAll([]*tensor{best, chosen})
	return scores, f.Bind(best.SoftmaxTo(1, best.DType())), chosen
}

// ExpertWeights is Qwen2MoeExperts: the weights of all experts of a layer in one.
type ExpertWeights struct {
	nn.Module
	GateUpProj, UpProj, GateUpProjBias, DownProj, DownProjBias *nn.Parameter
	Wrappers                                                   *nn.Wrappers `torch:""`
	ActFn                                                      *nn.Func
	c                                                          *Config
}

// NewExperts makes the expert weights for c.Experts.
func NewExperts(c *Config) *ExpertWeights {
	e := c.Experts
	if e.Clamped {
		return &ExpertWeights{
			GateUpProj:     nn.NewParameter(e.local(), c.Width, 2*e.Inner),
			GateUpProjBias: nn.NewParameter(e.local(), 2*e.Inner),
			DownProj:       nn.NewParameter(e.local(), e.Inner, c.Width),
			DownProjBias:   nn.NewParameter(e.local(), c.Width), c: c,
		}
	}
	if e.NoGate {
		in := c.Width
		if e.LatentWidth > 0 {
			in = e.LatentWidth
		}
		return &ExpertWeights{
			UpProj:   nn.NewParameter(e.local(), e.width(), in),
			DownProj: nn.NewParameter(e.local(), in, e.width()), ActFn: hf.Activation(c.Activation), c: c,
		}
	}
	return &ExpertWeights{
		GateUpProj: nn.NewParameter(e.local(), 2*e.width(), c.Width),
		DownProj:   nn.NewParameter(e.local(), c.Width, e.width()),
		ActFn:      hf.Activation(c.Activation), c: c,
	}
}

// PackParameters implements [nn.PacksParameters].
func (e *ExpertWeights) PackParameters(pack func(*nn.Parameter) *nn.Parameter) {
	in := e.in()
	*in, e.DownProj = pack(*in), pack(e.DownProj)
}

// in returns the field of the first weight that is applied to tokens.
func (e *ExpertWeights) in() **nn.Parameter {
	if e.c.Experts.NoGate {
		return &e.UpProj
	}
	return &e.GateUpProj
}

// Wrap implements [nn.WrapsParameters].
func (e *ExpertWeights) Wrap(wrap nn.WrapParameter) {
	swapped := !e.c.Experts.Clamped
	name := "gate_up_proj"
	if e.c.Experts.NoGate {
		name = "up_proj"
	}
	e.Wrappers = e.Wrappers.Wrapping(wrap(name, *e.in(), swapped))
	e.Wrappers = e.Wrappers.Wrapping(wrap("down_proj", e.DownProj, swapped))
}

// Call runs the experts: every token of x [tokens, width] goes through the experts in chosen [tokens, experts per
// token], and the results are summed with weights of the same shape.
func (e *ExpertWeights) Call(f *frame, x, chosen, weights *tensor) *tensor {
	call := e.grouped
	switch {
	case e.c.Experts.AllToAll:
		call = e.exchanged
	case e.c.Experts.Ranks > 1:
		call = e.dispatched
	case e.c.Experts.Tensor > 1:
		call = e.summed
	}
	return e.Wrappers.Around(f, []*tensor{x, chosen, weights}, func(f *frame) []*tensor {
		return []*tensor{call(f, x, chosen, weights)}
	})[0]
}

// grouped follows grouped_mm_experts_forward: tokens [tokens, width] are sorted by their experts. No size in it depends
// on how many tokens an expert gets.
func (e *ExpertWeights) grouped(f *frame, x, chosen, weights *tensor) *tensor {
	g := f.ModuleFrame(e, x, chosen, weights)
	return g.Return(e.products(g, x, chosen, weights, nil))
}

// products follows grouped_mm_experts_forward in its frame; local are the local tensors of weights that are DTensors.
// If the rank has only some experts, rows of other experts are masked.
func (e *ExpertWeights) products(g *frame, x, chosen, weights *tensor, local []*tensor) *tensor {
	t, part := g.Tape(), local != nil && e.c.Experts.Ranks > 1
	access := func(i int, p *nn.Parameter) *tensor {
		if local != nil {
			return local[i]
		}
		return p.Access(g)
	}
	tokens, each, width := x.Size(0), chosen.Size(-1), x.Size(-1)
	flat := g.Bind(weights.Reshape(-1))
	numbers := g.Bind(chosen.Reshape(-1))
	sorted, order := numbers.Sort(0)
	g.BindAll([]*tensor{sorted, order})
	rows := g.Bind(x.Index(order.FloorDivide(trace.IntNumber)))
	ordered := g.Bind(flat.Index(order))
	ends := e.ends(g, sorted)
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
	up := access(0, *e.in())
	bias := e.biases(g, e.GateUpProjBias, sorted)
	y := g.Bind(e.linear(g, rows, up, bias, ends))
	masked(&y)
	if e.c.Experts.NoGate {
		g.Set(&y, g.Call(e.ActFn, y))
	} else {
		g.Set(&y, e.gated(g, y))
	}
	down := access(1, e.DownProj)
	if bias != nil {
		g.Set(&bias, e.DownProjBias.Index(sorted))
	}
	g.Set(&y, e.linear(g, y, down, bias, ends))
	masked(&y)
	weighted := g.Bind(y.Mul(ordered.Unsqueeze(-1)))
	back := g.Bind(order.EmptyLike())
	back.IndexPutInPlace([]*tensor{order}, t.Arange(order.Size(0)), false)
	g.Set(&weighted, weighted.Index(back))
	sum := g.Bind(weighted.View(tokens, each, width).Sum(false, 1))
	out := sum.To(x.DType())
	if local == nil {
		nn.Accessed(t, []*nn.Parameter{*e.in(), e.DownProj}, []*tensor{up, down})
	}
	return out
}

// ends computes the end of each expert's tokens in the sorted order.
func (e *ExpertWeights) ends(f *frame, sorted *tensor) *tensor {
	t := f.Tape()
	numbers := f.Bind(sorted.To(trace.I32))
	counts := f.Bind(t.Zeros(trace.I32, e.c.Experts.local()))
	t.Kernel("histc", numbers.Numel(), []*tensor{counts}, []*tensor{numbers})
	return f.Bind(counts.CumSumTo(trace.I32, 0))
}

// biases selects the experts' biases for the sorted tokens, if there are any.
func (e *ExpertWeights) biases(f *frame, of *nn.Parameter, sorted *tensor) *tensor {
	if of == nil {
		return nil
	}
	return f.Bind(of.Index(sorted))
}

// gated follows _default_apply_gate.
func (e *ExpertWeights) gated(f *frame, x *tensor) *tensor {
	if e.c.Experts.Clamped {
		return clamped(f, x)
	}
	g := f.FuncFrame(x)
	parts := g.BindAll(x.Chunk(2, -1))
	return g.Return(g.Call(e.ActFn, parts[0]).Mul(parts[1]))
}

// clamped follows GptOssExperts._apply_gate.
func clamped(f *frame, x *tensor) *tensor {
	g := f.FuncFrame(x)
	gate := g.Bind(x.SliceStep(-1, 0, x.Size(-1), 2))
	up := g.Bind(x.SliceStep(-1, 1, x.Size(-1), 2))
	g.Set(&gate, gate.ClampOneSided())
	g.Set(&up, up.Clamp())
	glu := g.Bind(gate.Mul(gate.MulScalar().Sigmoid()))
	return g.Return(g.Bind(up.AddScalar().Mul(glu)))
}

// linear follows _grouped_linear, which autocast does not affect; bias may be nil.
func (e *ExpertWeights) linear(f *frame, x, weight, bias, ends *tensor) *tensor {
	g := f.FuncFrame(x, bias)
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

// Groups divides experts into groups: a router first chooses the best Chosen of Count groups, and then experts in
// those.
type Groups struct {
	Count, Chosen int64
}

// grouped follows DeepseekV3TopkRouter.forward over tokens [tokens, width]: a sigmoid of fp32 scores, to which a bias
// is added for the choice.
func (r *router) grouped(f *frame, x *tensor) (scores, weights, chosen *tensor) {
	e := r.c.Experts
	scores = f.Bind(x.To(trace.F32).Linear(r.Weight.Access(f).To(trace.F32), nil))
	weights = f.Bind(scores.Sigmoid())
	choice := f.Bind(weights.Add(r.ScoreBias.Tensor))
	best, places := choice.View(-1, e.Groups.Count, e.Count/e.Groups.Count).TopK(2, -1)
	f.Discard(places)
	byGroup := f.Bind(best.Sum(false, -1))
	outside := r.outside(f, byGroup)
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

// outside returns a mask of the experts, for each token, that are not in its best groups by scores [tokens, groups].
func (r *router) outside(f *frame, byGroup *tensor) *tensor {
	e := r.c.Experts
	best, groups := byGroup.TopK(e.Groups.Chosen, -1)
	f.Discard(best)
	f.Bind(groups)
	mask := f.Bind(byGroup.ZerosLike())
	mask.ScatterInPlace(groups)
	inside := f.Bind(mask.Unsqueeze(-1).Expand(-1, e.Groups.Count, e.Count/e.Groups.Count).Reshape(-1, e.Count))
	return trace.Compare("bitwise_not", inside.To(trace.Bool))
}

// greedy follows DeepseekV2TopkRouter.forward: a softmax of fp32 scores, of all experts or of the best groups.
func (r *router) greedy(f *frame, x *tensor) (scores, weights, chosen *tensor) {
	e := r.c.Experts
	scores = f.Bind(x.To(trace.F32).Linear(r.Weight.Access(f).To(trace.F32), nil))
	all := f.Bind(scores.SoftmaxTo(-1, trace.F32))
	if e.Groups.Count > 0 {
		best, places := all.View(-1, e.Groups.Count, e.Count/e.Groups.Count).MaxDim(false, -1)
		f.Discard(places)
		byGroup := f.Bind(best)
		f.Set(&all, all.MaskedFill(r.outside(f, byGroup)))
	}
	weights, chosen = all.TopK(e.PerToken, -1)
	f.BindAll([]*tensor{weights, chosen})
	f.Set(&weights, weights.MulScalar())
	return scores, weights, chosen
}
