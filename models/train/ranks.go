package train

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/distributed"
)

// Ranks is a model as one rank of several has it. On one GPU it is nil, and its methods
// do nothing.
type Ranks struct {
	// Parameters are what the optimizer is given, in the order of parameters().
	Parameters []*trace.Tensor
	// Wrappers are to be called around the forward passes of modules, by their paths.
	Wrappers map[string]trace.Wrapper

	sync  func(on bool)
	sinks func() bool
	share []*trace.Tensor
	end   func()
	check func() error
	each  bool // micro-batches reduce their gradients
	// update takes the place of the optimizer's step, which it is given.
	update func(step func())
}

// Layout is what a strategy has to know of a model on the device.
type Layout struct {
	// Params are all parameters, in the order of parameters().
	Params []distributed.Param
	// Buffers are those of the modules.
	Buffers []*trace.Tensor
	// Modules are the paths of the modules, Blocks of those that are wrapped unless
	// the strategy names others.
	Modules, Blocks []string
	// Linears are the paths of the linear layers.
	Linears []string
	// Sharing are the modules that have a parameter, by its name, beside the one that it is
	// named after.
	Sharing map[string][]string
	// Frozen says that this is a model beside the one that is trained.
	Frozen bool
}

// Distribute puts a model under the strategy of a case, as one rank does.
func Distribute(t *trace.Tape, c models.Case, l Layout) (*Ranks, error) {
	s := c.Strategy
	w := distributed.World{Size: int64(c.GPUs)}
	if s.Rank != nil {
		w.Rank = *s.Rank
	}
	switch s.Name {
	case models.FSDP2:
		return fullyShard(t, w, s, l)
	case models.TP:
		return tensorParallel(t, w, s, l)
	case models.ZeRO2:
		return zeroStage(t, w, s, l, 2)
	case models.ZeRO3:
		if l.Frozen {
			return frozen3(t, w, s, l)
		}
		return zero3(t, w, c, l)
	}
	if s.DeepSpeed() {
		return zeroStage(t, w, s, l, 1)
	}
	return dataParallel(t, w, s, l)
}

// dataParallel is DistributedDataParallel, with ZeroRedundancyOptimizer if the strategy
// says so.
func dataParallel(t *trace.Tape, w distributed.World, s *models.Strategy, l Layout) (*Ranks, error) {
	o := distributed.DDPOptions{Cap: s.BucketCap << 20, BucketView: s.BucketView, FindUnused: s.FindUnused, StaticGraph: s.StaticGraph}
	d, err := distributed.DistributedDataParallel(t, w, o, replicated(s, l.Params), l.Buffers)
	if err != nil {
		return nil, err
	}
	r := &Ranks{Wrappers: map[string]trace.Wrapper{"": d}, sync: d.Sync, sinks: d.Sinks, each: s.EachSync}
	for _, p := range l.Params {
		if x := *p.Tensor; x.RequiresGrad() {
			r.Parameters = append(r.Parameters, x)
		}
	}
	if s.Name == models.ZeRO1 {
		parts := distributed.Partition(r.Parameters, w.Size)
		rank := w.Rank
		if s.Rank == nil {
			rank = distributed.Largest(parts)
		}
		r.share = append([]*trace.Tensor{}, parts[rank]...)
		r.end = func() { distributed.SendParameters(t, r.Parameters, w.Size) }
	}
	return r, nil
}

// replicated are the parameters that all ranks have: not the experts that they share out.
func replicated(s *models.Strategy, all []distributed.Param) (out []distributed.Param) {
	for _, p := range all {
		if s.EP == 0 || !strings.Contains(p.Name, expertsInside) {
			out = append(out, p)
		}
	}
	return out
}

// experts is the module that has the weights of the experts of a mixture.
const (
	experts       = ".experts"
	expertsInside = experts + "."
)

// fullyShard is fully_shard of the blocks, then of the model.
func fullyShard(t *trace.Tape, w distributed.World, s *models.Strategy, l Layout) (*Ranks, error) {
	groups, err := groupsOf(s, l)
	if err != nil {
		return nil, err
	}
	o := distributed.Options{Replicate: s.Replicate, Offload: s.Offload != "", Beside: l.Frozen}
	switch s.Resharding() {
	case "auto":
		o.Reshard = distributed.ReshardAuto
	case "false":
		o.Reshard = distributed.ReshardNone
	}
	if s.MP != "" {
		d := typeOf(s.MP)
		o.ParamType = &d
		o.ReduceType = &d
		if s.Reduce == "" { // as MixedPrecisionPolicy(param_dtype, reduce_dtype=torch.float32)
			f32 := trace.F32
			o.ReduceType = &f32
		}
	}
	if s.Reduce != "" {
		d := typeOf(s.Reduce)
		o.ReduceType = &d
	}
	f, err := distributed.FullyShard(t, w, o, groups)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(l.Params))
	for i, p := range l.Params {
		names[i] = p.Name
	}
	r := &Ranks{Parameters: f.Parameters(names), Wrappers: map[string]trace.Wrapper{}, sync: f.Sync, each: s.EachSync, check: f.Check}
	for _, g := range f.Groups() {
		r.Wrappers[g.Module()] = g
	}
	if o.Offload { // the host clips and steps
		r.Parameters = nil
	}
	return r, nil
}

