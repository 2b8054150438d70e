package trace

// Add is x + y.
func (x *Tensor) Add(y *Tensor) *Tensor {
	t := x.tape
	c := t.begin("add_Tensor", x, y)
	z := t.map1("add", resultType(x, y), 1, x, y)
	if n := t.record("AddBackward0", x, y); n != nil {
		n.yields(z)
		n.apply = func(b *backward) {
			if b.needs(0) {
				b.give(0, b.grad)
			}
			if b.needs(1) {
				b.give(1, b.grad)
			}
		}
	}
	return c.end(z)
}

// Sub is x - y.
func (x *Tensor) Sub(y *Tensor) *Tensor {
	t := x.tape
	c := t.begin("sub_Tensor", x, y)
	z := t.map1("sub", resultType(x, y), 1, x, y)
	if n := t.record("SubBackward0", x, y); n != nil {
		n.yields(z)
		n.apply = func(b *backward) {
			if b.needs(0) {
				b.give(0, b.grad)
			}
			if b.needs(1) {
				b.give(1, b.grad.Neg())
			}
		}
	}
	return c.end(z)
}

// Mul is x * y.
func (x *Tensor) Mul(y *Tensor) *Tensor {
	t := x.tape
	c := t.begin("mul_Tensor", x, y)
	z := t.map1("mul", resultType(x, y), 1, x, y)
	if n := t.record("MulBackward0", x, y); n != nil {
		n.keep(x, y.requiresGrad)
		n.keep(y, x.requiresGrad)
		n.yields(z)
		n.apply = func(b *backward) {
			if b.needs(0) {
				b.give(0, b.grad.Mul(b.saved(1)))
			}
			if b.needs(1) {
				b.give(1, b.grad.Mul(b.saved(0)))
			}
		}
	}
	return c.end(z)
}

// Div is x / y.
func (x *Tensor) Div(y *Tensor) *Tensor {
	t := x.tape
	c := t.begin("div_Tensor", x, y)
	z := t.map1("div", floating(resultType(x, y)), 4, x, y)
	if n := t.record("DivBackward0", x, y); n != nil {
		n.keep(x, y.requiresGrad)
		n.keep(y, true)
		n.yields(z)
		n.apply = func(b *backward) {
			x, y := b.saved(0), b.saved(1)
			if b.needs(0) {
				b.give(0, b.grad.Div(y))
			}
			if b.needs(1) {
				b.give(1, b.grad.Neg().Mul(x.Div(y).Div(y)))
			}
		}
	}
	return c.end(z)
}

// floating is the result type of true division and of unary functions.
func floating(d DType) DType {
	if d.differentiable() {
		return d
	}
	return F32
}

// withScalar is an operator with a number: y has x's shape, and the gradient
// is back(grad).
func (x *Tensor) withScalar(op, node string, d DType, back func(grad *Tensor) *Tensor) *Tensor {
	t := x.tape
	c := t.begin(op, x)
	z := t.map1(op, d, 1, x)
	if n := t.record(node, x); n != nil {
		n.yields(z)
		n.apply = func(b *backward) { b.give(0, back(b.grad)) }
	}
	return c.end(z)
}

func same(g *Tensor) *Tensor { return g }

// AddScalar is x + number (also x - number).
func (x *Tensor) AddScalar() *Tensor {
	return x.withScalar("add_Tensor", "AddBackward0", x.dtype, same)
}

// MulScalar is x * number.
func (x *Tensor) MulScalar() *Tensor {
	return x.withScalar("mul_Tensor", "MulBackward0", x.dtype, (*Tensor).MulScalar)
}

// DivScalar is x / number.
func (x *Tensor) DivScalar() *Tensor {
	return x.withScalar("div_Tensor", "DivBackward0", floating(x.dtype), (*Tensor).DivScalar)
}

// RSubScalar is number - x.
func (x *Tensor) RSubScalar() *Tensor {
	return x.withScalar("rsub_Scalar", "RsubBackward1", x.dtype, (*Tensor).Neg)
}

// Pow is x ** e for a number e.
func (x *Tensor) Pow(e float64) *Tensor {
	t := x.tape
	c := t.begin("pow_Tensor_Scalar", x)
	in := t.full(x)
	z := t.map1("pow", in.dtype, 8, in)
	if n := t.record("PowBackward0", in); n != nil {
		n.save(in)
		n.yields(z)
		n.apply = func(b *backward) { b.give(0, b.grad.Mul(b.saved(0).Pow(e-1).MulScalar())) }
	}
	return c.end(z)
}

// AddInPlace is x += y.
func (x *Tensor) AddInPlace(y *Tensor) *Tensor {
	t := x.tape
	c := t.begin("add__Tensor", x, y)
	t.launchElementwise(x, 1, x, y)
	if n := t.record("AddBackward0", x, y); n != nil {
		n.apply = func(b *backward) {
			if b.needs(0) {
				b.give(0, b.grad)
			}
			if b.needs(1) {
				b.give(1, b.grad)
			}
		}
		x.rebase(n)
	}
	return c.end(x)
}

// rebase makes n what computed x after an in-place operator.
func (x *Tensor) rebase(n *Node) {
	n.metas = []meta{{x.shape, x.dtype}}
	x.setNode(n, 0)
}
