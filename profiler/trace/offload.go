package trace

// offload is torch.autograd.graph.save_on_cpu: what backward needs lies in the host's
// memory meanwhile, a copy for each time that it is saved.
type offload struct{}

// hostCopy is a saved tensor in the host's memory.
type hostCopy struct {
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
	l := x.layout
	if !x.dense {
		l = t.contiguous(x.shape)
	}
	if x.store.blank {
		return saved{x: holdForBackward(x)}
	}
	t.facts.HostSaved += x.Bytes()
	return saved{pack: &packed{host: &hostCopy{x.dtype, l, x.requiresGrad}}}
}

// back brings the tensor to the device again. The caller releases it.
func (h *hostCopy) back(t *Tape) *Tensor {
	c := t.begin("to_device")
	x := t.fresh(h.dtype, h.layout)
	x.requiresGrad = h.requiresGrad
	t.launchFill(x)
	x.retain()
	c.done()
	return x
}