// plan names the linear layers of a block that tensor parallelism splits column by column
// and row by row, by the ends of their paths.
type plan struct{ columns, rows []string }

// plans are those of transformers' models (base_model_tp_plan) as far as they split linear
// layers and gather nothing between them, and that of OPT, which has none. The first is
// taken if no other is whole.
var plans = []plan{
	{[]string{"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "up"}, []string{"o_proj", "down_proj", "down"}}, // Llama and its like
	{[]string{"query_key_value", "dense_h_to_4h"}, []string{"dense", "dense_4h_to_h"}},                              // GPT-NeoX
	{[]string{"q_proj", "k_proj", "v_proj", "c_fc"}, []string{"o_proj", "c_proj"}},                                  // StarCoder2
	{[]string{"q_proj", "k_proj", "v_proj", "fc1"}, []string{"o_proj", "fc2"}},                                      // nanochat
	{[]string{"q_proj", "k_proj", "v_proj", "fc1"}, []string{"dense", "fc2"}},                                       // Phi
	{[]string{"q_proj", "k_proj", "v_proj", "fc1"}, []string{"out_proj", "fc2"}},                                    // OPT
}

// planOf is the plan of a strategy for blocks with some linear layers.
func planOf(s *models.Strategy, l Layout) plan {
	if len(s.Col)+len(s.Row) > 0 {
		return plan{s.Col, s.Row}
	}
	for _, p := range plans[1:] {
		if len(l.Blocks) > 0 && !slices.ContainsFunc(slices.Concat(p.columns, p.rows), func(name string) bool {
			return !slices.ContainsFunc(l.Linears, func(m string) bool { return nn.Below(m, l.Blocks[0]) && strings.HasSuffix(m, "."+name) })
		}) {
			return p
		}
	}
	return plans[0]
}

// tensorParallel is parallelize_module of each block over the ranks of a group, then
// fully_shard over the groups. Ranks of a group are next to each other.
func tensorParallel(t *trace.Tape, w distributed.World, s *models.Strategy, l Layout) (*Ranks, error) {
	layers, err := splitLayers(s, l)
	if err != nil {
		return nil, err
	}
	group := distributed.World{Size: s.TP, Rank: w.Rank % s.TP}
	if err := distributed.ParallelizeModule(t, group, layers, s.Init != ""); err != nil {
		return nil, err
	}
	return fullyShard(t, distributed.World{Size: w.Size / s.TP, Rank: w.Rank / s.TP}, s, l)
}

// splitLayers are the linear layers of the blocks that ranks share: in each block those
// column by column first.
func splitLayers(s *models.Strategy, l Layout) ([]distributed.Linear, error) {
	params := map[string]**trace.Tensor{}
	for _, p := range l.Params {
		params[p.Name] = p.Tensor
	}
	chosen := planOf(s, l)
	plan := []struct {
		names []string
		split trace.Split
	}{{chosen.columns, trace.ByColumn}, {chosen.rows, trace.ByRow}}
	var out []distributed.Linear
	for _, b := range l.Blocks {
		for _, part := range plan {
			for _, m := range l.Linears {
				if nn.Below(m, b) && slices.ContainsFunc(part.names, func(name string) bool { return m == name || strings.HasSuffix(m, "."+name) }) {
					out = append(out, distributed.Linear{Path: m, Split: part.split, Weight: params[m+".weight"], Bias: params[m+".bias"]})
				}
			}
		}
	}
	switch {
	case len(out) > 0:
		return out, nil
	case len(l.Blocks) == 0:
		return nil, errors.New("tp: the model has no list of equal modules that holds a fifth of its parameters; take another strategy")
	case len(l.Linears) == 0:
		return nil, errors.New("tp: the model has no linear layers; take another strategy")
	}
	return nil, fmt.Errorf("tp: no linear layer of the blocks is called %s; name yours with col=... and row=..., as in %s",
		strings.Join(slices.Concat(plan[0].names, plan[1].names), ", "), l.Linears[len(l.Linears)/2])
}

func typeOf(name string) trace.DType {
	switch name {
	case "bf16":
		return trace.BF16
	case "fp16":
		return trace.F16
	default:
		return trace.F32
	}
}

// groupsOf are the wrapped modules with their parameters, the root last. A parameter is
// of the innermost module that holds it.
func groupsOf(s *models.Strategy, l Layout) ([]distributed.Group, error) {
	modules := l.Blocks
	switch {
	case s.RootAlone():
		modules = nil
	case len(s.Wrap) > 0:
		modules = nil
		for _, pattern := range s.Wrap {
			found := Matching(pattern, l.Modules)
			if len(found) == 0 {
				return nil, fmt.Errorf("wrap: %q names no module; modules are named like %s", pattern, l.Modules[len(l.Modules)/2])
			}
			modules = append(modules, found...)
		}
		depth := func(m string) int { return strings.Count(m, ".") }
		slices.SortStableFunc(modules, func(a, b string) int { return depth(b) - depth(a) })
		modules = slices.Compact(modules)
	}
	if s.EP > 0 {
		modules = append(slices.DeleteFunc(slices.Clone(l.Modules), func(m string) bool { return !strings.HasSuffix(m, experts) }), modules...)
	}
	groups := make([]distributed.Group, len(modules)+1)
	for i, m := range modules {
		groups[i].Module = m
		if s.EP > 0 && strings.HasSuffix(m, experts) {
			groups[i].Among = s.EP
		}
	}
	for _, p := range l.Params {
		at := len(modules)
		for i, m := range modules {
			if nn.Below(p.Name, m) && (at == len(modules) || len(m) > len(modules[at])) {
				at = i
			}
		}
		groups[at].Params = append(groups[at].Params, p)
	}
	if err := untied(s, l, groups); err != nil {
		return nil, err
	}
	after := afterChildren(l.Modules)
	for _, g := range groups {
		slices.SortStableFunc(g.Params, func(a, b distributed.Param) int { return after[owner(a.Name)] - after[owner(b.Name)] })
	}
	return groups, nil
}

// untied refuses wraps that hold a weight and not all modules that share it: fully_shard
// makes a parameter of its own of it for each.
func untied(s *models.Strategy, l Layout, groups []distributed.Group) error {
	if len(s.Wrap) == 0 || s.RootAlone() {
		return nil
	}
	for _, g := range groups {
		for _, p := range g.Params {
			for _, m := range l.Sharing[p.Name] {
				if m != g.Module && !nn.Below(m, g.Module) {
					return fmt.Errorf("wrap: %s holds %s, which %s shares and fully_shard would then give a copy of its own; leave it to the root", g.Module, p.Name, m)
				}
			}
		}
	}
	return nil
}

// owner is the path of the module that has a parameter.
func owner(name string) string { return name[:max(strings.LastIndexByte(name, '.'), 0)] }

// afterChildren numbers modules, given in the order of modules(), so that each comes
// after those in it: fully_shard collects parameters in that order.
func afterChildren(modules []string) map[string]int {
	numbers := map[string]int{}
	var open []string
	leave := func(until func(m string) bool) {
		for len(open) > 0 && !until(open[len(open)-1]) {
			numbers[open[len(open)-1]] = len(numbers)
			open = open[:len(open)-1]
		}
	}
	for _, m := range modules {
		leave(func(outer string) bool { return nn.Below(m, outer) })
		open = append(open, m)
	}
	leave(func(string) bool { return false })
	return numbers
}

// Matching are the modules whose paths a glob pattern matches, but for the root. A star
// stands for one name of a path.
func Matching(pattern string, modules []string) []string {
	slashed := func(m string) string { return strings.ReplaceAll(m, ".", "/") }
	var out []string
	for _, m := range modules {
		if ok, err := path.Match(slashed(pattern), slashed(m)); ok && err == nil && m != "" {
			out = append(out, m)
		}
	}
	return out
}

// Updates says that the strategy has a way of its own to step the optimizer, which Update
// takes.
func (r *Ranks) Updates() bool { return r != nil && r.update != nil }

// Update steps the optimizer.
func (r *Ranks) Update(step func()) { r.update(step) }

// Begin begins micro-batch i of n.
func (r *Ranks) Begin(i, n int) {
	if r != nil && r.sync != nil {
		r.sync(r.each || i == n-1)
	}
}

// End is what a rank does after the optimizer's step.
func (r *Ranks) End(t *trace.Tape) {
	switch {
	case r == nil:
		return
	case r.end != nil:
		r.end()
	}
	if r.check != nil {
		if err := r.check(); err != nil {
			t.Raise(err)
		}
	}
}

// Shared are the parameters that the rank's optimizer updates, nil for all.
func (r *Ranks) Shared() []*trace.Tensor {
	if r == nil {
		return nil
	}
	return r.share
}

// distribute puts a model of layers under the strategy of a case.
func (s *Session) distribute(c models.Case, net *nn.Tree) *Ranks {
	return s.share(c, net, false)
}

// distributeReference puts a frozen model under the case's strategy where that shares out
// weights; others have it whole.
func (s *Session) distributeReference(c models.Case, net *nn.Tree) {
	if sharesReference(c) {
		s.share(c, net, true)
	}
}

// sharesReference tells whether ranks share the weights of a frozen model.
func sharesReference(c models.Case) bool {
	return c.Strategy != nil && (c.Strategy.Name == models.FSDP2 || c.Strategy.Name == models.ZeRO3)
}

func (s *Session) share(c models.Case, net *nn.Tree, frozen bool) *Ranks {
	l := Layout{Modules: net.Modules(), Blocks: net.Blocks(), Linears: net.Linears(), Frozen: frozen}
	names := net.Names()
	l.Sharing = map[string][]string{}
	for i, p := range net.Parameters {
		l.Params = append(l.Params, distributed.Param{Name: names[i], Tensor: &p.Tensor})
		l.Sharing[names[i]] = net.Sharing(p)
	}
	for _, b := range net.Buffers {
		l.Buffers = append(l.Buffers, b.Tensor)
	}
	r, err := Distribute(s.Tape, c, l)
	if err != nil {
		s.Tape.Raise(err)
	}
	for m, w := range r.Wrappers {
		p := net.Path(m)
		if p == nil {
			s.Tape.Raise(errors.New("there is no module " + m + " to wrap"))
		}
		if m == "" && r.sinks != nil {
			w = sinking{w, s.Tape, r.sinks}
		}
		s.Tape.Wrap(p, w)
	}
	s.Tape.Mark("wrap")
	return r
}

// sinking is DDP around a model in Go, which copies all that the model returns while it
// looks for parameters that are not used (_DDPSink). The caller's are the copies, and what
// the model returned ends: one of the two is left, here the latter.
type sinking struct {
	trace.Wrapper
	tape  *trace.Tape
	sinks func() bool
}

// Leave implements [trace.Wrapper].
func (s sinking) Leave(results []*trace.Tensor) {
	s.Wrapper.Leave(results)
	if !s.sinks() {
		return
	}
	s.tape.NoGrad(func() {
		f := s.tape.Frame()
		for _, x := range results {
			if x != nil {
				f.Let(x.Clone())
			}
		}
		f.End()
	})
}

// ParameterType is the type that the strategy has parameters in where they are used, if
// it is not their own.
func (r *Ranks) ParameterType() (d trace.DType, cast bool) {
	if r == nil || r.Wrappers[""] == nil {
		return d, false
	}
	return r.Wrappers[""].Inputs()
}

// LeaveRoot ends the forward pass of the whole model where no frame is that of its
// call. It returns the results as the caller gets them, which are copies of the
// frame's where DDP looks for parameters that are not used. Results may be nil.
func (r *Ranks) LeaveRoot(f *trace.Frame, results []*trace.Tensor) []*trace.Tensor {
	if r == nil || r.Wrappers[""] == nil {
		return results
	}
	r.Wrappers[""].Leave(results)
	if r.sinks == nil || !r.sinks() {
		return results
	}
	out := make([]*trace.Tensor, len(results))
	for i, x := range results {
		switch {
		case x == nil:
		case x.RequiresGrad():
			out[i] = x.Clone()
		default: // the copy is made, and let go of
			f.Discard(x.Clone())
			out[i] = x
		}
	}
	return out
}

// PartsOf are modules with what the parameters in them have, by their names.
func PartsOf(modules, blocks []string, numel map[string]int64) []models.Part {
	below := map[string]int64{}
	for name, n := range numel {
		for m := owner(name); m != ""; m = owner(m) {
			below[m] += n
		}
		below[""] += n
	}
	out := make([]models.Part, len(modules))
	for i, m := range modules {
		out[i] = models.Part{Path: m, Parameters: below[m], Block: slices.Contains(blocks, m)}
	}
	return out
}

// Parts implements [models.Wrappable].
func (t *taskTrainer) Parts() []models.Part {
	numel, names := map[string]int64{}, t.net.Names()
	for i, p := range t.net.Parameters {
		numel[names[i]] = p.Numel()
	}
	return PartsOf(t.net.Modules(), t.net.Blocks(), numel)
}
