package trace

// Full is torch.full(shape, value) on the device.
func (t *Tape) Full(d DType, shape ...int64) *Tensor { return t.filled("full", d, shape) }

// Zeros is torch.zeros(shape) on the device.
func (t *Tape) Zeros(d DType, shape ...int64) *Tensor { return t.filled("zeros", d, shape) }

// filled is a fresh tensor, filled with a number.
func (t *Tape) filled(op string, d DType, shape []int64) *Tensor {
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
