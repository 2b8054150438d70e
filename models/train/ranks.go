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

// Ranks is a model on one rank under a strategy. On one GPU it is nil, and its methods do nothing.
type Ranks struct {
	// Parameters are the optimizer's parameters, in the order of parameters().
	Parameters []*trace.Tensor
	// meshes are the names of the parameters' device meshes, if transformers' Trainer has one group for each mesh.
	meshes []string
	// styles are the parallel styles that parallelize_module applies, by module path.
	styles map[string]trace.Style
	// Wrappers are called around the forward passes of modules, by module path.
	Wrappers map[string]trace.Wrapper

	sync  func(on bool)
	sinks func() bool
	share []*trace.Tensor
	end   func()
	check func() error
	each  bool // every micro-batch reduces its gradients
	// update, if not nil, replaces the optimizer's step, which it can call.
	update func(step func())
	// finish ends the backward passes of all micro-batches, if the pipeline's schedule decides when.
	finish func()
}

func distribute(t *trace.Tape, c models.Case, l ModelLayout) (*Ranks, error) {
	s := c.Strategy
	w := distributed.World{Size: int64(c.GPUs)}
	if s.Rank != nil {
		w.Rank = *s.Rank
	}
	switch s.Name {
	case models.FSDP1:
		return applyFSDP1(t, w, s, l)
	case models.FSDP2:
		return applyFullyShard(t, w, s, l)
	case models.TP:
		return applyTensorParallel(t, w, s, l)
	case models.ZeRO2:
		return setUpZeRO(t, w, s, l, 2)
	case models.ZeRO3:
		if l.Frozen {
			return setUpFrozenZeRO3(t, w, s, l)
		}
		return setUpZeRO3(t, w, c, l)
	}
	if s.IsDeepSpeed() {
		return setUpZeRO(t, w, s, l, 1)
	}
	return applyDDP(t, w, s, l)
}

