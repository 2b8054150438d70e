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
func (x *Tensor) AddNumber(n Number) *Tensor { return opAddNumber.CallWith(n, x) }

// DivRounded is torch.div(x, number, rounding_mode=...), which keeps integers
// integers and has a gradient of zero.
func (x *Tensor) DivRounded(n Number) *Tensor { return opDivNumberRounded.CallWith(n, x) }

// DivRoundedOf is torch.div(x, y, rounding_mode=...) of two tensors; it keeps
// integers integers and its gradients are zeros.
func (x *Tensor) DivRoundedOf(y *Tensor) *Tensor { return opDivRounded.Call(x, y) }

var (
	opDivNumberRounded = &Operator{
		Schema: "div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor",
		native: "div_Tensor_mode", node: "DivBackward3", flops: 1, result: promoted, gradients: gradient(flat),
	}
	opDivRounded = &Operator{
		Schema: "div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor",
		node:   "DivBackward2", flops: 2, result: promoted,
		gradients: formulas{"self": "div_backward(grad, other)", "other": "div_backward(grad, self, other)"},
	}
)

// FloorDivide is x // number, which autograd refuses to go back through.
func (x *Tensor) FloorDivide(n Number) *Tensor {
	c := x.tape.begin("floor_divide", x)
	return c.end(x.tape.map1("floor_divide", n.with(x.dtype), 1, x))
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
