package distributed

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// The streams of FSDP2 besides the compute stream, in the order of their first use by the allocator.
const (
	computeStream program.Stream = iota
	copyInStream
	reduceScatterStream
	allGatherStream
	allReduceStream
)

// streamNames holds the names of [trace.Tape.Streams].
var streamNames = []string{"compute", "all-gather copy-in", "reduce-scatter", "all-gather", "all-reduce"}

// Reshard selects when fully_shard frees whole parameters after forward (reshard_after_forward).
type Reshard uint8

// The values of fully_shard's reshard_after_forward.
const (
	// ReshardAll frees the parameters of every group (True).
	ReshardAll Reshard = iota
	// ReshardAuto keeps the root's parameters, which backward needs first (None, PyTorch's default).
	ReshardAuto
	// ReshardNone keeps all parameters until backward has used them (False).
	ReshardNone
)

// ParameterSource is the device of parameters before they are sharded. It decides how shards are copied to the GPU.
type ParameterSource uint8

// The devices of parameters before they are sharded.
const (
	// FromDevice means that the whole parameters of the model are on the GPU before they are sharded.
	FromDevice ParameterSource = iota
	// FromHost means that a group's whole parameters are copied to the GPU when the group is sharded.
	FromHost
	// FromMeta means that only shards are allocated, in the order of the model (to_empty, load_state_dict).
	FromMeta
	// FromRank0 allocates shards in the model's order, each after rank 0 has broadcast the whole parameter.
	FromRank0
)

// Options are the options of fully_shard and of FullyShardedDataParallel.
type Options struct {
	From    ParameterSource
	Reshard Reshard
	// ParamType and ReduceType are param_dtype and reduce_dtype of MixedPrecisionPolicy; nil keeps the types of
	// parameters and gradients.
	ParamType, ReduceType *trace.DType
	// ReshardRanks is the number of ranks that share parameters after forward (reshard_after_forward as an int), if not
	// all ranks do; zero is all.
	ReshardRanks int64
	// Replicate is the number of groups of ranks that each hold a whole model (HSDP); one for plain sharding.
	Replicate int64
	// Offload keeps shards, their gradients and the optimizer's state in host memory (CPUOffloadPolicy).
	Offload bool
	// GatherStreams is set for a frozen model besides the trained one, which gathers on streams of its own.
	GatherStreams bool
	// WarmUp first allocates one block as large as all shards, and frees it (transformers' from_pretrained).
	WarmUp bool
	// ManualSync keeps parameters gathered and gradients unreduced after every backward pass, until [FSDP.Finish], as
	// in pipeline stages.
	ManualSync bool
	// Prefetch is FullyShardedDataParallel's backward_prefetch: [PrefetchPre], [PrefetchPost], or empty for none.
	Prefetch string
}

// ModuleGroup describes a module whose parameters are gathered together.
type ModuleGroup struct {
	// Module is the path of the module; empty for the root. With are the paths of modules that are wrapped together
	// with it (fully_shard of a list), in the order of their calls.
	Module string
	With   []string
	// ExpertRanks is the number of ranks that have different parameters in this group (experts), so that only the
	// remaining ranks share each of them; zero if all ranks share all parameters.
	ExpertRanks int64
	// Place is the index of the module among all modules of the model, parents first.
	Place int
	// Scaled reports whether gradients are divided by a fixed factor (set_gradient_divide_factor) instead of the number
	// of ranks that share parameters.
	Scaled bool
	// StaysGathered reports whether the module's parameters stay gathered after forward (reshard_after_forward=False).
	StaysGathered bool
	Params        []Param
}

// FSDP is a model under fully_shard.
type FSDP struct {
	tape    *trace.Tape
	world   World // the ranks that a parameter is divided among, and the rank there
	copies  int64 // of the world
	options Options
	root    *ParamGroup
	groups  []*ParamGroup // the root first, as in modules()

	movingParams []*trace.Tensor // whole parameters of which shards are made

	// State that all parameter groups share (FSDPCommContext).
	forward  []*ParamGroup // in the order of their use
	gathered *gatherResult // the last of forward, kept until the next was copied out
	reducing *reduction    // the one reduce-scatter in flight
	// outermost is the group of the outermost running forward: the root, or the first group of a region that a
	// checkpoint recomputes; nil if none runs (iter_forward_root).
	outermost *ParamGroup
	queued    bool // the root's callback after backward is
	syncs     bool // gradients are reduced
}

