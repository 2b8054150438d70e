package trace

// offload is torch.autograd.graph.save_on_cpu: what backward needs lies in the host's
// memory meanwhile, a copy for each time that it is saved.
type offload struct{}

// hostCopy is a saved tensor in the host's memory.
type hostCopy struct {
	tape         *Tape
	dtype        DType
	layout       *layout
	requiresGrad bool
}

// SaveOnCPU runs f as under torch.autograd.graph.save_on_cpu().
func (t *Tape) SaveOnCPU(f func()) {
	t.hooks.push(offload{})
	f()
	t.hooks.pop()
}

func (offload) pack(t *Tape, x *Tensor) saved {
	if x.store.blank {
		return saved{x: holdForBackward(x)}
	}
	l := x.layout
	if !x.dense { // it is laid out in rows on the device first
		l = t.contiguous(x.shape)
		c := t.begin("clone", x)
		t.launchCopy(t.empty(x.dtype, x.shape...), x)
		c.done()
	}
	t.hostSaved += x.Bytes()
	t.facts.HostSaved = max(t.facts.HostSaved, t.hostSaved)
	return saved{pack: &packed{host: &hostCopy{t, x.dtype, l, x.requiresGrad}}}
}

// release is called when the node that held the copy lets go of it.
func (h *hostCopy) release() { h.tape.hostSaved -= h.layout.numel * h.dtype.Size() }

// back copies the tensor to the device again. The caller releases it.
func (h *hostCopy) back(t *Tape) *Tensor {
	c := t.begin("to_device")
	x := t.fresh(h.dtype, h.layout)
	x.requiresGrad = h.requiresGrad
	t.launchFill(x)
	x.retain()
	c.done()
	return x
}
