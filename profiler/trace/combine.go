package trace

// Lerp is torch.lerp(x, y, number).
func (x *Tensor) Lerp(y *Tensor) *Tensor {
	t := x.tape
	c := t.begin("lerp_Scalar", x, y)
	z := t.map1("lerp", x.dtype, 3, x, y)
	if n := t.record("LerpBackward0", x, y); n != nil {
		n.yields(z)
		n.apply = func(b *backward) {
			for _, i := range [...]int{1, 0} {
				if b.needs(i) {
					b.give(i, b.grad.MulScalar())
				}
			}
		}
	}
	return c.end(z)
}

// AddCMul is torch.addcmul(x, a, b): x + number * a * b. Autocast gives all
// the widest type.
func (x *Tensor) AddCMul(a, b *Tensor) *Tensor {
	t := x.tape
	c := t.begin("addcmul", x, a, b)
	c.promote(&x, &a, &b)
	z := t.map1("addcmul", resultType(x, a, b), 3, x, a, b)
	if n := t.record("AddcmulBackward0", x, a, b); n != nil {
		n.keep(a, b.requiresGrad)
		n.keep(b, a.requiresGrad)
		n.yields(z)
		n.apply = addcmulBackward
	}
	return c.end(z)
}

// AddCDiv is torch.addcdiv(x, a, b): x + number * a / b. Autocast gives all
// the widest type.
func (x *Tensor) AddCDiv(a, b *Tensor) *Tensor {
	t := x.tape
	c := t.begin("addcdiv", x, a, b)
	c.promote(&x, &a, &b)
	z := t.map1("addcdiv", resultType(x, a, b), 6, x, a, b)
	if n := t.record("AddcdivBackward0", x, a, b); n != nil {
		n.keep(a, b.requiresGrad)
		n.save(b)
		n.yields(z)
		n.apply = addcdivBackward
	}
	return c.end(z)
}

// addcdivBackward:
//
//	tensor1: grad * (value / tensor2)
//	tensor2: -grad * (value * tensor1 / (tensor2 * tensor2))
func addcdivBackward(w *backward) {
	a, b := w.saved(0), w.saved(1)
	if w.needs(0) {
		w.give(0, w.grad)
	}
	if w.needs(1) {
		slope := b.emptyLike(b.dtype) // number / tensor fills and divides in place
		w.t.launchElementwise(slope, 4, b)
		w.give(1, w.grad.Mul(slope))
	}
	if w.needs(2) {
		square := b.Mul(b)
		slope := a.MulScalar().Div(square)
		w.give(2, w.grad.Neg().Mul(slope))
	}
}

// Atan2 is torch.atan2(x, y). Autocast gives both the wider type.
func (x *Tensor) Atan2(y *Tensor) *Tensor {
	t := x.tape
	c := t.begin("atan2", x, y)
	c.promote(&x, &y)
	z := t.map1("atan2", floating(resultType(x, y)), 20, x, y)
	if n := t.record("Atan2Backward0", x, y); n != nil {
		n.save(y, x)
		n.yields(z)
		n.apply = func(b *backward) {
			atan2Backward(b, b.saved(1), b.saved(0))
		}
	}
	return c.end(z)
}

// atan2Backward is atan2_backward:
//
//	squares = self * self + other * other
//	recip = squares.reciprocal().masked_fill_(squares == 0, 0)
//	grad * other * recip, grad * -self * recip
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
	c.done()
}

// LerpInPlace is x.lerp_(y, number).
func (x *Tensor) LerpInPlace(y *Tensor) *Tensor {
	t := x.tape
	c := t.begin("lerp__Scalar", x, y)
	t.launchElementwise(x, 3, x, y)
	if n := t.record("LerpBackward0", x, y); n != nil {
		n.apply = func(b *backward) {
			for _, i := range [...]int{1, 0} {
				if b.needs(i) {
					b.give(i, b.grad.MulScalar())
				}
			}
		}
		x.rebase(n)
	}
	return c.end(x)
}

// AddCMulInPlace is x.addcmul_(a, b).
func (x *Tensor) AddCMulInPlace(a, b *Tensor) *Tensor {
	t := x.tape
	c := t.begin("addcmul_", x, a, b)
	t.launchElementwise(x, 3, x, a, b)
	if n := t.record("AddcmulBackward0", x, a, b); n != nil {
		n.keep(a, b.requiresGrad)
		n.keep(b, a.requiresGrad)
		n.apply = addcmulBackward
		x.rebase(n)
	}
	return c.end(x)
}

func addcmulBackward(w *backward) {
	if w.needs(0) {
		w.give(0, w.grad)
	}
	if w.needs(1) {
		slope := w.saved(1).MulScalar()
		w.give(1, w.grad.Mul(slope))
	}
	if w.needs(2) {
		slope := w.saved(0).MulScalar()
		w.give(2, w.grad.Mul(slope))
	}
}
