package trace

// Number is the kind of a Python number that an operator takes: it can lift
// the type of the result, as a tensor without dimensions would.
type Number uint8

// The kinds of numbers, in the order in which they lift.
const (
	BoolNumber Number = iota
	IntNumber
	RealNumber
)

// with is the type of a result of x and a number: that of x unless the number
// is of a higher kind.
func (n Number) with(d DType) DType {
	switch {
	case n == RealNumber && !d.differentiable():
		return F32
	case n == IntNumber && d == Bool:
		return I64
	default:
		return d
	}
}

// AddNumber is x + number, and x - number.
func (x *Tensor) AddNumber(n Number) *Tensor {
	return x.withScalar("add_Tensor", "AddBackward0", n.with(x.dtype), same)
}

// MulNumber is x * number.
func (x *Tensor) MulNumber(n Number) *Tensor {
	return x.withScalar("mul_Tensor", "MulBackward0", n.with(x.dtype), scaled)
}

// RSubNumber is number - x.
func (x *Tensor) RSubNumber(n Number) *Tensor {
	return x.withScalar("rsub_Scalar", "RsubBackward1", n.with(x.dtype), negated)
}

// Remainder is x % number (also torch.fmod): the gradient passes unchanged.
func (x *Tensor) Remainder(n Number) *Tensor {
	return x.withScalar("remainder_Scalar", "RemainderBackward0", n.with(x.dtype), same)
}

// DivRounded is torch.div(x, number, rounding_mode=...), which keeps integers
// integers and has a gradient of zero.
func (x *Tensor) DivRounded(n Number) *Tensor {
	return x.withScalar("div_Tensor_mode", "DivBackward3", n.with(x.dtype), zeroed)
}

// FloorDivide is x // number, which autograd refuses to go back through.
func (x *Tensor) FloorDivide(n Number) *Tensor {
	c := x.tape.begin("floor_divide", x)
	return c.end(x.tape.map1("floor_divide", n.with(x.dtype), 1, x))
}

func zeroed(b *backward) { b.give(0, b.grad.ZerosLike()) }

// RemainderOf is x % y (also torch.fmod) of two tensors:
//
//	self: grad
//	other: -grad * self.div(other, rounding_mode="floor")
func (x *Tensor) RemainderOf(y *Tensor) *Tensor {
	t := x.tape
	c := t.begin("remainder_Tensor", x, y)
	z := t.map1("remainder", resultType(x, y), 2, x, y)
	if n := t.record("RemainderBackward0", x, y); n != nil {
		n.keep(x, y.requiresGrad)
		n.keep(y, y.requiresGrad)
		n.yields(z)
		n.apply = func(b *backward) {
			if b.needs(1) {
				q := b.saved(0).DivRoundedOf(b.saved(1))
				b.give(1, b.grad.Neg().Mul(q))
			}
			if b.needs(0) {
				b.give(0, b.grad)
			}
		}
	}
	return c.end(z)
}

// DivRoundedOf is torch.div(x, y, rounding_mode=...) of two tensors; it keeps
// integers integers and its gradients are zeros.
func (x *Tensor) DivRoundedOf(y *Tensor) *Tensor {
	t := x.tape
	c := t.begin("div_Tensor_mode", x, y)
	z := t.map1("div", resultType(x, y), 2, x, y)
	if n := t.record("DivBackward2", x, y); n != nil {
		n.save(y)
		n.keep(x, y.requiresGrad)
		n.yields(z)
		n.apply = func(b *backward) {
			for _, i := range [...]int{1, 0} {
				if b.needs(i) {
					b.give(i, b.grad.ZerosLike())
				}
			}
		}
	}
	return c.end(z)
}

// FloorDivideOf is x // y of two tensors.
func (x *Tensor) FloorDivideOf(y *Tensor) *Tensor {
	return x.compareAs("floor_divide", resultType(x, y), y)
}

// compareAs is a pointwise operator of two tensors that autograd does not
// follow.
func (x *Tensor) compareAs(op string, d DType, y *Tensor) *Tensor {
	c := x.tape.begin(op, x, y)
	return c.end(x.tape.map1(op, d, 1, x, y))
}
