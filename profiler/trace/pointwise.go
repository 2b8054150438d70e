package trace

// Map computes a new tensor element by element, without autograd.
func (t *Tape) Map(op string, d DType, flops int64, xs ...*Tensor) *Tensor {
	native := t.native
	if t.native == t.op {
		t.native = op
	}
	y := t.elementwise(d, xs...)
	t.LaunchElementwise(y, flops, xs...)
	t.native = native
	return y
}

// mapWithoutGrad computes a new tensor from x alone, without autograd.
func (x *Tensor) mapWithoutGrad(op string, flops int64) *Tensor {
	c := x.tape.Begin(op, x)
	return c.End(c.t.Map(op, x.dtype, flops, x))
}

// Operations per element of functions without a row in operators.txt, counted as there. Elementwise kernels wait for
// memory on every GPU of the catalog, so a count off by a factor of two changes no estimate.
const (
	rootFLOPs           = 4
	transcendentalFLOPs = 8
	powFLOPs            = 16 // the power of a tensor: log, product and exp
)

func sincBackward(g, x *Tensor) *Tensor {
	c := g.tape.Begin("sinc_backward", g, x)
	angle := c.Bind(x.MulScalar())
	square := c.Bind(x.Mul(x).MulScalar())
	cosine := angle.Mul(angle.Cos())
	slope := c.Bind(g.Mul(cosine.Sub(angle.Sin()).Div(square)))
	zero := c.t.ScalarTensor(g.dtype)
	return c.End(Where(square.CompareScalar("eq"), zero, slope))
}

// IsFinite records torch.isfinite(x): (x == x) * (x.abs() != inf).
func (x *Tensor) IsFinite() *Tensor {
	c := x.tape.Begin("isfinite", x)
	if !x.dtype.differentiable() {
		return c.End(x.tape.Filled("ones_like", Bool, x.shape...))
	}
	bounded := x.mapWithoutGrad("abs", 1).CompareScalar("ne_Scalar")
	return c.End(x.compare("eq_Tensor", x).Mul(bounded))
}

// Functions of one tensor that models written in Go call by name. All others are called by [Tensor.Unary].

// Exp records torch.exp.
func (x *Tensor) Exp() *Tensor { return x.Unary("exp") }

// Log records torch.log.
func (x *Tensor) Log() *Tensor { return x.Unary("log") }

// Sqrt records torch.sqrt.
func (x *Tensor) Sqrt() *Tensor { return x.Unary("sqrt") }

// Rsqrt records torch.rsqrt.
func (x *Tensor) Rsqrt() *Tensor { return x.Unary("rsqrt") }

// Reciprocal records torch.reciprocal.
func (x *Tensor) Reciprocal() *Tensor { return x.Unary("reciprocal") }

// Abs records torch.abs, whose result is real for a complex tensor.
func (x *Tensor) Abs() *Tensor { return x.Unary("abs") }

// Sin records torch.sin.
func (x *Tensor) Sin() *Tensor { return x.Unary("sin") }

// Cos records torch.cos.
func (x *Tensor) Cos() *Tensor { return x.Unary("cos") }

// Sgn records torch.sgn.
func (x *Tensor) Sgn() *Tensor { return x.Unary("sgn") }

// Tanh records torch.tanh.
func (x *Tensor) Tanh() *Tensor { return x.Unary("tanh") }

// Sigmoid records torch.sigmoid.
func (x *Tensor) Sigmoid() *Tensor { return x.Unary("sigmoid") }

// ReLU records torch.relu.
func (x *Tensor) ReLU() *Tensor { return x.Unary("relu") }

// GELU records torch.nn.functional.gelu.
func (x *Tensor) GELU() *Tensor { return x.Unary("gelu") }

// SiLU records torch.nn.functional.silu.
func (x *Tensor) SiLU() *Tensor { return x.Unary("silu") }

// Softplus records torch.nn.functional.softplus.
func (x *Tensor) Softplus() *Tensor { return x.Unary("softplus") }

// LogSigmoid records torch.nn.functional.logsigmoid.
func (x *Tensor) LogSigmoid() *Tensor { return x.Unary("log_sigmoid") }

// Round records torch.round; floor, ceil, trunc and sign allocate the same.
func (x *Tensor) Round() *Tensor { return x.Unary("round") }

// ExpInPlace records x.exp_().
func (x *Tensor) ExpInPlace() *Tensor { return operatorIndex["exp"].CallInPlace(x) }

// ReLUInPlace records x.relu_().
func (x *Tensor) ReLUInPlace() *Tensor { return operatorIndex["relu"].CallInPlace(x) }

// LeakyReLU records torch.nn.functional.leaky_relu.
func (x *Tensor) LeakyReLU() *Tensor { return x.Unary("leaky_relu") }

// LeakyReLUInPlace records x.leaky_relu_().
func (x *Tensor) LeakyReLUInPlace() *Tensor { return operatorIndex["leaky_relu_"].CallInPlace(x) }

// conjugate records the x.conj() of a product's factor: complex numbers are copied.
func (x *Tensor) conjugate() *Tensor {
	if x.dtype != C64 {
		return x
	}
	return x.mapWithoutGrad("conj_physical", 1)
}

// floating returns the result type of true division and of unary functions.
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

	// opAddScaled is x + alpha*y for an alpha other than one.
	opAddScaled = &Operator{
		Schema: "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", flops: 2, result: promoted,
		gradients: formulas{"self": "grad", "other": "grad * alpha"},
	}
	opSubScaled = &Operator{
		Schema: "sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", flops: 2, result: promoted,
		gradients: formulas{"self": "grad", "other": "-grad * alpha"},
	}
)

// Add records x + y.
func (x *Tensor) Add(y *Tensor) *Tensor { return opAdd.Call(x, y) }

// AddAlpha records torch.add(x, y, alpha=a) for an a other than one.
func (x *Tensor) AddAlpha(y *Tensor) *Tensor { return opAddScaled.Call(x, y) }

// Sub records x - y.
func (x *Tensor) Sub(y *Tensor) *Tensor { return opSub.Call(x, y) }

// SubAlpha records torch.sub(x, y, alpha=a) for an a other than one.
func (x *Tensor) SubAlpha(y *Tensor) *Tensor { return opSubScaled.Call(x, y) }

// Mul records x * y.
func (x *Tensor) Mul(y *Tensor) *Tensor { return opMul.Call(x, y) }

// Div records x / y.
func (x *Tensor) Div(y *Tensor) *Tensor { return opDiv.Call(x, y) }

// AddInPlace records x += y.
func (x *Tensor) AddInPlace(y *Tensor) *Tensor { return opAdd.CallInPlace(x, y) }

// SubInPlace records x -= y.
func (x *Tensor) SubInPlace(y *Tensor) *Tensor { return opSub.CallInPlace(x, y) }

// MulInPlace records x *= y.
func (x *Tensor) MulInPlace(y *Tensor) *Tensor { return opMul.CallInPlace(x, y) }

// DivInPlace records x /= y.
func (x *Tensor) DivInPlace(y *Tensor) *Tensor { return opDiv.CallInPlace(x, y) }

// Neg records -x.
func (x *Tensor) Neg() *Tensor { return opNeg.Call(x) }
