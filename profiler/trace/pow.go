package trace

import "math"

// Pow records x ** e for a number e.
func (x *Tensor) Pow(e float64) *Tensor { return x.powScalar("pow_Tensor_Scalar", e) }

// Square records torch.square(x).
func (x *Tensor) Square() *Tensor { return x.powScalar("square", 2) }

func (x *Tensor) powScalar(op string, e float64) *Tensor {
	c := x.tape.Begin(op, x)
	c.CastToFP32(&x)
	d := x.dtype
	if e != math.Trunc(e) {
		d = floating(d)
	}
	z := c.t.Map("pow", d, transcendentalFLOPs, x)
	return c.End(z.SetGradFn("PowBackward0", inputs{x}, saves{x},
		func(b *Gradients) { b.Set(0, powBackward(b.Grad, b.Saved(0), e)) }))
}

// powBackward records pow_backward: grad * (e * self.pow(e - 1)).
func powBackward(grad, self *Tensor, e float64) *Tensor {
	c := grad.tape.Begin("pow_backward", grad, self)
	if e == 0 {
		z := grad.AllocLike(grad.dtype)
		c.t.LaunchFill(z)
		return c.End(z)
	}
	slope := self.Pow(e - 1).MulScalar()
	return c.End(grad.Mul(slope))
}

// PowTensor records x ** e for an exponent that is a tensor.
func (x *Tensor) PowTensor(e *Tensor) *Tensor { return operatorIndex["pow.Tensor_Tensor"].Call(x, e) }

// powBaseGrad records pow_backward_self.
func powBaseGrad(grad, self, exponent *Tensor) *Tensor {
	c := grad.tape.Begin("pow_backward_self", grad, self, exponent)
	slope := grad.Mul(exponent.Mul(self.PowTensor(exponent.AddScalar())))
	zero := c.t.ScalarTensor(grad.dtype)
	return c.End(Where(exponent.CompareScalar("eq"), zero, slope))
}

// powExponentGrad records pow_backward_exponent.
func powExponentGrad(grad, self, exponent, result *Tensor) *Tensor {
	c := grad.tape.Begin("pow_backward_exponent", grad, self, exponent, result)
	positive := exponent.CompareScalar("ge")
	cond := c.Bind(self.CompareScalar("eq").compare("logical_and", positive))
	slope := result.Mul(self.AsType(resultType(self, exponent)).Log())
	zero := c.t.ScalarTensor(grad.dtype)
	return c.End(grad.Mul(Where(cond, zero, slope)))
}

// NumberPow records number ** x. It also allocates a double for the number on the device. Autocast runs it in fp32.
func (x *Tensor) NumberPow(n Number) *Tensor {
	c := x.tape.Begin("pow_Scalar", x)
	c.CastToFP32(&x)
	z := c.t.Alloc(n.promote(x.dtype), x.shape...)
	base := c.t.ScalarTensor(F64)
	c.t.LaunchElementwise(z, powFLOPs, x, base)
	return c.End(z.SetGradFn("PowBackward2", inputs{x}, saves{x, z}, func(b *Gradients) {
		// grad * (result * log(base))
		b.Set(0, b.Grad.Mul(b.Saved(1).MulScalar()))
	}))
}

// PowInPlace records x.pow_(e), whose backward needs the old value of x.
func (x *Tensor) PowInPlace(e float64) *Tensor {
	t := x.tape
	c := t.Begin("pow_", x)
	n := t.record("PowBackward0", x)
	if n != nil {
		n.save(c.Bind(x.cloneForInPlace()))
		n.apply = func(b *Gradients) { b.Set(0, powBackward(b.Grad, b.Saved(0), e)) }
	}
	t.LaunchElementwise(x, transcendentalFLOPs, x)
	if n != nil {
		x.rebase(n)
	}
	return c.End(x)
}

// SquareInPlace records x.square_().
func (x *Tensor) SquareInPlace() *Tensor { return x.PowInPlace(2) }

// Atan2 records torch.atan2(x, y). Autocast casts both to the wider type.
func (x *Tensor) Atan2(y *Tensor) *Tensor {
	c := x.tape.Begin("atan2", x, y)
	c.Promote(&x, &y)
	z := c.t.Map("atan2", floating(resultType(x, y)), 20, x, y)
	return c.End(z.SetGradFn("Atan2Backward0", inputs{x, y}, saves{y, x}, func(b *Gradients) {
		atan2Backward(b, b.Saved(1), b.Saved(0))
	}))
}

func atan2Backward(b *Gradients, x, y *Tensor) {
	c := b.t.Begin("atan2_backward", b.Grad, x, y)
	yy := y.Mul(y)
	squares := c.Bind(x.Mul(x).Add(yy))
	recip := squares.Reciprocal()
	recip = c.Bind(recip.MaskedFillInPlace(squares.CompareScalar("eq_Scalar")))
	if b.Needs(0) {
		b.Out[0] = b.Grad.Mul(y).Mul(recip).Retain()
	}
	if b.Needs(1) {
		minus := x.Neg()
		b.Out[1] = b.Grad.Mul(minus).Mul(recip).Retain()
	}
	c.Finish()
}
