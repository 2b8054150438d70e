package trace

// castOp names the copies that autocast makes.
const castOp = "to_copy"

// to records Tensor.to(dtype) as C++ calls it: x itself if nothing is to be done.
func (x *Tensor) to(d DType) *Tensor { return x.castInto(d, x.emptyLike) }

// castInto returns x if it has the type, else a cast copy that alloc allocates.
func (x *Tensor) castInto(d DType, alloc func(DType) *Tensor) *Tensor {
	if x.dtype == d {
		return x
	}
	c := x.tape.begin(castOp, x)
	y := alloc(d)
	c.t.launchCopy(y, x)
	if d.differentiable() {
		y.derived("ToCopyBackward0", inputs{x}, nil, castBackward)
	}
	c.caller.point.buffers = len(c.t.prog.Buffers) // the caller's arguments are being cast
	return c.end(y)
}

// castBackward records _to_copy_backward: of a complex gradient a real input gets the
// real part, a view.
func castBackward(b *backward) {
	d := b.input(0).dtype
	if b.grad.dtype == C64 && d != C64 {
		b.give(0, b.grad.realPart().to(d))
		return
	}
	b.give(0, b.grad.to(d))
}

// To records Tensor.to(dtype), .half(), .float() and the like.
func (x *Tensor) To(d DType) *Tensor {
	c := x.tape.begin("to_dtype", x)
	return c.end(x.to(d))
}

// ToContiguous records x.to(d, memory_format=torch.contiguous_format): in one step, and x itself,
// however it is laid out, if it has the type.
func (x *Tensor) ToContiguous(d DType) *Tensor {
	c := x.tape.begin("to_dtype", x)
	return c.end(x.castInto(d, func(d DType) *Tensor { return x.tape.empty(d, x.shape...) }))
}

// Clone records torch.clone(x), with preserved strides.
func (x *Tensor) Clone() *Tensor { return x.cloneInto(x.emptyLike) }

// CloneContiguous records x.clone(memory_format=torch.contiguous_format).
func (x *Tensor) CloneContiguous() *Tensor {
	return x.cloneInto(func(d DType) *Tensor { return x.tape.empty(d, x.shape...) })
}

// CloneChannelsLast records x.clone(memory_format=torch.channels_last).
func (x *Tensor) CloneChannelsLast() *Tensor {
	return x.cloneInto(func(d DType) *Tensor {
		return x.tape.fresh(d, x.tape.channelsLast(x.shape))
	})
}

func (x *Tensor) cloneInto(alloc func(DType) *Tensor) *Tensor {
	c := x.tape.begin("clone", x)
	y := alloc(x.dtype)
	c.t.launchCopy(y, x)
	return c.end(y.derived("CloneBackward0", inputs{x}, nil, func(b *backward) { b.give(0, b.grad) }))
}

// Contiguous records x.contiguous(): x itself if it is.
func (x *Tensor) Contiguous() *Tensor {
	c := x.tape.begin("contiguous", x)
	return c.end(x.contiguous())
}

func (x *Tensor) contiguous() *Tensor {
	if x.isContiguous() {
		return x
	}
	return x.CloneContiguous()
}

// ContiguousChannelsLast records x.contiguous(memory_format=channels_last), or
// channels_last_3d for five dimensions: x itself if it is laid out so.
func (x *Tensor) ContiguousChannelsLast() *Tensor {
	c := x.tape.begin("contiguous", x)
	return c.end(x.contiguousChannelsLast())
}

func (x *Tensor) contiguousChannelsLast() *Tensor {
	if x.isChannelsLast() {
		return x
	}
	return x.CloneChannelsLast()
}

// Detach records x.detach(): the same storage without history.
func (x *Tensor) Detach() *Tensor {
	c := x.tape.begin("detach", x)
	return c.end(x.detached())
}

// SetData records x.data = y: x gets the shape, the type and the storage of y, and releases its
// own storage.
func (x *Tensor) SetData(y *Tensor) {
	y.store.refs++
	x.tape.drop(x.store)
	x.store, x.offset, x.layout, x.dtype = y.store, y.offset, y.layout, y.dtype
}
