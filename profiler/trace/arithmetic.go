package trace

// Add is x + y.
func (x *Tensor) Add(y *Tensor) *Tensor {
	t := x.tape
	c := t.begin("add_Tensor", x, y)
	z := t.map1("add", resultType(x, y), 1, x, y)
	if n := t.record("AddBackward0", x, y); n != nil {
		n.yields(z)
		n.apply = addBackward
	}
	return c.end(z)
}

func addBackward(b *backward) {
	if b.needs(1) {
		b.give(1, b.grad)
	}
	if b.needs(0) {
		b.give(0, b.grad)
	}
}

// conjugated is x.conj() as a product takes it: complex numbers are copied.
func (x *Tensor) conjugated() *Tensor {
	if x.dtype != C64 {
		return x
	}
	return x.plain("conj_physical", 1)
}

// AddAlpha is torch.add(x, y, alpha=a) for an a other than one.
func (x *Tensor) AddAlpha(y *Tensor) *Tensor {
	t := x.tape
	c := t.begin("add_Tensor", x, y)
	z := t.map1("add", resultType(x, y), 2, x, y)
	if n := t.record("AddBackward0", x, y); n != nil {
		n.yields(z)
		n.apply = func(b *backward) {
			if b.needs(1) {
				b.give(1, b.grad.MulScalar())
			}
			if b.needs(0) {
				b.give(0, b.grad)
			}
		}
	}
	return c.end(z)
}

// SubAlpha is torch.sub(x, y, alpha=a) for an a other than one.
func (x *Tensor) SubAlpha(y *Tensor) *Tensor {
	t := x.tape
	c := t.begin("sub_Tensor", x, y)
	z := t.map1("sub", resultType(x, y), 2, x, y)
	if n := t.record("SubBackward0", x, y); n != nil {
		n.yields(z)
		n.apply = func(b *backward) {
			if b.needs(1) {
				b.give(1, b.grad.Neg().MulScalar())
			}
			if b.needs(0) {
				b.give(0, b.grad)
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
		n.apply = subBackward
	}
	return c.end(z)
}

func subBackward(b *backward) {
	if b.needs(1) {
		b.give(1, b.grad.Neg())
	}
	if b.needs(0) {
		b.give(0, b.grad)
	}
}

// Mul is x * y.
func (x *Tensor) Mul(y *Tensor) *Tensor {
	t := x.tape
	c := t.begin("mul_Tensor", x, y)
	z := t.map1("mul", resultType(x, y), 1, x, y)
	if n := t.record("MulBackward0", x, y); n != nil {
		n.keep(y, x.requiresGrad)
		n.keep(x, y.requiresGrad)
		n.yields(z)
		n.apply = mulBackward
	}
	return c.end(z)
}

func mulBackward(b *backward) {
	if b.needs(1) {
		b.give(1, b.grad.Mul(b.saved(1).conjugated()))
	}
	if b.needs(0) {
		b.give(0, b.grad.Mul(b.saved(0).conjugated()))
	}
}

// Div is x / y.
func (x *Tensor) Div(y *Tensor) *Tensor {
	t := x.tape
	c := t.begin("div_Tensor", x, y)
	z := t.map1("div", floating(resultType(x, y)), 4, x, y)
	if n := t.record("DivBackward0", x, y); n != nil {
		n.keep(y, true)
		n.keep(x, y.requiresGrad)
		n.yields(z)
		n.apply = divBackward
	}
	return c.end(z)
}

// divBackward is div_tensor_other_grad and div_tensor_self_backward.
func divBackward(b *backward) {
	y, x := b.saved(0), b.saved(1)
	if b.needs(1) {
		q := x.Div(y).Div(y)
		b.give(1, b.grad.Neg().Mul(q))
	}
	if b.needs(0) {
		b.give(0, b.grad.Div(y))
	}
}

// floating is the result type of true division and of unary functions.
func floating(d DType) DType {
	if d.differentiable() {
		return d
	}
	return F32
}

// inPlace is a pointwise operator that overwrites x with a function of x and
// y. Where y wants a gradient, keepX keeps a clone of what x was; keepY keeps y.
func (x *Tensor) inPlace(op, node string, y *Tensor, keepX, keepY bool, apply func(*backward)) *Tensor {
	t := x.tape
	c := t.begin(op, x, y)
	if !t.tracked(x, y) {
		t.launchElementwise(x, 1, x, y)
		return c.end(x)
	}
	n := t.record(node, x, y)
	n.keep(y, keepY)
	if keepX && y.requiresGrad {
		n.save(c.let(x.cloneForInPlace()))
	} else {
		n.keep(nil, false)
	}
	t.launchElementwise(x, 1, x, y)
	n.apply = apply
	x.rebase(n)
	return c.end(x)
}

// AddInPlace is x += y.
func (x *Tensor) AddInPlace(y *Tensor) *Tensor {
	return x.inPlace("add__Tensor", "AddBackward0", y, false, false, addBackward)
}

// SubInPlace is x -= y.
func (x *Tensor) SubInPlace(y *Tensor) *Tensor {
	return x.inPlace("sub__Tensor", "SubBackward0", y, false, false, subBackward)
}

// MulInPlace is x *= y.
func (x *Tensor) MulInPlace(y *Tensor) *Tensor {
	return x.inPlace("mul__Tensor", "MulBackward0", y, true, x.requiresGrad, mulBackward)
}

// DivInPlace is x /= y.
func (x *Tensor) DivInPlace(y *Tensor) *Tensor {
	return x.inPlace("div__Tensor", "DivBackward0", y, true, true, divBackward)
}