// applyDDP applies DistributedDataParallel, and ZeroRedundancyOptimizer for ZeRO-1.
func applyDDP(t *trace.Tape, w distributed.World, s *models.Strategy, l ModelLayout) (*Ranks, error) {
	o := distributed.DDPOptions{
		BucketCap: s.BucketCap << 20, BucketView: s.BucketView, FindUnused: s.FindUnused,
		StaticGraph: s.StaticGraph,
	}
	d, err := distributed.DistributedDataParallel(t, w, o, replicatedParams(s, l.Params), l.Buffers)
	if err != nil {
		return nil, err
	}
	r := &Ranks{
		Parameters: trainedParams(l), Wrappers: map[string]trace.Wrapper{"": d}, sync: d.SetSync,
		sinks: d.CopiesResults,
		each:  s.EachSync,
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

// replicatedParams returns the parameters that every rank holds: all except shared experts.
func replicatedParams(s *models.Strategy, all []distributed.Param) []distributed.Param {
	return lists.Filter(all, func(p distributed.Param) bool {
		return s.EP == 0 || !strings.Contains(p.Name, expertsPrefix)
	})
}

// expertsSuffix is the suffix of the module that holds the expert weights of a mixture.
const (
	expertsSuffix = ".experts"
	expertsPrefix = expertsSuffix + "."
)

// OwnsOptimizerStep reports whether the strategy replaces the optimizer's step, see Update.
func (r *Ranks) OwnsOptimizerStep() bool { return r != nil && r.update != nil }

// Groups returns the optimizer's parameter groups.
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

// RankParameters returns the parameters that the rank's optimizer updates; nil for all.
func (r *Ranks) RankParameters() []*trace.Tensor {
	if r == nil {
		return nil
	}
	return r.share
}

func shardsReference(c models.Case) bool {
	return c.Strategy != nil && (c.Strategy.Name == models.FSDP2 || c.Strategy.Name == models.ZeRO3)
}

// wrappedBlocks returns the modules that are wrapped, or begin stages, by default.
func (t *taskTrainer) wrappedBlocks() []string {
	if t.graph != nil {
		return t.graph.Blocks()
	}
	return t.net.Blocks()
}

// applyStrategy applies the case's strategy to the model, or to a frozen reference model.
func (t *taskTrainer) applyStrategy(s *Session, net *nn.Tree, frozen bool) *Ranks {
	l := ModelLayout{
		Modules: net.Modules(), Blocks: t.wrappedBlocks(), Linears: net.Linears(), Frozen: frozen,
		Adapted: t.c.LoRA != nil,
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
	l.addParams(net, func(*nn.Parameter) bool { return true })
	if tiesShards(t.c) {
		l.untieWeights(s.Tape, net)
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

// shardStage applies fully_shard to some blocks of a pipeline stage, over the stage's ranks.
func (t *taskTrainer) shardStage(s *Session, blocks []string) *Ranks {
	all := t.wrappedBlocks()
	l := ModelLayout{Blocks: blocks}
	l.addParams(t.net, func(p *nn.Parameter) bool { return !p.IsElsewhere })
	elsewhere := func(m string) bool {
		return slices.ContainsFunc(all, func(b string) bool { return nn.IsBelow(m, b) && !slices.Contains(blocks, b) })
	}
	l.Params = slices.DeleteFunc(l.Params, func(p distributed.Param) bool { return elsewhere(p.Name) })
	l.Modules = slices.DeleteFunc(t.net.Modules(), func(m string) bool {
		return m != "" &&
			!slices.ContainsFunc(l.Params, func(p distributed.Param) bool { return nn.IsBelow(p.Name, m) })
	})
	r, err := shardOverGroups(s.Tape, t.stageWorld(), t.c.Strategy, l)
	if err != nil {
		s.Tape.Raise(err)
	}
	for m, w := range r.Wrappers {
		switch {
		case slices.Contains(blocks, m):
			s.Tape.Wrap(t.net.PathOf(m), blockGate{m, t, w})
		case m != "":
			s.Tape.Wrap(t.net.PathOf(m), w)
		}
	}
	return r
}

func (t *taskTrainer) stageWorld() distributed.World {
	s := t.c.Strategy
	ranks := int64(t.c.GPUs) / s.PipelineRanks(t.c.GPUs)
	return distributed.World{Size: ranks, Rank: *s.Rank % ranks}
}

// parallelizeAll shards the layers of all pipeline stages; layers of other ranks run on tensors without memory.
func (t *taskTrainer) parallelizeAll(tape *trace.Tape) {
	if t.c.Strategy.TP == 0 {
		return
	}
	l := ModelLayout{Modules: t.net.Modules(), Blocks: t.wrappedBlocks(), Linears: t.net.Linears()}
	l.addParams(t.net, func(*nn.Parameter) bool { return true })
	_, styles, err := parallelizeModules(tape, t.stageWorld(), t.c.Strategy, l)
	if err != nil {
		tape.Raise(err)
	}
	for m, style := range styles {
		tape.Parallelize(t.net.PathOf(m), style)
	}
}

// wrap adds wrappers around the calls of a model's modules.
func (s *Session) wrap(_ *trace.Tape, net *nn.Tree, r *Ranks) error {
	for m, w := range r.Wrappers {
		p := net.PathOf(m)
		if p == nil {
			return errors.New("wrap: the model has no module " + m + " to wrap")
		}
		if m == "" && r.sinks != nil {
			w = ddpSink{w, s.Tape, r.sinks}
		}
		s.Tape.Wrap(p, w)
	}
	for m, style := range r.styles {
		s.Tape.Parallelize(net.PathOf(m), style)
	}
	return nil
}

// ddpSink is DDP's wrapper of a model that looks for unused parameters: it copies the model's outputs (_DDPSink). The
// caller gets the copies; one of the two tensors is freed, which the recording assumes to be the original.
type ddpSink struct {
	trace.Wrapper
	tape  *trace.Tape
	sinks func() bool
}

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

// ParameterType returns the data type to which the strategy casts parameters for forward and backward; cast is false
// if it does not.
func (r *Ranks) ParameterType() (d trace.DType, cast bool) {
	if r == nil || r.Wrappers[""] == nil {
		return d, false
	}
	return r.Wrappers[""].Inputs()
}

// LeaveRoot ends the forward pass of the whole model if the model's call has no frame of its own. It returns the
// results for the caller: copies if DDP looks for unused parameters. results can be nil.
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
		default: // the copy is allocated and freed
			f.Discard(x.Clone())
			out[i] = x
		}
	}
	return out
}
