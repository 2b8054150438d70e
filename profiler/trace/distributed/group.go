package distributed

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// ParamGroup holds parameters that are gathered, used and reduced together, and the hooks around their module's forward
// (FSDPState and FSDPParamGroup). It implements [trace.Wrapper].
type ParamGroup struct {
	fsdp        *FSDP
	modules     []string // that are wrapped together
	world       World    // the ranks that share its parameters
	params      []*shardedParam
	reshards    bool // after forward
	scaled      bool // gradients are divided by a number of their own
	place       int  // of the first of its modules among all
	phase       trainingPhase
	isUnsharded bool // the parameters are
	// isDivided reports whether parameters were resharded after forward among Options.ReshardRanks ranks. at is an
	// event after that, for which the next all-gather waits.
	isDivided bool
	at        *uint32

	gathered *gatherResult // the all-gather that runs; nil for none
	indices  []int         // where the group stands in the order of forward
	restore  func()        // ends the node before the inputs
	entered  int           // forwards that run
	pending  []bool        // the modules whose forwards are to run yet, none between passes
	// reduced is an event after the reduction of the group's gradients; summed is their buffer while replicas sum it.
	reduced *uint32
	summed  *trace.Tensor
}

// Wrappers returns the hooks around the forward passes of the group's modules, by their paths.
func (g *ParamGroup) Wrappers() map[string]trace.Wrapper {
	if len(g.modules) == 1 {
		return map[string]trace.Wrapper{g.modules[0]: g}
	}
	out := map[string]trace.Wrapper{}
	for i, m := range g.modules {
		out[m] = &groupMember{group: g, index: i}
	}
	return out
}

// groupMember is one of several modules that are wrapped together: pre-forward hooks run before the first of them, and
// post-forward hooks after the last (_register_group_forward_hooks).
type groupMember struct {
	group *ParamGroup
	index int
	first bool
}

// Enter runs before forward, for [trace.Wrapper].
func (m *groupMember) Enter(args []*trace.Tensor) {
	g := m.group
	if m.first = !slices.Contains(g.pending, true); !m.first {
		return
	}
	g.pending = slices.Repeat([]bool{true}, len(g.modules))
	g.Enter(args)
}

// Inputs returns the dtype to which forward's arguments are cast, for [trace.Wrapper].
func (m *groupMember) Inputs() (d trace.DType, cast bool) {
	if m.first {
		return m.group.Inputs()
	}
	return d, false
}

// Leave runs after forward, for [trace.Wrapper].
func (m *groupMember) Leave(results []*trace.Tensor) {
	g := m.group
	if m.first && g.restore != nil { // the inputs were this module's
		g.restore()
		g.restore = nil
	}
	if g.pending == nil {
		return
	}
	g.pending[m.index] = false
	if !slices.Contains(g.pending, true) {
		g.pending = nil
		g.Leave(results)
	}
}

// Enter implements [trace.Wrapper] and runs before forward.
func (g *ParamGroup) Enter(args []*trace.Tensor) {
	f := g.fsdp
	if f.tape.Unwinding() {
		return
	}
	if g.phase == beforeBackward { // a checkpoint runs again
		if !g.isUnsharded {
			g.unshard()
			g.wait()
		}
		return
	}
	if g.entered++; g.entered > 1 {
		return
	}
	g.phase = inForward
	if f.outermost == nil {
		f.enter(g)
	}
	if len(g.params) == 0 {
		return
	}
	g.unshard()
	g.wait()
	g.restore = f.tape.BeforeInputs("RegisterPostBackwardFunctionBackward", g.postBackward, args)
}

// Inputs returns the dtype to which forward's arguments are cast, for [trace.Wrapper].
func (g *ParamGroup) Inputs() (d trace.DType, cast bool) {
	if p := g.fsdp.options.ParamType; p != nil {
		return *p, true
	}
	return d, false
}

// Leave implements [trace.Wrapper] and runs after forward.
func (g *ParamGroup) Leave(results []*trace.Tensor) {
	if g.fsdp.tape.Unwinding() { // which no hook after forward sees
		if g.restore != nil {
			g.restore()
		}
		g.entered, g.restore = 0, nil
		return
	}
	if g.phase == beforeBackward {
		return
	}
	if g.entered--; g.entered > 0 {
		return
	}
	f := g.fsdp
	if g.restore != nil {
		g.restore()
		g.restore = nil
	}
	if len(g.params) > 0 && !f.tape.InBackward() { // where a checkpoint runs again (is_bw)
		switch {
		case !g.reshards:
		case f.options.ReshardRanks > 0 && f.options.ReshardRanks < g.world.Size:
			g.reshardAmongFewer()
		default:
			g.reshard()
		}
		g.indices = append(g.indices, len(f.forward))
		f.forward = append(f.forward, g)
	}
	g.phase = idlePhase
	if f.tape.RequiresGrad(results...) {
		for _, y := range results {
			if y != nil && y.RequiresGrad() {
				y.OnGradient(g.preBackward)
			}
		}
	}
	if g == f.outermost || g == f.root {
		f.leave()
	}
}

