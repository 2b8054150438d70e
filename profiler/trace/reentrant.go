package trace

// CheckpointReentrant runs fn on inputs without autograd; backward runs it
// again, all of it, and then backward through it, from within a node of the
// graph: torch.utils.checkpoint.checkpoint(fn, *inputs, use_reentrant=True).
// Nothing is differentiated unless one of the inputs requires a gradient. What fn
// captures, some of it nil, lives as long as it may have to run again.
func (f *Frame) CheckpointReentrant(fn func(f *Frame, inputs []*Tensor) *Tensor, captured []*Tensor,
	inputs ...*Tensor,
) *Tensor {
	t := f.t
	g := f.CallFrame(inputs...)
	var y *Tensor
	t.NoGrad(func() {
		h := g.FuncFrame(inputs...)
		y = fn(h, inputs)
		h.End(y)
	})
	if n := t.record("CheckpointFunctionBackward", inputs...); n != nil {
		n.save(inputs...)
		more := n.growable()
		for _, x := range captured {
			if x != nil {
				more.attrs = append(more.attrs, x.retain())
			}
		}
		n.setOutputs(y)
		r := &rerun{fn: fn, casts: t.casts.autocastState, place: t.place}
		n.apply = r.backward
	}
	g.End(y)
	return y
}

// rerun is the state that a reentrant checkpoint keeps to run its region again.
type rerun struct {
	fn    func(f *Frame, inputs []*Tensor) *Tensor
	casts autocastState
	place *place
}

// backward is CheckpointFunction.backward.
func (r *rerun) backward(b *backward) {
	t := b.t
	args := b.grad.retain() // Python's tuple of gradients
	f := t.enter()
	t.place = r.place
	inputs := make([]*Tensor, len(b.kept))
	for i, x := range b.kept {
		inputs[i] = f.Let(x.detached())
		inputs[i].requiresGrad = x.requiresGrad
	}
	var y *Tensor
	t.withGrad(true, func() {
		leave := t.casts.restore(r.casts)
		h := f.FuncFrame(inputs...)
		y = r.fn(h, inputs)
		h.End(y)
		f.Let(y)
		leave()
	})
	t.backward([]*Tensor{y}, []*Tensor{args})
	for i, x := range inputs {
		if x.grad != nil && b.needs(i) {
			b.out[i] = x.grad.retain()
		}
	}
	f.End()
	args.release()
}
