package trace

// conjugated is x.conj() as a product takes it: complex numbers are copied.
func (x *Tensor) conjugated() *Tensor {
	if x.dtype != C64 {
		return x
	}
	return x.plain("conj_physical", 1)
}

// floating is the result type of true division and of unary functions.
func floating(d DType) DType {
	if d.differentiable() {
		return d
	}
	return F32
}

var (
	opAdd = operatorIndex["add.Tensor"]
	opSub = operatorIndex["sub.Tensor"]
	opMul = operatorIndex["mul.Tensor"]
	opDiv = operatorIndex["div.Tensor"]

	opAddNumber    = operatorIndex["add.Scalar"]
	opMulNumber    = operatorIndex["mul.Scalar"]
	opDivNumber    = operatorIndex["div.Scalar"]
	opNeg          = operatorIndex["neg"]
	opSubtractFrom = operatorIndex["rsub.Scalar"]

	// Of an alpha other than one.
	opAddScaled = &Operator{
		Schema: "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", flops: 2, result: promoted,
		gradients: formulas{"self": "grad", "other": "grad * alpha"},
	}
	opSubScaled = &Operator{
		Schema: "sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", flops: 2, result: promoted,
		gradients: formulas{"self": "grad", "other": "-grad * alpha"},
	}
)

// Add is x + y.
func (x *Tensor) Add(y *Tensor) *Tensor { return opAdd.Call(x, y) }

// AddAlpha is torch.add(x, y, alpha=a) for an a other than one.
func (x *Tensor) AddAlpha(y *Tensor) *Tensor { return opAddScaled.Call(x, y) }

// Sub is x - y.
func (x *Tensor) Sub(y *Tensor) *Tensor { return opSub.Call(x, y) }

// SubAlpha is torch.sub(x, y, alpha=a) for an a other than one.
func (x *Tensor) SubAlpha(y *Tensor) *Tensor { return opSubScaled.Call(x, y) }

// Mul is x * y.
func (x *Tensor) Mul(y *Tensor) *Tensor { return opMul.Call(x, y) }

// Div is x / y.
func (x *Tensor) Div(y *Tensor) *Tensor { return opDiv.Call(x, y) }

// AddInPlace is x += y.
func (x *Tensor) AddInPlace(y *Tensor) *Tensor { return opAdd.CallInPlace(x, y) }

// SubInPlace is x -= y.
func (x *Tensor) SubInPlace(y *Tensor) *Tensor { return opSub.CallInPlace(x, y) }

// MulInPlace is x *= y.
func (x *Tensor) MulInPlace(y *Tensor) *Tensor { return opMul.CallInPlace(x, y) }

// DivInPlace is x /= y.
func (x *Tensor) DivInPlace(y *Tensor) *Tensor { return opDiv.CallInPlace(x, y) }

// Neg is -x.
func (x *Tensor) Neg() *Tensor { return opNeg.Call(x) }