// preBackward runs when the first gradient of the module's results exists.
func (g *ParamGroup) preBackward() {
	f := g.fsdp
	if !f.queued {
		f.queued = true
		f.tape.AfterBackward(f.afterBackward)
	}
	if len(g.params) == 0 || g.phase == beforeBackward {
		return
	}
	g.phase = beforeBackward
	g.unshard()
	g.wait()
	g.prefetch()
}

// prefetch gathers the parameter group that backward needs next.
func (g *ParamGroup) prefetch() {
	if len(g.indices) == 0 {
		return
	}
	last := len(g.indices) - 1
	next := g.indices[last] - 1
	g.indices = g.indices[:last]
	if next >= 0 {
		target := g.fsdp.forward[next]
		was := target.phase
		target.phase = beforeBackward
		target.unshard()
		target.phase = was
	}
}

// reshard frees the memory of the whole parameters; the rank's shards remain.
func (g *ParamGroup) reshard() {
	g.isDivided = false
	if !g.isUnsharded {
		return
	}
	for _, s := range g.params {
		s.free()
	}
	g.isUnsharded = false
}

// reshardAmongFewer reshards the whole parameters over fewer ranks than the shards (to_sharded_post_forward). The rank
// keeps a copy of its part.
func (g *ParamGroup) reshardAmongFewer() {
	t, n := g.fsdp.tape, g.fsdp.options.ReshardRanks
	t.NoGrad(func() {
		for _, s := range g.params {
			share := s.output.Numel() / n
			part := t.Hold(s.output.Part(share*(g.world.Rank%n), share))
			t.WithClass(program.Weights, func() { s.keepPart(t.Hold(part.Clone())) })
			t.Release(part)
			s.free()
		}
	})
	g.isUnsharded, g.isDivided = false, true
	g.at = new(t.RecordEvent(computeStream))
}

// postBackward runs when the gradients of the module's inputs and parameters exist.
func (g *ParamGroup) postBackward() {
	f := g.fsdp
	g.phase = afterBackward
	if len(g.params) == 0 {
		return
	}
	for _, s := range g.params {
		s.accumulate()
	}
	if !f.syncs {
		if !f.options.ManualSync {
			g.reshard()
		}
		for _, s := range g.params {
			s.upcast(f.options.ReduceType)
		}
		return
	}
	var with []*shardedParam
	var grads []*trace.Tensor
	for _, s := range g.params {
		x := s.accumulated
		s.accumulated = nil
		if x == nil {
			x = s.whole.TakeGrad()
		}
		if x != nil {
			with, grads = append(with, s), append(grads, s.ownShardOf(x))
		}
	}
	g.reshard()
	if len(with) == 0 {
		return
	}
	f.resetState()
	g.finish()
	f.reducing = g.reduce(with, grads)
}

// ownShardOf returns the part of gradient x to reduce in this group if another group shares the parameter. It takes
// ownership of x.
func (s *shardedParam) ownShardOf(x *trace.Tensor) *trace.Tensor {
	t := x.Tape()
	y := x
	t.NoGrad(func() { y = s.whole.OwnGradient(x) })
	if y != x {
		t.Hold(y)
		t.Release(x)
	}
	return y
}

// accumulate adds a gradient to the sum of earlier micro-batches, in the dtype of the reduction.
func (s *shardedParam) accumulate() {
	if s.accumulated == nil || s.whole.Grad() == nil {
		return
	}
	x := s.whole.TakeGrad()
	s.accumulated.AddInPlace(x)
	x.Tape().Release(x)
}

// upcast keeps a gradient in the dtype of the reduction until the reduction.
func (s *shardedParam) upcast(d *trace.DType) {
	if d == nil || s.whole.Grad() == nil || s.whole.Grad().DType() == *d {
		return
	}
	x := s.whole.TakeGrad()
	t := x.Tape()
	s.accumulated = t.Hold(x.To(*d))
	t.Release(x)
}

// finish waits for the reduction of the group's gradients.
func (g *ParamGroup) finish() {
	t := g.fsdp.tape
	if g.reduced != nil {
		t.WaitEvent(computeStream, *g.reduced)
		g.reduced = nil
	}
	t.Release(g.summed)
	g.summed = nil
}

// finalize ends the backward pass of the group.
func (g *ParamGroup) finalize() {
	g.finish()
	if g.gathered != nil { // fetched, and not needed after all
		if x := g.gathered.output; x != nil {
			g.fsdp.tape.Release(x)
		}
		g.gathered = nil
	}
	g.indices, g.pending = g.indices[:0], nil
}
