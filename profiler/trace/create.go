package trace

// Full records torch.full(shape, value) on the device.
func (t *Tape) Full(d DType, shape ...int64) *Tensor { return t.Filled("full", d, shape...) }

// Zeros records torch.zeros(shape) on the device.
func (t *Tape) Zeros(d DType, shape ...int64) *Tensor { return t.Filled("zeros", d, shape...) }

// Filled returns a new tensor that operator op fills with numbers.
func (t *Tape) Filled(op string, d DType, shape ...int64) *Tensor {
	c := t.Begin(op)
	x := t.Alloc(d, shape...)
	t.LaunchFill(x)
	return c.End(x)
}

// EmptyLike records torch.empty_like(x), which keeps the layout of x.
func (x *Tensor) EmptyLike() *Tensor {
	c := x.tape.Begin("empty_like", x)
	return c.End(x.AllocLike(x.dtype))
}

// FilledLike returns a new tensor of type d in the layout of x, which operator op fills with numbers.
func (x *Tensor) FilledLike(op string, d DType) *Tensor {
	c := x.tape.Begin(op, x)
	y := x.AllocLike(d)
	x.tape.LaunchFill(y)
	return c.End(y)
}

// FilledChannelsLast records [Tape.Filled] with a result in channels-last layout.
func (t *Tape) FilledChannelsLast(op string, d DType, shape ...int64) *Tensor {
	return t.FilledStrided(op, d, shape, channelsLastStrides(nil, shape))
}

// FilledStrided records [Tape.Filled] with a result of the given strides.
func (t *Tape) FilledStrided(op string, d DType, shape, strides []int64) *Tensor {
	c := t.Begin(op)
	x := t.AllocStrided(d, shape, strides)
	t.LaunchFill(x)
	return c.End(x)
}

// ZerosLike records torch.zeros_like(x).
func (x *Tensor) ZerosLike() *Tensor { return x.FilledLike("zeros_like", x.dtype) }

// OnesLike records torch.ones_like(x).
func (x *Tensor) OnesLike() *Tensor { return x.FilledLike("ones_like", x.dtype) }

// ZeroInPlace records x.zero_().
func (x *Tensor) ZeroInPlace() *Tensor { return x.overwrite("zero_", "ZeroBackward0") }

// FillInPlace records x.op_() for an operator that overwrites x with numbers, such as "fill_" or "normal_".
func (x *Tensor) FillInPlace(op string) *Tensor { return x.overwrite(op, "FillBackward0") }

func (x *Tensor) overwrite(op, node string) *Tensor {
	c := x.tape.Begin(op, x)
	c.t.LaunchFill(x)
	return c.End(x.resetGradFn(node, inputs{x}, nil, func(b *Gradients) { b.Set(0, b.Grad.ZerosLike()) }))
}

// Arange records torch.arange(n) of 64-bit integers on the device.
func (t *Tape) Arange(n int64) *Tensor { return t.Filled("arange", I64, n) }
