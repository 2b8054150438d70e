package trace

// Atan2 is torch.atan2(x, y). Autocast gives both the wider type.
func (x *Tensor) Atan2(y *Tensor) *Tensor {
	c := x.tape.begin("atan2", x, y)
	c.promote(&x, &y)
	z := c.t.map1("atan2", floating(resultType(x, y)), 20, x, y)
	return c.end(z.derived("Atan2Backward0", inputs{x, y}, saves{y, x}, func(b *backward) {
		atan2Backward(b, b.saved(1), b.saved(0))
	}))
}

// atan2Backward is atan2_backward.
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
