package trace

// Full is torch.full(shape, value) on the device.
func (t *Tape) Full(d DType, shape ...int64) *Tensor { return t.Filled("full", d, shape...) }

// Zeros is torch.zeros(shape) on the device.
func (t *Tape) Zeros(d DType, shape ...int64) *Tensor { return t.Filled("zeros", d, shape...) }

// Filled is a fresh tensor, filled with numbers by operator op.
func (t *Tape) Filled(op string, d DType, shape ...int64) *Tensor {
	c := t.begin(op)
	x := t.empty(d, shape...)
	t.launchFill(x)
	return c.end(x)
}

// EmptyLike is torch.empty_like(x): it keeps the layout of x.
func (x *Tensor) EmptyLike() *Tensor {
	c := x.tape.begin("empty_like", x)
	return c.end(x.emptyLike(x.dtype))
}