// trainingPhase is the phase of a group within a training step (TrainingState).
type trainingPhase uint8

const (
	idlePhase trainingPhase = iota
	inForward
	beforeBackward
	afterBackward
)

// FullyShard shards the parameters of groups, the root last. A group without parameters only runs its hooks.
func FullyShard(t *trace.Tape, w World, o Options, groups []ModuleGroup) (*FSDP, error) {
	o.Replicate = max(1, o.Replicate)
	if err := w.Check(); err != nil {
		return nil, err
	}
	if w.Size%o.Replicate != 0 {
		return nil, fmt.Errorf("%d ranks cannot be divided into %d replicas; use a number of GPUs that is a multiple "+
			"of replicate", w.Size, o.Replicate)
	}
	each := w.Size / o.Replicate
	if n := o.ReshardRanks; n > 0 && (n > each || each%n != 0) {
		return nil, fmt.Errorf("%d ranks that share parameters cannot be divided into groups of %d; use another "+
			"reshard in --strategy", each, n)
	}
	f := &FSDP{
		tape: t, world: World{Size: each, Rank: w.Rank % each}, copies: o.Replicate, options: o, syncs: !o.ManualSync,
	}
	if rows := maxRows(groups); rows < each {
		return nil, fmt.Errorf("%d ranks shard parameters by rows, and the longest parameter has only %d rows, so "+
			"some ranks would get none; use fewer GPUs, or replicate=", each, rows)
	}
	if o.GatherStreams {
		t.Streams(append(slices.Clone(streamNames), "frozen all-gather copy-in", "frozen all-gather")...)
	} else {
		t.Streams(streamNames...)
	}
	for i, g := range groups {
		world := f.world
		if g.ExpertRanks > 1 {
			world.Size /= g.ExpertRanks
			world.Rank %= world.Size
		}
		p := &ParamGroup{
			fsdp: f, world: world, modules: append([]string{g.Module}, g.With...), place: g.Place, scaled: g.Scaled,
			reshards: !g.StaysGathered && (o.Reshard == ReshardAll || o.Reshard == ReshardAuto && i < len(groups)-1),
		}
		for _, param := range g.Params {
			s, err := newShardedParam(param, world, o)
			if err != nil {
				return nil, err
			}
			p.params = append(p.params, s)
		}
		f.groups = append(f.groups, p)
	}
	f.allocateShards(groups)
	last := len(f.groups) - 1
	f.root = f.groups[last]
	f.groups = append([]*ParamGroup{f.root}, f.groups[:last]...)
	return f, nil
}

// allocateShards allocates the shards and replaces the parameters by shards, by group or in the order of the model.
func (f *FSDP) allocateShards(groups []ModuleGroup) {
	inOrder := f.options.From == FromMeta || f.options.From == FromRank0
	if inOrder {
		f.placeInOrder()
	}
	for i, g := range groups {
		var old []*trace.Tensor
		if f.options.From == FromHost {
			f.beginMove(f.groups[i].params...)
		}
		for k, param := range g.Params {
			s := f.groups[i].params[k]
			if !inOrder {
				f.shard(s)
			}
			old = append(old, *param.Tensor)
			s.whole.SplitLike(*param.Tensor)
			*param.Tensor = s.whole
		}
		f.tape.Release(old...)
		f.endMove()
	}
}

// shard allocates the shard of a parameter. A tied parameter uses the other parameter's shard if that exists.
func (f *FSDP) shard(s *shardedParam) {
	var tied *shardedParam
	if s.tiedTo != "" {
		for _, g := range f.groups {
			for _, other := range g.params {
				if other.name == s.tiedTo {
					tied = other
				}
			}
		}
	}
	s.shard(f.tape, f.options.Offload, tied)
}

// placeInOrder allocates all shards in the order of the parameters.
func (f *FSDP) placeInOrder() {
	var all []*shardedParam
	for _, g := range f.groups {
		all = append(all, g.params...)
	}
	slices.SortStableFunc(all, func(a, b *shardedParam) int { return a.order - b.order })
	if f.options.WarmUp {
		bytes := int64(0)
		for _, s := range all {
			if s.tiedTo == "" {
				bytes += s.rows * s.row * s.dtype.Size()
			}
		}
		warmUpAllocator(f.tape, bytes)
	}
	for _, s := range all {
		if f.options.From == FromRank0 {
			f.beginMove(s)
		}
		f.shard(s)
		f.endMove()
	}
}

