package train

import (
	"errors"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/distributed"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// Ranks is a model under a strategy, as one rank sees it. On one GPU it is nil, and its methods do nothing.
type Ranks struct {
	// Parameters are the optimizer's parameters, in the order of parameters().
	Parameters []*trace.Tensor
	// meshes are the names of the parameters' meshes, where transformers' Trainer has one parameter group for each
	// mesh.
	meshes []string
	// styles are the parallel styles that parallelize_module applies to modules, by module path.
	styles map[string]trace.Style
	// Wrappers are to be called around the forward passes of modules, by their paths.
	Wrappers map[string]trace.Wrapper

	sync  func(on bool)
	sinks func() bool
	share []*trace.Tensor
	end   func()
	check func() error
	each  bool // micro-batches reduce their gradients
	// update replaces the optimizer's step, which is its argument.
	update func(step func())
	// finish ends the backward passes of all micro-batches, where the pipeline's schedule decides when.
	finish func()
}

// distribute applies the case's strategy to a model, as one rank does.
func distribute(t *trace.Tape, c models.Case, l ModelLayout) (*Ranks, error) {
	s := c.Strategy
	w := distributed.World{Size: int64(c.GPUs)}
	if s.Rank != nil {
		w.Rank = *s.Rank
	}
	switch s.Name {
	case models.FSDP1:
		return fullySharded(t, w, s, l)
	case models.FSDP2:
		return fullyShard(t, w, s, l)
	case models.TP:
		return tensorParallel(t, w, s, l)
	case models.ZeRO2:
		return zeroStage(t, w, s, l, 2)
	case models.ZeRO3:
		if l.Frozen {
			return frozenZeRO3(t, w, s, l)
		}
		return zero3(t, w, c, l)
	}
	if s.DeepSpeed() {
		return zeroStage(t, w, s, l, 1)
	}
	return dataParallel(t, w, s, l)
}

// dataParallel returns DistributedDataParallel, with ZeroRedundancyOptimizer if the strategy sets it.
func dataParallel(t *trace.Tape, w distributed.World, s *models.Strategy, l ModelLayout) (*Ranks, error) {
	o := distributed.DDPOptions{
		BucketCap: s.BucketCap << 20, BucketView: s.BucketView, FindUnused: s.FindUnused,
		StaticGraph: s.StaticGraph,
	}
	d, err := distributed.DistributedDataParallel(t, w, o, replicatedParams(s, l.Params), l.Buffers)
	if err != nil {
		return nil, err
	}
	r := &Ranks{
		Parameters: trained(l), Wrappers: map[string]trace.Wrapper{"": d}, sync: d.SetSync, sinks: d.Sinks,
		each: s.EachSync,
	}
	if s.Name == models.ZeRO1 {
		stepped := l.Optimizer.AcceptedParams(r.Parameters)
		parts := distributed.Partition(stepped, w.Size)
		rank := w.Rank
		if s.Rank == nil {
			rank = distributed.LargestPart(parts)
		}
		r.share = append([]*trace.Tensor{}, parts[rank]...)
		r.end = func() { distributed.BroadcastParameters(t, stepped, w.Size) }
	}
	return r, nil
}

// replicatedParams returns the parameters that all ranks have: all except distributed experts.
func replicatedParams(s *models.Strategy, all []distributed.Param) []distributed.Param {
	return lists.Filter(all, func(p distributed.Param) bool {
		return s.EP == 0 || !strings.Contains(p.Name, expertsInside)
	})
}

// experts is the module that has the weights of the experts of a mixture.
const (
	experts       = ".experts"
	expertsInside = experts + "."
)

// OwnsOptimizerStep reports whether the strategy has its own optimizer step, see Update.
func (r *Ranks) OwnsOptimizerStep() bool { return r != nil && r.update != nil }

// Groups returns the groups of parameters that the optimizer is given.
func (r *Ranks) Groups(trained []*trace.Tensor) (groups [][]*trace.Tensor) {
	if r == nil || r.meshes == nil {
		return [][]*trace.Tensor{trained}
	}
	var names []string
	for i, p := range r.Parameters {
		k := slices.Index(names, r.meshes[i])
		if k < 0 {
			k, names, groups = len(names), append(names, r.meshes[i]), append(groups, nil)
		}
		groups[k] = append(groups[k], p)
	}
	return groups
}

// Begin starts micro-batch i of n.
func (r *Ranks) Begin(i, n int) {
	if r != nil && r.sync != nil {
		r.sync(r.each || i == n-1)
	}
}

// End records a rank's work after the optimizer's step.
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

// RankParameters returns the parameters that the rank's optimizer updates, nil for all.
func (r *Ranks) RankParameters() []*trace.Tensor {
	if r == nil {
		return nil
	}
	return r.share
}

// sharesReference reports whether ranks share the weights of a frozen model.
func sharesReference(c models.Case) bool {
	return c.Strategy != nil && (c.Strategy.Name == models.FSDP2 || c.Strategy.Name == models.ZeRO3)
}

// blocks returns the modules that are wrapped, and before which stages are cut, unless the case names others.
func (t *taskTrainer) blocks() []string {
	if t.graph != nil {
		return t.graph.Blocks()
	}
	return t.net.Blocks()
}

// shareModel applies the case's strategy to a model, and to a second, frozen one if there is one.
func (t *taskTrainer) shareModel(s *Session, net *nn.Tree, frozen bool) *Ranks {
	l := ModelLayout{
		Modules: net.Modules(), Blocks: t.blocks(), Linears: net.Linears(), Frozen: frozen, Adapted: t.c.LoRA != nil,
	}
	if t.c.Optimizer != "" {
		var err error
		if l.Optimizer, err = optim.Named(t.c.Optimizer); err != nil {
			s.Tape.Raise(err)
		}
	}
	if frozen {
		l.Blocks = net.Blocks()
	}
	l.params(net, func(*nn.Parameter) bool { return true })
	if tiesShards(t.c) {
		l.untie(s.Tape, net)
	}
	for _, b := range net.Buffers {
		if !b.Constant {
			l.Buffers = append(l.Buffers, b.Tensor)
		}
	}
	wrap := s.wrap
	if t.graph != nil {
		l.Sharing, wrap = t.graph.Sharing(), t.graph.Wrap
	}
	if loadsShards(t.c.Strategy) {
		l.sortByName()
	}
	r, err := distribute(s.Tape, t.c, l)
	if err == nil {
		err = wrap(s.Tape, net, r)
	}
	if err != nil {
		s.Tape.Raise(err)
	}
	s.Tape.Mark("wrap")
	return r
}

// shareStage applies fully_shard to a stage of a pipeline, with some blocks, over its ranks.
func (t *taskTrainer) shareStage(s *Session, blocks []string) *Ranks {
	all := t.blocks()
	l := ModelLayout{Blocks: blocks}
	l.params(t.net, func(p *nn.Parameter) bool { return !p.Away })
	elsewhere := func(m string) bool {
		return slices.ContainsFunc(all, func(b string) bool { return nn.Below(m, b) && !slices.Contains(blocks, b) })
	}
	l.Params = slices.DeleteFunc(l.Params, func(p distributed.Param) bool { return elsewhere(p.Name) })
	l.Modules = slices.DeleteFunc(t.net.Modules(), func(m string) bool {
		return m != "" && !slices.ContainsFunc(l.Params, func(p distributed.Param) bool { return nn.Below(p.Name, m) })
	})
	r, err := shardOver(s.Tape, t.stageWorld(), t.c.Strategy, l)
	if err != nil {
		s.Tape.Raise(err)
	}
	for m, w := range r.Wrappers {
		switch {
		case slices.Contains(blocks, m):
			s.Tape.Wrap(t.net.Path(m), blockGate{m, t, w})
		case m != "":
			s.Tape.Wrap(t.net.Path(m), w)
		}
	}
	return r
}

// stageWorld returns the ranks of a pipeline stage, and the recorded one among them.
func (t *taskTrainer) stageWorld() distributed.World {
	s := t.c.Strategy
	ranks := int64(t.c.GPUs) / s.PipelineRanks(t.c.GPUs)
	return distributed.World{Size: ranks, Rank: *s.Rank % ranks}
}

// parallelizeAll shards the layers of all stages of a pipeline, including other ranks' stages, which run on tensors
// without memory.
func (t *taskTrainer) parallelizeAll(tape *trace.Tape) {
	if t.c.Strategy.TP == 0 {
		return
	}
	l := ModelLayout{Modules: t.net.Modules(), Blocks: t.blocks(), Linears: t.net.Linears()}
	l.params(t.net, func(*nn.Parameter) bool { return true })
	_, styles, err := parallelize(tape, t.stageWorld(), t.c.Strategy, l)
	if err != nil {
		tape.Raise(err)
	}
	for m, style := range styles {
		tape.Parallelize(t.net.Path(m), style)
	}
}

// wrap puts wrappers around the calls of a model's modules.
func (s *Session) wrap(_ *trace.Tape, net *nn.Tree, r *Ranks) error {
	for m, w := range r.Wrappers {
		p := net.Path(m)
		if p == nil {
			return errors.New("the model has no module " + m + " to wrap")
		}
		if m == "" && r.sinks != nil {
			w = ddpSink{w, s.Tape, r.sinks}
		}
		s.Tape.Wrap(p, w)
	}
	for m, style := range r.styles {
		s.Tape.Parallelize(net.Path(m), style)
	}
	return nil
}

// ddpSink is DDP around a model in Go if it looks for unused parameters: it copies the model's outputs (_DDPSink). The
// caller gets the copies; one of the two is freed, here the original.
type ddpSink struct {
	trace.Wrapper
	tape  *trace.Tape
	sinks func() bool
}

// Leave implements [trace.Wrapper].
func (s ddpSink) Leave(results []*trace.Tensor) {
	s.Wrapper.Leave(results)
	if !s.sinks() {
		return
	}
	s.tape.NoGrad(func() {
		f := s.tape.Frame()
		for _, x := range results {
			if x != nil {
				f.Bind(x.Clone())
			}
		}
		f.End()
	})
}

// ParameterType returns the dtype to which the strategy casts parameters for forward and backward; cast is false if it
// does not.
func (r *Ranks) ParameterType() (d trace.DType, cast bool) {
	if r == nil || r.Wrappers[""] == nil {
		return d, false
	}
	return r.Wrappers[""].Inputs()
}

// LeaveRoot ends the forward pass of the whole model if no frame belongs to its call. It returns the caller's results:
// copies of the frame's if DDP looks for unused parameters. Results may be nil.
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
		default: // the copy is made, and freed
			f.Discard(x.Clone())
			out[i] = x
		}
	}
	return out
}
