package distributed

import "github.com/vprof/vprof/profiler/trace"

// ParamGroup are parameters that are gathered, used and reduced together, and the
// hooks around their module's forward (FSDPState and FSDPParamGroup). It implements
// [trace.Wrapper].
type ParamGroup struct {
	fsdp     *FSDP
	module   string
	world    World // the ranks that share its parameters
	params   []*shardedParam
	reshards bool // after forward
	phase    phase
	whole    bool // the parameters are

	gathered *gathered // what was asked for and not waited for yet
	indices  []int     // where the group stands in the order of forward
	restore  func()    // ends the node before the inputs
	entered  int       // forwards that run
	// reduced is an event behind the group's gradients, and summed their buffer while
	// replicas sum it.
	reduced *uint32
	summed  *trace.Tensor
}

// Module is the path of the group's module.
func (g *ParamGroup) Module() string { return g.module }

// Enter implements [trace.Wrapper]: it is what runs before forward.
func (g *ParamGroup) Enter(args []*trace.Tensor) {
	f := g.fsdp
	if f.tape.Unwinding() {
		return
	}
	if g.phase == beforeBackward { // a checkpoint runs again
		if !g.whole {
			g.unshard()
			g.wait()
		}
		return
	}
	if g.entered++; g.entered > 1 {
		return
	}
	g.phase = inForward
	if !f.rooted {
		f.enterRoot()
	}
	if len(g.params) == 0 {
		g.restore = func() {}
		return
	}
	g.unshard()
	g.wait()
	g.restore = f.tape.BeforeInputs("RegisterPostBackwardFunctionBackward", g.postBackward, args)
}

// Inputs implements [trace.Wrapper].
func (g *ParamGroup) Inputs() (d trace.DType, cast bool) {
	if p := g.fsdp.options.ParamType; p != nil {
		return *p, true
	}
	return d, false
}

// Leave implements [trace.Wrapper]: it is what runs after forward.
func (g *ParamGroup) Leave(results []*trace.Tensor) {
	if g.fsdp.tape.Unwinding() { // which no hook behind forward sees
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
	g.restore()
	g.restore = nil
	if len(g.params) > 0 {
		if g.reshards {
			g.reshard()
		}
		g.indices = append(g.indices, len(f.forward))
		f.forward = append(f.forward, g)
	}
	g.phase = idle
	if f.tape.Tracks(results...) {
		for _, y := range results {
			if y != nil && y.RequiresGrad() {
				y.OnGradient(g.preBackward)
			}
		}
	}
	if g == f.root {
		f.leaveRoot()
	}
}

// preBackward runs when the first gradient of the module's results is there.
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

// prefetch gathers the group that backward needs next.
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

// reshard frees the memory of the whole parameters; the rank's shards stay.
func (g *ParamGroup) reshard() {
	if !g.whole {
		return
	}
	for _, s := range g.params {
		s.free()
	}
	g.whole = false
}

// postBackward runs when the gradients of the module's inputs are there, and with
// them those of its parameters.
func (g *ParamGroup) postBackward() {
	f, t := g.fsdp, g.fsdp.tape
	g.phase = afterBackward
	if len(g.params) == 0 {
		return
	}
	for _, s := range g.params {
		s.accumulate()
	}
	if !f.syncs {
		g.reshard()
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
			with, grads = append(with, s), append(grads, x)
		}
	}
	g.reshard()
	if len(with) == 0 {
		return
	}
	f.forget()
	g.finish()
	r := g.reduce(with, grads)
	f.reducing = r
	t.Release(grads[len(grads)-1])
}

// accumulate adds a gradient to what earlier micro-batches have left in the type of
// the reduction.
func (s *shardedParam) accumulate() {
	if s.accumulated == nil || s.whole.Grad() == nil {
		return
	}
	x := s.whole.TakeGrad()
	s.accumulated.AddInPlace(x)
	x.Tape().Release(x)
}

// upcast keeps a gradient in the type of the reduction until it is reduced.
func (s *shardedParam) upcast(d *trace.DType) {
	if d == nil || s.whole.Grad() == nil || s.whole.Grad().DType() == *d {
		return
	}
	x := s.whole.TakeGrad()
	t := x.Tape()
	s.accumulated = t.Hold(x.To(*d))
	t.Release(x)
}

// finish waits for the group's own reduction.
func (g *ParamGroup) finish() {
	t := g.fsdp.tape
	if g.reduced != nil {
		t.WaitEvent(computeStream, *g.reduced)
		g.reduced = nil
	}
	if g.summed != nil {
		t.Release(g.summed)
		g.summed = nil
	}
}

// finalize ends the group's backward.
func (g *ParamGroup) finalize() {
	g.finish()
	if g.gathered != nil { // fetched, and not needed after all
		g.fsdp.tape.Release(g.gathered.output)
		g.gathered = nil
	}
	g.indices = g.indices[:0]
}
