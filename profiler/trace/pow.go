package trace

import "math"

// Pow records x ** e for a number e.
func (x *Tensor) Pow(e float64) *Tensor {
	return x.powScalar("pow_Tensor_Scalar", e)
}

// Square records torch.square(x).
func (x *Tensor) Square() *Tensor { return x.powScalar("square", 2) }

func (x *Tensor) powScalar(op string, e float64) *Tensor {
	c := x.tape.begin(op, x)
	c.full(&x)
	d := x.dtype
	if e != math.Trunc(e) {
		d = floating(d)
	}
	z := c.t.map1("pow", d, transcendentalFLOPs, x)
	return c.end(z.derived("PowBackward0", inputs{x}, saves{x},
		func(b *backward) { b.give(0, powBackward(b.grad, b.saved(0), e)) }))
}

// powBackward records pow_backward: grad * (e * self.pow(e - 1)).
func powBackward(grad, self *Tensor, e float64) *Tensor {
	c := grad.tape.begin("pow_backward", grad, self)
	if e == 0 {
		z := grad.emptyLike(grad.dtype)
		c.t.launchFill(z)
		return c.end(z)
	}
	slope := self.Pow(e - 1).MulScalar()
	return c.end(grad.Mul(slope))
}

// PowTensor records x ** e for a tensor e.
func (x *Tensor) PowTensor(e *Tensor) *Tensor { return operatorIndex["pow.Tensor_Tensor"].Call(x, e) }

// powBaseGrad records pow_backward_self.
func powBaseGrad(grad, self, exponent *Tensor) *Tensor {
	c := grad.tape.begin("pow_backward_self", grad, self, exponent)
	slope := grad.Mul(exponent.Mul(self.PowTensor(exponent.AddScalar())))
	zero := c.t.scalarTensor(grad.dtype)
	return c.end(Where(exponent.compareScalar("eq"), zero, slope))
}

// powExponentGrad records pow_backward_exponent.
func powExponentGrad(grad, self, exponent, result *Tensor) *Tensor {
	c := grad.tape.begin("pow_backward_exponent", grad, self, exponent, result)
	positive := exponent.compareScalar("ge")
	cond := c.let(self.compareScalar("eq").compare("logical_and", positive))
	slope := result.Mul(self.to(resultType(self, exponent)).Log())
	zero := c.t.scalarTensor(grad.dtype)
	return c.end(grad.Mul(Where(cond, zero, slope)))
}

// NumberPow records number ** x. The operator also fills a double on the device from the
// number. Autocast runs it in fp32.
func (x *Tensor) NumberPow(n Number) *Tensor {
	c := x.tape.begin("pow_Scalar", x)
	c.full(&x)
	z := c.t.empty(n.with(x.dtype), x.shape...)
	base := c.t.scalarTensor(F64)
	c.t.launchElementwise(z, powFLOPs, x, base)
	return c.end(z.derived("PowBackward2", inputs{x}, saves{x, z}, func(b *backward) {
		// grad * (result * log(base))
		b.give(0, b.grad.Mul(b.saved(1).MulScalar()))
	}))
}

// PowInPlace records x.pow_(e): backward needs what x was.
func (x *Tensor) PowInPlace(e float64) *Tensor {
	t := x.tape
	c := t.begin("pow_", x)
	n := t.record("PowBackward0", x)
	if n != nil {
		n.save(c.let(x.cloneForInPlace()))
		n.apply = func(b *backward) { b.give(0, powBackward(b.grad, b.saved(0), e)) }
	}
	t.launchElementwise(x, transcendentalFLOPs, x)
	if n != nil {
		x.rebase(n)
	}
	return c.end(x)
}

// SquareInPlace records x.square_().
func (x *Tensor) SquareInPlace() *Tensor { return x.PowInPlace(2) }

// Atan2 records torch.atan2(x, y). Autocast gives both the wider type.
func (x *Tensor) Atan2(y *Tensor) *Tensor {
	c := x.tape.begin("atan2", x, y)
	c.promote(&x, &y)
	z := c.t.map1("atan2", floating(resultType(x, y)), 20, x, y)
	return c.end(z.derived("Atan2Backward0", inputs{x, y}, saves{y, x}, func(b *backward) {
		atan2Backward(b, b.saved(1), b.saved(0))
	}))
}

// atan2Backward records atan2_backward.
func atan2Backward(b *backward, x, y *Tensor) {
	c := b.t.begin("atan2_backward", b.grad, x, y)
	yy := y.Mul(y)
	squares := c.let(x.Mul(x).Add(yy))
	recip := squares.Reciprocal()
	recip = c.let(recip.MaskedFillInPlace(squares.compareScalar("eq_Scalar")))
	if b.needs(0) {
		b.out[0] = b.grad.Mul(y).Mul(recip).retain()
	}
	if b.needs(1) {
		minus := x.Neg()
		b.out[1] = b.grad.Mul(minus).Mul(recip).retain()
	}
	c.finish()
}
