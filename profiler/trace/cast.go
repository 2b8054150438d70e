package trace

// autocastCopy is the operator name of the copies that autocast makes.
const autocastCopy = "to_copy"

// AsType records Tensor.to(dtype) as called from C++. It returns x itself if x has the type.
func (x *Tensor) AsType(d DType) *Tensor { return x.castInto(d, x.AllocLike) }

// castInto returns x if it has type d, else a converted copy allocated by alloc.
func (x *Tensor) castInto(d DType, alloc func(DType) *Tensor) *Tensor {
	if x.dtype == d {
		return x
	}
	c := x.tape.Begin(autocastCopy, x)
	y := alloc(d)
	c.t.LaunchCopy(y, x)
	if d.differentiable() {
		y.SetGradFn("ToCopyBackward0", inputs{x}, nil, castBackward)
	}
	c.caller.point.buffers = len(c.t.prog.Buffers) // the caller's arguments are being cast
	return c.End(y)
}

// castBackward records _to_copy_backward. A real input gets the real part of a complex gradient, as a view.
func castBackward(b *Gradients) {
	d := b.input(0).dtype
	if b.Grad.dtype == C64 && d != C64 {
		b.Set(0, b.Grad.RealPart().AsType(d))
		return
	}
	b.Set(0, b.Grad.AsType(d))
}

// To records Tensor.to(dtype), .half(), .float() and the like.
func (x *Tensor) To(d DType) *Tensor {
	c := x.tape.Begin("to_dtype", x)
	return c.End(x.AsType(d))
}

// ToContiguous records x.to(d, memory_format=torch.contiguous_format) in one step. It returns x itself, in any layout,
// if x has the type.
func (x *Tensor) ToContiguous(d DType) *Tensor {
	c := x.tape.Begin("to_dtype", x)
	return c.End(x.castInto(d, func(d DType) *Tensor { return x.tape.Alloc(d, x.shape...) }))
}

// Clone records torch.clone(x), with preserved strides.
func (x *Tensor) Clone() *Tensor { return x.cloneInto(x.AllocLike) }

// CloneContiguous records x.clone(memory_format=torch.contiguous_format).
func (x *Tensor) CloneContiguous() *Tensor {
	return x.cloneInto(func(d DType) *Tensor { return x.tape.Alloc(d, x.shape...) })
}

// CloneChannelsLast records x.clone(memory_format=torch.channels_last).
func (x *Tensor) CloneChannelsLast() *Tensor {
	return x.cloneInto(func(d DType) *Tensor { return x.tape.newTensor(d, x.tape.channelsLast(x.shape)) })
}

func (x *Tensor) cloneInto(alloc func(DType) *Tensor) *Tensor {
	c := x.tape.Begin("clone", x)
	y := alloc(x.dtype)
	c.t.LaunchCopy(y, x)
	return c.End(y.SetGradFn("CloneBackward0", inputs{x}, nil, func(b *Gradients) { b.Set(0, b.Grad) }))
}

// Contiguous records x.contiguous(). It returns x itself if x is contiguous.
func (x *Tensor) Contiguous() *Tensor {
	c := x.tape.Begin("contiguous", x)
	return c.End(x.AsContiguous())
}

// AsContiguous records x.contiguous() as called from C++. It returns x itself if x is contiguous.
func (x *Tensor) AsContiguous() *Tensor {
	if x.IsContiguous() {
		return x
	}
	return x.CloneContiguous()
}

// ContiguousChannelsLast records x.contiguous(memory_format=channels_last), or channels_last_3d for five dimensions. It
// returns x itself if x has that layout.
func (x *Tensor) ContiguousChannelsLast() *Tensor {
	c := x.tape.Begin("contiguous", x)
	return c.End(x.contiguousChannelsLast())
}

func (x *Tensor) contiguousChannelsLast() *Tensor {
	if x.isChannelsLast() {
		return x
	}
	return x.CloneChannelsLast()
}

// Detach records x.detach(): the same storage without autograd history.
func (x *Tensor) Detach() *Tensor {
	c := x.tape.Begin("detach", x)
	return c.End(x.withoutHistory())
}

// SetData records x.data = y. x gets the shape, the type and the storage of y, and releases its own storage.
func (x *Tensor) SetData(y *Tensor) {
	y.store.refs++
	x.tape.drop(x.store)
	x.store, x.offset, x.layout, x.dtype = y.store, y.offset, y.layout, y.dtype
}
