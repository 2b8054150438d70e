package trace

// savedHooks are the active hooks of torch.autograd.graph.saved_tensors_hooks, for checkpointing; the innermost is
// last.
type savedHooks struct {
	stack []savedHook
	// unwinding reports whether a recomputation has all it needs. Python raises an exception there; here the rest of
	// the region runs without allocating.
	unwinding bool
	// stoppedByResult reports whether the result of an operator set unwinding.
	stoppedByResult bool
	// stop is the call that sets unwinding before it computes anything, and stopping reports whether it has begun.
	// PyTorch saves inputs first, so an operator that saves nothing else never runs again.
	stop     int
	stopping bool
}

// callBegan records the start of call n.
func (h *savedHooks) callBegan(n int) {
	if n == h.stop {
		h.stopping = true
	}
}

// discards reports whether the result of an operator gets no memory, since a recomputation has all it needs.
func (h *savedHooks) discards(native string) bool {
	if h.stopping && native != autocastCopy {
		h.unwinding = true
	}
	return h.unwinding
}

// savedHook decides what a node saves in place of a tensor.
type savedHook interface {
	pack(t *Tape, x *Tensor) saved
}

func (h *savedHooks) pack(t *Tape, x *Tensor) saved {
	if x.dead {
		return saved{} // thrown away with the operator that made it
	}
	if n := len(h.stack); n > 0 {
		return h.stack[n-1].pack(t, x)
	}
	return saved{x: holdForBackward(x)}
}

// saveRegionInput saves an input of a checkpointed region: the tensor, or the result of an active saved-tensor hook.
// Empty tensors, which may belong to a [Slot], are saved themselves.
func (h *savedHooks) saveRegionInput(t *Tape, x *Tensor) saved {
	if n := len(h.stack); n > 0 && !x.store.blank {
		if o, ok := h.stack[n-1].(offload); ok {
			return o.pack(t, x)
		}
	}
	return saved{x: x.Retain()}
}

func (h *savedHooks) push(k savedHook) { h.stack = append(h.stack, k) }
func (h *savedHooks) pop()             { h.stack = h.stack[:len(h.stack)-1] }

// packedTensor is a placeholder for a saved tensor that will be recomputed (_Holder of torch.utils.checkpoint).
type packedTensor struct {
	region *checkpointRegion
	value  *Tensor // present between recomputation and use
	dead   bool    // its node is gone
	host   *hostCopy
}

// checkpointRegion is one checkpointed call (_CheckpointFrame): its holders, and the state for running it again.
type checkpointRegion struct {
	t          *Tape
	holders    []*packedTensor
	alive      int // holders not yet released
	run        func(f *Frame, inputs []*Tensor) []*Tensor
	inputs     []saved
	recomputed bool
	captured   []*Tensor // variables that run captures
	next       int
	selection  *selectiveCheckpoint
	casts      autocastState
	place      *place
	from       int // activations before the first run
	// last is the call that saved last; the next field reports whether it saved its result.
	last    int
	outputs bool
}

// pack adds a holder and saves no tensor.
func (r *checkpointRegion) pack(t *Tape, x *Tensor) saved {
	p := &packedTensor{region: r}
	r.holders = append(r.holders, p)
	r.alive++
	at := t.point.ordinal - r.from
	output := !x.store.blank && int(x.store.buffer) >= t.point.buffers
	r.outputs = output || r.outputs && at == r.last
	r.last = at
	return saved{pack: p}
}

// release removes the node's reference to p. The last one closes the region, which releases its inputs.
func (p *packedTensor) release() {
	if p.host != nil {
		if !p.dead {
			p.host.release()
		}
		p.dead = true
		return
	}
	p.dead = true
	p.value.Release()
	p.value = nil
	r := p.region
	r.alive--
	if r.alive == 0 {
		r.close()
	}
}

func (r *checkpointRegion) close() {
	r.selection.release()
	inputs, captured := r.inputs, r.captured
	r.inputs, r.captured = nil, nil
	for _, s := range inputs {
		if s.pack != nil {
			s.pack.release()
		} else if s.x != nil {
			s.x.Release()
		}
	}
	releaseAll(captured)
}

// recomputation is the hook while a region runs again. It passes the tensors that the first run would have saved to
// their holders, in order.
type recomputation struct{ r *checkpointRegion }

func (k recomputation) pack(t *Tape, x *Tensor) saved {
	r := k.r
	if r.next < len(r.holders) {
		p := r.holders[r.next]
		r.next++
		if !p.dead {
			p.value = holdForBackward(x)
		}
		if r.next == len(r.holders) {
			t.autograd.hooks.stoppedByResult = !t.autograd.hooks.unwinding
			t.autograd.hooks.unwinding = true // early stop
		}
	}
	return saved{x: holdForBackward(x)}
}

