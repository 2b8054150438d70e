package trace

// withScalar is an operator with a number: y has x's shape.
func (x *Tensor) withScalar(op, node string, d DType, back func(b *backward)) *Tensor {
	t := x.tape
	c := t.begin(op, x)
	z := t.map1(op, d, 1, x)
	if n := t.record(node, x); n != nil {
		n.yields(z)
		n.apply = back
	}
	return c.end(z)
}

// withScalarInPlace is the variant that overwrites x.
func (x *Tensor) withScalarInPlace(op, node string, back func(b *backward)) *Tensor {
	t := x.tape
	c := t.begin(op, x)
	t.launchElementwise(x, 1, x)
	if n := t.record(node, x); n != nil {
		n.apply = back
		x.rebase(n)
	}
	return c.end(x)
}

func same(b *backward)    { b.give(0, b.grad) }
func scaled(b *backward)  { b.give(0, b.grad.MulScalar()) }
func divided(b *backward) { b.give(0, b.grad.DivScalar()) }
func negated(b *backward) { b.give(0, b.grad.Neg()) }

// AddScalar is x + number (also x - number).
func (x *Tensor) AddScalar() *Tensor {
	return x.withScalar("add_Tensor", "AddBackward0", x.dtype, same)
}

// MulScalar is x * number.
func (x *Tensor) MulScalar() *Tensor {
	return x.withScalar("mul_Tensor", "MulBackward0", x.dtype, scaled)
}

// DivScalar is x / number.
func (x *Tensor) DivScalar() *Tensor {
	return x.withScalar("div_Tensor", "DivBackward0", floating(x.dtype), divided)
}

// RSubScalar is number - x.
func (x *Tensor) RSubScalar() *Tensor {
	return x.withScalar("rsub_Scalar", "RsubBackward1", x.dtype, negated)
}

// RDivScalar is number / x: Tensor.__rdiv__ multiplies the reciprocal.
func (x *Tensor) RDivScalar() *Tensor {
	f := x.tape.funcFrame(x)
	y := x.Reciprocal().MulScalar()
	f.End(y)
	return y
}

// AddScalarInPlace is x += number (also x -= number).
func (x *Tensor) AddScalarInPlace() *Tensor {
	return x.withScalarInPlace("add__Tensor", "AddBackward0", same)
}

// MulScalarInPlace is x *= number.
func (x *Tensor) MulScalarInPlace() *Tensor {
	return x.withScalarInPlace("mul__Tensor", "MulBackward0", scaled)
}

// DivScalarInPlace is x /= number.
func (x *Tensor) DivScalarInPlace() *Tensor {
	return x.withScalarInPlace("div__Tensor", "DivBackward0", divided)
}

// Neg is -x.
func (x *Tensor) Neg() *Tensor {
	return x.withScalar("neg", "NegBackward0", x.dtype, negated)
}

// scalarTensor is at::scalar_tensor: a number on the device.
func (t *Tape) scalarTensor(d DType) *Tensor {
	c := t.begin("scalar_tensor")
	s := t.empty(d)
	t.launchFill(s)
	return c.end(s)
}