// beginMove copies whole parameters to the device, until endMove frees them.
func (f *FSDP) beginMove(params ...*shardedParam) {
	for _, s := range params {
		f.movingParams = append(f.movingParams, f.tape.Hold(f.tape.New("to", program.Weights, s.dtype, s.shape...)))
	}
}

// endMove frees the whole parameters after they were sharded.
func (f *FSDP) endMove() {
	f.tape.Release(f.movingParams...)
	f.movingParams = nil
}

// copyIn returns the stream on which shards are copied into the input of an all-gather.
func (f *FSDP) copyIn() program.Stream {
	if f.options.GatherStreams {
		return allReduceStream + 1
	}
	return copyInStream
}

func (f *FSDP) allGather() program.Stream {
	if f.options.GatherStreams {
		return allReduceStream + 2
	}
	return allGatherStream
}

// maxRows returns the length of the longest parameter's first dimension.
func maxRows(groups []ModuleGroup) int64 {
	most := int64(1)
	for _, g := range groups {
		for _, p := range g.Params {
			if s := (*p.Tensor).Shape(); len(s) > 0 {
				most = max(most, s[0])
			}
		}
	}
	return most
}

// Groups returns the groups in the order in which they were passed to FullyShard.
func (f *FSDP) Groups() []*ParamGroup { return append(f.groups[1:len(f.groups):len(f.groups)], f.root) }

// Parameters returns the trained shards in the order of the given names.
func (f *FSDP) Parameters(names []string) []*trace.Tensor {
	byName := map[string]*trace.Tensor{}
	for _, g := range f.groups {
		for _, s := range g.params {
			if s.trains && s.tiedTo == "" {
				byName[s.name] = s.local
			}
		}
	}
	return lists.NonZero(names, func(n string) *trace.Tensor { return byName[n] })
}

// Finish ends the backward passes of a pipeline's micro-batches: it reduces gradients and frees parameters
// (finalize_backward).
func (f *FSDP) Finish() {
	f.syncs = true
	order := slices.Clone(f.groups)
	slices.SortStableFunc(order, func(a, b *ParamGroup) int { return a.place - b.place })
	if f.tape.Rules().StagesReceiveLate {
		slices.Reverse(order)
	}
	for _, g := range order {
		g.postBackward()
		g.phase = idlePhase
	}
	for _, g := range f.groups {
		g.finalize()
	}
	f.forward = f.forward[:0]
	f.resetState()
	f.syncs = false
}

// SetSync sets whether the next backward passes reduce gradients (set_requires_gradient_sync).
func (f *FSDP) SetSync(on bool) { f.syncs = on }

// enter begins a forward pass: the streams wait for the work queued so far.
func (f *FSDP) enter(g *ParamGroup) {
	f.outermost = g
	f.tape.WaitStream(f.copyIn(), computeStream)
	f.tape.WaitStream(f.allGather(), computeStream)
}

// leave ends a forward pass and frees the gathered buffers that copies still needed.
func (f *FSDP) leave() {
	if g := f.gathered; g != nil {
		f.gathered = nil
		f.streamsWait(g.copied)
		f.tape.Release(g.output)
	}
	f.outermost = nil
}

// streamsWait makes the all-gather streams wait for an event of the compute stream.
func (f *FSDP) streamsWait(event uint32) {
	f.tape.WaitEvent(f.copyIn(), event)
	f.tape.WaitEvent(f.allGather(), event)
}

// afterBackward records the end of a backward pass, which waits for unfinished reductions.
func (f *FSDP) afterBackward() {
	for _, g := range f.groups {
		if g.phase != afterBackward {
			g.postBackward()
		}
		g.phase = idlePhase
		if !f.options.ManualSync {
			g.finalize()
		}
	}
	f.queued = false
	if f.options.ManualSync {
		return
	}
	f.forward = f.forward[:0]
	f.resetState()
}

// resetState releases the input of the last reduce-scatter.
func (f *FSDP) resetState() {
	if r := f.reducing; r != nil {
		f.reducing = nil
		f.tape.WaitEvent(computeStream, r.done)
		f.tape.Release(r.input)
	}
}

// Check returns an error if the module of a wrapped group was never called, so that its parameters were never gathered.
// It must be called after a step.
func (f *FSDP) Check() error {
	for _, g := range f.groups {
		for _, s := range g.params {
			if !s.used {
				return fmt.Errorf("module %q has parameters, such as %s, but its forward is never called, so "+
					"fully_shard never gathers them; wrap another module", g.modules[0], s.name)
			}
		}
	}
	return nil
}