// unpack returns a saved tensor. The caller must release it if it came from a holder.
func (t *Tape) unpack(s saved) *Tensor {
	if s.pack == nil {
		return s.x
	}
	if s.pack.host != nil {
		return s.pack.host.copyBack(t)
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

func (r *checkpointRegion) recompute() {
	t := r.t
	at, noGrad, hooks := t.location(), t.autograd.noGrad, t.autograd.hooks
	t.autograd.hooks.stopping, t.autograd.hooks.stoppedByResult, t.autograd.hooks.stop = false, false, -1
	if !r.outputs {
		t.autograd.hooks.stop = t.activations + r.last
	}
	t.autograd.noGrad, t.place = false, r.place
	t.autograd.hooks.push(recomputation{r})
	leave := t.casts.restore(r.casts)
	f := t.enter()
	inputs := make([]*Tensor, len(r.inputs))
	for i, s := range r.inputs {
		x := t.unpack(s)
		inputs[i] = f.Bind(x)
		if s.pack != nil {
			x.Release() // only the frame holds it now
		}
	}
	var ys []*Tensor
	r.selection.runRegion(t, true, func() { ys = r.run(f, inputs) })
	f.End()
	for _, y := range ys {
		if y.refs == 0 {
			y.releaseResources()
		}
	}
	leave()
	t.resume(at)
	t.autograd.hooks, t.autograd.noGrad, t.fromPython = hooks, noGrad, false
}

// Checkpoint records torch.utils.checkpoint.checkpoint(fn, *inputs, use_reentrant=False). It runs fn and saves only the
// inputs. Backward runs fn again when it needs the other tensors. It holds its arguments until it returns.
func (f *Frame) Checkpoint(fn func(f *Frame, inputs []*Tensor) *Tensor, inputs ...*Tensor) *Tensor {
	return f.CheckpointClosure(nil, fn, inputs...)
}

// CheckpointClosure records Checkpoint of a function that captures tensors, which live until its last run.
func (f *Frame) CheckpointClosure(captured []*Tensor, fn func(f *Frame, inputs []*Tensor) *Tensor,
	inputs ...*Tensor,
) *Tensor {
	run := func(f *Frame, inputs []*Tensor) []*Tensor { return []*Tensor{fn(f, inputs)} }
	return f.checkpoint(captured, run, inputs)[0]
}

// CheckpointAll records Checkpoint of a function with several results.
func (f *Frame) CheckpointAll(fn func(f *Frame, inputs []*Tensor) []*Tensor, inputs ...*Tensor) []*Tensor {
	return f.checkpoint(nil, fn, inputs)
}

func (f *Frame) checkpoint(captured []*Tensor, fn func(f *Frame, inputs []*Tensor) []*Tensor,
	inputs []*Tensor,
) []*Tensor {
	t := f.t
	g := f.CallFrame(inputs...)
	if t.autograd.noGrad {
		ys := fn(g, inputs)
		g.End(ys...)
		return ys
	}
	r := &checkpointRegion{
		t: t, run: fn, casts: t.casts.autocastState, place: t.place, from: t.activations,
		selection: t.newSelection(),
	}
	for _, x := range inputs {
		r.inputs = append(r.inputs, t.autograd.hooks.saveRegionInput(t, x))
	}
	for _, x := range captured {
		r.captured = append(r.captured, x.Retain())
	}
	t.autograd.hooks.push(r)
	var ys []*Tensor
	r.selection.runRegion(t, false, func() { ys = fn(g, inputs) })
	t.autograd.hooks.pop()
	g.End(ys...)
	if r.alive == 0 {
		r.close()
	}
	return ys
}

// Unwinding reports whether a recomputation has all it needs, so that PyTorch would no longer run the model's code.
func (t *Tape) Unwinding() bool { return t.autograd.hooks.unwinding }

// RunHook runs the code of a hook, except in a recomputation that has all it needs.
func (t *Tape) RunHook(f func()) {
	begun, last := t.activations, t.autograd.hooks.stopping
	t.autograd.hooks.stopping = false
	f()
	t.activations, t.autograd.hooks.stopping = begun, last
}

// CheckpointReentrant records torch.utils.checkpoint.checkpoint(fn, *inputs, use_reentrant=True). It runs fn without
// autograd. In backward, a node runs all of fn again with autograd, and then the backward of that. Without an input
// that requires a gradient, nothing is differentiated. Captured tensors, some of them nil, live as long as fn may run
// again.
func (f *Frame) CheckpointReentrant(fn func(f *Frame, inputs []*Tensor) *Tensor, captured []*Tensor,
	inputs ...*Tensor,
) *Tensor {
	t := f.t
	g := f.CallFrame(inputs...)
	var y *Tensor
	t.NoGrad(func() {
		h := g.FunctionFrame(inputs...)
		y = fn(h, inputs)
		h.End(y)
	})
	if n := t.record("CheckpointFunctionBackward", inputs...); n != nil {
		n.save(inputs...)
		more := n.growable()
		for _, x := range captured {
			if x != nil {
				more.attrs = append(more.attrs, x.Retain())
			}
		}
		n.setOutputs(y)
		r := &reentrantRun{fn: fn, casts: t.casts.autocastState, place: t.place}
		n.apply = r.backward
	}
	return g.Return(y)
}

// reentrantRun is the state for running the region of a reentrant checkpoint again.
type reentrantRun struct {
	fn    func(f *Frame, inputs []*Tensor) *Tensor
	casts autocastState
	place *place
}

// backward implements CheckpointFunction.backward.
func (r *reentrantRun) backward(b *Gradients) {
	t := b.t
	args := b.Grad.Retain() // Python's tuple of gradients
	f := t.enter()
	t.place = r.place
	inputs := make([]*Tensor, len(b.kept))
	for i, x := range b.kept {
		inputs[i] = f.Bind(x.withoutHistory())
		inputs[i].requiresGrad = x.requiresGrad
	}
	var y *Tensor
	t.EnableGrad(func() {
		leave := t.casts.restore(r.casts)
		h := f.FunctionFrame(inputs...)
		y = r.fn(h, inputs)
		h.End(y)
		f.Bind(y)
		leave()
	})
	t.backward([]*Tensor{y}, []*Tensor{args})
	for i, x := range inputs {
		if x.grad != nil && b.Needs(i) {
			b.Out[i] = x.grad.Retain()
		}
	}
	f.End()
	args.Release()
}
