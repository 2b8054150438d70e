package trace

// savedHooks is torch.autograd.graph.saved_tensors_hooks as checkpointing uses
// it: the hooks in force, innermost last.
type savedHooks struct {
	stack []savedHook
	// muted is set when a recomputation has all it needs: Python raises and
	// unwinds; here the rest runs without allocating.
	muted bool
}

// savedHook decides what a node keeps in place of a tensor.
type savedHook interface {
	pack(t *Tape, x *Tensor) saved
}

func (h *savedHooks) pack(t *Tape, x *Tensor) saved {
	if n := len(h.stack); n > 0 {
		return h.stack[n-1].pack(t, x)
	}
	return saved{x: holdForBackward(x)}
}

func (h *savedHooks) push(k savedHook) { h.stack = append(h.stack, k) }
func (h *savedHooks) pop()             { h.stack = h.stack[:len(h.stack)-1] }

// packed stands in a node for a tensor that will be computed again
// (checkpoint's _Holder).
type packed struct {
	region *region
	value  *Tensor // present between recomputation and use
}

// region is one checkpointed call (_CheckpointFrame): its holders, and what is
// needed to run it again.
type region struct {
	t          *Tape
	holders    []*packed
	alive      int // holders not yet released
	run        func(f *Frame, inputs []*Tensor) *Tensor
	inputs     []*Tensor
	recomputed bool
	next       int
	casts      autocastState
	module     string
}

// pack takes a place among the holders and keeps nothing.
func (r *region) pack(_ *Tape, _ *Tensor) saved {
	p := &packed{region: r}
	r.holders = append(r.holders, p)
	r.alive++
	return saved{pack: p}
}

// release is called when the node that held p lets go of it; the last one
// ends the region and its hold on the inputs.
func (p *packed) release() {
	if p.value != nil {
		p.value.release()
		p.value = nil
	}
	r := p.region
	r.alive--
	if r.alive == 0 {
		r.close()
	}
}

func (r *region) close() {
	inputs := r.inputs
	r.inputs = nil
	for _, x := range inputs {
		x.release()
	}
}

// recomputation is the hook while a region runs again: what the first run
// would have saved is handed to the holders, in order.
type recomputation struct{ r *region }

func (k recomputation) pack(t *Tape, x *Tensor) saved {
	r := k.r
	if r.next < len(r.holders) {
		p := r.holders[r.next]
		r.next++
		p.value = holdForBackward(x)
		if r.next == len(r.holders) {
			t.hooks.muted = true // early stop
		}
	}
	return saved{x: holdForBackward(x)}
}

// unpack is what a node finds in place of a saved tensor. The caller releases
// what came from a holder.
func (t *Tape) unpack(s saved) *Tensor {
	if s.pack == nil {
		return s.x
	}
	r := s.pack.region
	if !r.recomputed {
		r.recomputed = true
		r.recompute()
	}
	x := s.pack.value
	if x == nil {
		panic("trace: a checkpointed region saved fewer tensors when run again")
	}
	s.pack.value = nil
	return x
}

func (r *region) recompute() {
	t := r.t
	op, native, node, module, noGrad := t.op, t.native, t.node, t.module, t.noGrad
	muted := t.hooks.muted
	t.noGrad, t.module = false, r.module
	t.hooks.push(recomputation{r})
	leave := t.casts.restore(r.casts)
	f := t.enter()
	for _, x := range r.inputs {
		f.Let(x)
	}
	y := r.run(f, r.inputs)
	f.End()
	if y.refs == 0 {
		y.die()
	}
	leave()
	t.hooks.pop()
	t.hooks.muted = muted
	t.op, t.native, t.node, t.module, t.noGrad, t.shown = op, native, node, module, noGrad, false
}

// Checkpoint runs fn on inputs and keeps only the inputs for backward, which
// runs fn again when it needs what was not kept:
// torch.utils.checkpoint.checkpoint(fn, *inputs, use_reentrant=False).
// Like a module call it holds its arguments until it returns.
func (f *Frame) Checkpoint(fn func(f *Frame, inputs []*Tensor) *Tensor, inputs ...*Tensor) *Tensor {
	t := f.t
	g := f.CallFrame(inputs...)
	if t.noGrad {
		y := fn(g, inputs)
		g.End(y)
		return y
	}
	r := &region{t: t, run: fn, casts: t.casts.autocastState, module: t.module}
	for _, x := range inputs {
		r.inputs = append(r.inputs, x.retain())
	}
	t.hooks.push(r)
	y := fn(g, inputs)
	t.hooks.pop()
	g.End(y)
	if r.alive == 0 {
		r.close()
	}
	return y
}
