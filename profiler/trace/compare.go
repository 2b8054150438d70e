package trace

// compare records a comparison or logical operator. Its result is boolean and has no gradient.
func (x *Tensor) compare(op string, y *Tensor) *Tensor { return x.compareAs(op, Bool, y) }

// CompareScalar records the comparison op of x with a number.
func (x *Tensor) CompareScalar(op string) *Tensor {
	c := x.tape.Begin(op, x)
	return c.End(c.t.Map(op, Bool, 1, x))
}

// Gt records x > y. The other comparisons of two tensors allocate the same.
func (x *Tensor) Gt(y *Tensor) *Tensor { return x.compare("gt_Tensor", y) }

// GtScalar records x > number. The other comparisons with a number allocate the same.
func (x *Tensor) GtScalar() *Tensor { return x.CompareScalar("gt_Scalar") }

// Eq records x == y.
func (x *Tensor) Eq(y *Tensor) *Tensor { return x.compare("eq_Tensor", y) }

// EqScalar records x == number.
func (x *Tensor) EqScalar() *Tensor { return x.CompareScalar("eq_Scalar") }

// And records x & y. The other bitwise operators allocate the same. The result has no gradient.
func (x *Tensor) And(y *Tensor) *Tensor {
	c := x.tape.Begin("__and___Tensor", x, y)
	return c.End(x.tape.Map("__and__", resultType(x, y), 1, x, y))
}

// IsNaN records torch.isnan(x).
func (x *Tensor) IsNaN() *Tensor { return x.compare("ne_Tensor", x) }

// IsInf records torch.isinf(x): x.abs() == inf.
func (x *Tensor) IsInf() *Tensor {
	c := x.tape.Begin("isinf", x)
	return c.End(x.mapWithoutGrad("abs", 1).CompareScalar("eq"))
}

// Where records torch.where(cond, x, y).
func Where(cond, x, y *Tensor) *Tensor {
	c := cond.tape.Begin("where_self", cond, x, y)
	d := resultType(x, y)
	a, b, chosen := x, y, cond
	c.t.NoGrad(func() { // the casts are below autograd
		if x.dtype != d {
			a = c.Bind(x.AsType(d))
		}
		if y.dtype != d {
			b = c.Bind(y.AsType(d))
		}
		chosen = c.Bind(cond.AsType(Bool)) // bytes are still taken
	})
	z := c.t.Map("where", d, 1, chosen, a, b)
	return c.End(z.SetGradFn("WhereBackward0", inputs{x, y}, saves{cond}, inputGradients(
		inputGradient{1, func(b *Gradients) *Tensor { return whereScalar("where_ScalarSelf", b.Saved(0), b.Grad) }},
		inputGradient{0, func(b *Gradients) *Tensor { return whereScalar("where_ScalarOther", b.Saved(0), b.Grad) }},
	)))
}

// WhereScalar records torch.where with a tensor and a number in either order. The number becomes a device tensor.
func WhereScalar(cond, x *Tensor) *Tensor { return whereScalar("where_ScalarOther", cond, x) }

// WhereNumber records WhereScalar with a number that may promote the type of the result.
func WhereNumber(cond, x *Tensor, n Number) *Tensor {
	c := cond.tape.Begin("where_ScalarOther", cond, x)
	s := c.Bind(c.t.ScalarTensor(n.promote(x.dtype)))
	return c.End(Where(cond, x, s))
}

func whereScalar(op string, cond, x *Tensor) *Tensor {
	c := cond.tape.Begin(op, cond, x)
	s := c.Bind(c.t.ScalarTensor(x.dtype))
	if op == "where_ScalarSelf" {
		return c.End(Where(cond, s, x))
	}
	return c.End(Where(cond, x, s))
}

// Clamp records x.clamp(min, max).
func (x *Tensor) Clamp() *Tensor { return opClamp.Call(x) }

// ClampInPlace records x.clamp_(min, max).
func (x *Tensor) ClampInPlace() *Tensor { return opClamp.CallInPlace(x) }

// ClampOneSided records x.clamp(min=number) or x.clamp(max=number).
func (x *Tensor) ClampOneSided() *Tensor { return opClampOneSided.Call(x) }

// ClampMin records x.clamp_min(number).
func (x *Tensor) ClampMin() *Tensor { return operatorIndex["clamp_min"].Call(x) }

// ClampMinInPlace records x.clamp_min_(number).
func (x *Tensor) ClampMinInPlace() *Tensor { return operatorIndex["clamp_min"].CallInPlace(x) }

var (
	opClamp = &Operator{
		Schema: "clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor",
		node:   "ClampBackward1", flops: 2, result: promoted,
		gradients: formulas{"self": "clamp_backward(grad, self, min, max)"},
	}
	opClampOneSided = &Operator{
		Schema: "clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor",
		node:   "ClampBackward1", flops: 1, result: promoted,
		gradients: formulas{"self": "clamp_min_backward(grad, self, min)"},
	}
)

func clampBackward(grad, x *Tensor, both bool) *Tensor {
	c := grad.tape.Begin("clamp_backward", grad, x)
	zero := c.t.ScalarTensor(grad.dtype)
	inside := x.CompareScalar("ge")
	if both {
		x.CompareScalar("le")
	}
	return c.End(Where(inside, grad, zero))
}

// MaskedFill records x.masked_fill(mask, number).
func (x *Tensor) MaskedFill(mask *Tensor) *Tensor {
	c := x.tape.Begin("masked_fill_Scalar", x, mask)
	y := c.t.Alloc(x.dtype, broadcast(x, mask)...)
	c.t.LaunchCopy(y, x)
	c.t.LaunchElementwise(y, 1, y, mask)
	return c.End(y.SetGradFn("MaskedFillBackward0", inputs{x}, saves{mask}, maskedFillBackward))
}

// MaskedFillInPlace records x.masked_fill_(mask, number).
func (x *Tensor) MaskedFillInPlace(mask *Tensor) *Tensor {
	c := x.tape.Begin("masked_fill__Scalar", x, mask)
	c.t.LaunchElementwise(x, 1, x, mask)
	return c.End(x.resetGradFn("MaskedFillBackward0", inputs{x}, saves{mask}, maskedFillBackward))
}

func maskedFillBackward(b *Gradients) { b.Set(0, b.Grad.MaskedFill(b.Saved(0))) }

// Maximum records torch.maximum(x, y).
func (x *Tensor) Maximum(y *Tensor) *Tensor { return operatorIndex["maximum"].Call(x, y) }

// Minimum records torch.minimum(x, y).
func (x *Tensor) Minimum(y *Tensor) *Tensor { return operatorIndex["minimum"].Call(x, y) }

// extremumGrad records the gradient of maximum or minimum, which is halved where both inputs are equal.
func extremumGrad(grad, x, y *Tensor) *Tensor {
	c := grad.tape.Begin("extremum_backward", grad, x, y)
	var mask *Tensor
	if c.t.rules.Operators.ExtremumMasksFirst {
		mask = x.compare("gt_Tensor", y)
	}
	half := grad.DivScalar()
	g := Where(x.compare("eq_Tensor", y), half, grad)
	if mask == nil {
		mask = x.compare("gt_Tensor", y)
	}
	return c.End(g.MaskedFillInPlace(mask))
}
