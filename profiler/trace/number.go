package trace

// Number is the type of a Python number that is passed to an operator. Like a tensor without dimensions, it can promote
// the type of the result.
type Number uint8

// The types of numbers, in the order of promotion.
const (
	BoolNumber Number = iota
	IntNumber
	RealNumber
	ComplexNumber
)

// promote returns the result type of a tensor and a number: the tensor's, unless the number's category is higher.
func (n Number) promote(d DType) DType {
	switch {
	case n == ComplexNumber:
		return C64
	case n == RealNumber && !d.differentiable():
		return F32
	case n == IntNumber && d == Bool:
		return I64
	default:
		return d
	}
}

// AddNumber records x + number, and x - number.
func (x *Tensor) AddNumber(n Number) *Tensor { return opAddNumber.CallWith(n, x) }

// DivRounded records torch.div(x, number, rounding_mode=...). Integers stay integers, and the gradient is zero.
func (x *Tensor) DivRounded(n Number) *Tensor { return opDivNumberRounded.CallWith(n, x) }

// DivRoundedOf records torch.div(x, y, rounding_mode=...) of two tensors. Integers stay integers; gradients are zero.
func (x *Tensor) DivRoundedOf(y *Tensor) *Tensor { return opDivRounded.Call(x, y) }

var (
	opDivNumberRounded = &Operator{
		Schema: "div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor",
		native: "div_Tensor_mode", node: "DivBackward3", flops: 1, result: promoted,
		gradients: formulas{"self": "zeros_like(grad)"},
	}
	opDivRounded = &Operator{
		Schema: "div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor",
		node:   "DivBackward2", flops: 2, result: promoted,
		gradients: formulas{"self": "div_backward(grad, other)", "other": "div_backward(grad, self, other)"},
	}
)

// FloorDivide records x // number, which has no gradient.
func (x *Tensor) FloorDivide(n Number) *Tensor {
	c := x.tape.Begin("floor_divide", x)
	return c.End(x.tape.Map("floor_divide", n.promote(x.dtype), 1, x))
}

// FloorDivideOf records x // y of two tensors.
func (x *Tensor) FloorDivideOf(y *Tensor) *Tensor {
	return x.compareAs("floor_divide", resultType(x, y), y)
}

// compareAs records a pointwise operator of two tensors without a gradient; the result has type d.
func (x *Tensor) compareAs(op string, d DType, y *Tensor) *Tensor {
	c := x.tape.Begin(op, x, y)
	return c.End(x.tape.Map(op, d, 1, x, y))
}

// AddScalar records x + number (or x - number) for a number that does not promote x. Its value affects no allocation.
func (x *Tensor) AddScalar() *Tensor { return opAddNumber.Call(x) }

// MulScalar records x * number.
func (x *Tensor) MulScalar() *Tensor { return opMulNumber.Call(x) }

// DivScalar records x / number.
func (x *Tensor) DivScalar() *Tensor { return opDivNumber.Call(x) }

// RSubScalar records number - x.
func (x *Tensor) RSubScalar() *Tensor { return opSubtractFrom.Call(x) }

// AddScalarInPlace records x += number (also x -= number).
func (x *Tensor) AddScalarInPlace() *Tensor { return opAddNumber.CallInPlace(x) }

// MulScalarInPlace records x *= number.
func (x *Tensor) MulScalarInPlace() *Tensor { return opMulNumber.CallInPlace(x) }

// DivScalarInPlace records x /= number.
func (x *Tensor) DivScalarInPlace() *Tensor { return opDivNumber.CallInPlace(x) }

// ScalarTensor records at::scalar_tensor: a tensor with one number on the device.
func (t *Tape) ScalarTensor(d DType) *Tensor {
	c := t.Begin("scalar_tensor")
	s := t.Alloc(d)
	t.LaunchFill(s)
	return c.End(s)
}
