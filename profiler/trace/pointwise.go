package trace

// map1 computes a new tensor element by element, without autograd.
func (t *Tape) map1(op string, d DType, flops int64, xs ...*Tensor) *Tensor {
	native := t.native
	if t.native == t.op {
		t.native = op
	}
	y := t.elementwise(d, xs...)
	t.launchElementwise(y, flops, xs...)
	t.native = native
	return y
}

// plain computes a new tensor from x alone, without autograd.
func (x *Tensor) plain(op string, flops int64) *Tensor {
	c := x.tape.begin(op, x)
	return c.end(c.t.map1(op, x.dtype, flops, x))
}

// unary describes a pointwise operator of one tensor.
type unary struct {
	op, node string
	// keepIn and keepOut say what backward needs.
	keepIn, keepOut bool
	// full marks the operators that autocast runs in fp32.
	full bool
	// real marks a real result of a complex argument, exact a function that
	// keeps integers integers.
	real, exact bool
	flops       int64
	// back is the gradient, given grad and what was kept (x or y).
	back func(grad, kept *Tensor) *Tensor
}

func (x *Tensor) unary(u *unary) *Tensor {
	t := x.tape
	c := t.begin(u.op, x)
	if u.full {
		c.full(&x)
	}
	y := u.result(t, x)
	u.track(t, x, y)
	return c.end(y)
}

// result computes u(x). A real result of a complex argument is copied out of a
// complex one.
func (u *unary) result(t *Tape, x *Tensor) *Tensor {
	if !u.real {
		d := x.dtype
		if !u.exact {
			d = floating(d)
		}
		return t.map1(u.op, d, u.flops, x)
	}
	y := x.emptyLike(F32)
	c := t.begin(u.op)
	t.launchCopy(y, t.map1(u.op, x.dtype, u.flops, x))
	c.done()
	return y
}

// track records the autograd node of y = u(x).
func (u *unary) track(t *Tape, x, y *Tensor) {
	n := t.record(u.node, x)
	if n == nil {
		return
	}
	switch {
	case u.keepIn:
		n.save(x)
	case u.keepOut:
		n.save(y)
	default:
		n.keep(nil, false)
	}
	n.yields(y)
	back := u.back
	n.apply = func(b *backward) { b.give(0, back(b.grad, b.saved(0))) }
}

// unaryInPlace is the variant that overwrites x (exp_, relu_, ...). Operators
// that keep their input keep a clone of it.
func (x *Tensor) unaryInPlace(u *unary) *Tensor {
	t := x.tape
	c := t.begin(u.op+"_", x)
	if !t.tracked(x) {
		t.launchElementwise(x, u.flops, x)
		return c.end(x)
	}
	var original *Tensor
	if u.keepIn {
		original = c.let(x.cloneForInPlace())
	}
	t.launchElementwise(x, u.flops, x)
	n := t.record(u.node, x)
	switch {
	case u.keepIn:
		n.save(original)
	case u.keepOut:
		n.save(x)
	default:
		n.keep(nil, false)
	}
	back := u.back
	n.apply = func(b *backward) { b.give(0, back(b.grad, b.saved(0))) }
	x.rebase(n)
	return c.end(x)
}

// cloneForInPlace keeps the value of x that an in-place operator destroys.
func (x *Tensor) cloneForInPlace() *Tensor {
	y := x.emptyLike(x.dtype)
	x.tape.launchCopy(y, x)
	y.requiresGrad = x.requiresGrad
	return y
}

// kernel1 is a backward kernel over grad and another tensor: one fresh result.
func kernel1(op string, flops int64) func(grad, kept *Tensor) *Tensor {
	return func(grad, kept *Tensor) *Tensor {
		t := grad.tape
		c := t.begin(op, grad, kept)
		return c.end(t.map1(op, grad.dtype, flops, grad, kept))
	}
}

// kernel1Kept is kernel1 for the kernels that name the other tensor first,
// whose layout the result then has.
func kernel1Kept(op string, flops int64) func(grad, kept *Tensor) *Tensor {
	return func(grad, kept *Tensor) *Tensor {
		t := grad.tape
		c := t.begin(op, grad, kept)
		return c.end(t.map1(op, grad.dtype, flops, kept, grad))
	}
}

// Operations per element of elementwise functions, where an addition, a multiplication
// and a comparison are one each. Functions that are not one instruction of the GPU are
// counted roughly, as the approximations named here need in single precision.
// Elementwise kernels wait for memory on every board of the catalog, so a count off by
// a factor of two changes no estimate.
const (
	rootFLOPs           = 4  // sqrt, rsqrt, reciprocal: an approximation and a Newton step
	transcendentalFLOPs = 8  // exp, log, sin, cos: range reduction and a polynomial
	composedFLOPs       = 16 // hyperbolic and inverse functions: made of two of the above
	erfFLOPs            = 10 // erf, erfc: a polynomial and exp
	powFLOPs            = 16 // the power of a tensor: log, product and exp
	specialFLOPs        = 40 // gamma and Bessel functions: series
)

var (
	opExp        = unary{op: "exp", node: "ExpBackward0", keepOut: true, full: true, flops: transcendentalFLOPs, back: func(g, y *Tensor) *Tensor { return g.Mul(y) }}
	opLog        = unary{op: "log", node: "LogBackward0", keepIn: true, full: true, flops: transcendentalFLOPs, back: func(g, x *Tensor) *Tensor { return g.Div(x) }}
	opLog1p      = unary{op: "log1p", node: "Log1PBackward0", keepIn: true, full: true, flops: transcendentalFLOPs, back: func(g, x *Tensor) *Tensor { return g.Div(x.AddScalar()) }}
	opLog2       = unary{op: "log2", node: "Log2Backward0", keepIn: true, full: true, flops: transcendentalFLOPs, back: logScaledBackward}
	opLog10      = unary{op: "log10", node: "Log10Backward0", keepIn: true, full: true, flops: transcendentalFLOPs, back: logScaledBackward}
	opExpm1      = unary{op: "expm1", node: "Expm1Backward0", keepOut: true, full: true, flops: transcendentalFLOPs, back: func(g, y *Tensor) *Tensor { return g.Mul(y.AddScalar()) }}
	opSinh       = unary{op: "sinh", node: "SinhBackward0", keepIn: true, full: true, flops: composedFLOPs, back: func(g, x *Tensor) *Tensor { return g.Mul(x.plain("cosh", composedFLOPs)) }}
	opCosh       = unary{op: "cosh", node: "CoshBackward0", keepIn: true, full: true, flops: composedFLOPs, back: func(g, x *Tensor) *Tensor { return g.Mul(x.plain("sinh", composedFLOPs)) }}
	opAcosh      = unary{op: "acosh", node: "AcoshBackward0", keepIn: true, flops: composedFLOPs, back: acoshBackward}
	opSqrt       = unary{op: "sqrt", node: "SqrtBackward0", keepOut: true, flops: rootFLOPs, back: func(g, y *Tensor) *Tensor { return g.Div(y.MulScalar()) }}
	opRsqrt      = unary{op: "rsqrt", node: "RsqrtBackward0", keepOut: true, full: true, flops: rootFLOPs, back: rsqrtBackward}
	opReciprocal = unary{op: "reciprocal", node: "ReciprocalBackward0", keepOut: true, full: true, flops: rootFLOPs, back: reciprocalBackward}
	opAbs        = unary{op: "abs", exact: true, node: "AbsBackward0", keepIn: true, flops: 1, back: func(g, x *Tensor) *Tensor { return g.Mul(x.Sgn()) }}
	opComplexAbs = unary{op: "abs", node: "AbsBackward0", keepIn: true, real: true, flops: rootFLOPs, back: func(g, x *Tensor) *Tensor { return g.Mul(x.Sgn()) }}
	opSin        = unary{op: "sin", node: "SinBackward0", keepIn: true, flops: transcendentalFLOPs, back: func(g, x *Tensor) *Tensor { return g.Mul(x.plain("cos", transcendentalFLOPs)) }}
	opCos        = unary{op: "cos", node: "CosBackward0", keepIn: true, flops: transcendentalFLOPs, back: func(g, x *Tensor) *Tensor { return g.Mul(x.plain("sin", transcendentalFLOPs).Neg()) }}
	opErf        = unary{op: "erf", node: "ErfBackward0", keepIn: true, flops: erfFLOPs, back: erfBackward}
	opRound      = unary{op: "round", exact: true, node: "RoundBackward0", flops: 1, back: func(g, _ *Tensor) *Tensor { return g.ZerosLike() }}
	opSgn        = unary{op: "sgn", exact: true, node: "SgnBackward0", flops: 1, back: zerosBackward}
)

// logScaledBackward is grad / (self * log(base)).
func logScaledBackward(g, x *Tensor) *Tensor { return g.Div(x.MulScalar()) }

// acoshBackward is grad * (self * self - 1).rsqrt() for real self.
func acoshBackward(g, x *Tensor) *Tensor {
	slope := x.Mul(x).AddScalar().Rsqrt()
	return g.Mul(slope)
}

// rsqrtBackward is -0.5 * grad * result.pow(3).
func rsqrtBackward(g, y *Tensor) *Tensor {
	cube := y.Pow(3)
	return g.MulScalar().Mul(cube)
}

// reciprocalBackward is -grad * (result * result).
func reciprocalBackward(g, y *Tensor) *Tensor {
	square := y.Mul(y)
	return g.Neg().Mul(square)
}

// erfBackward is 2/sqrt(pi) * exp(-(self.pow(2))) * grad.
func erfBackward(g, x *Tensor) *Tensor { return x.Pow(2).Neg().Exp().MulScalar().Mul(g) }

// Exp is torch.exp.
func (x *Tensor) Exp() *Tensor { return x.unary(&opExp) }

// ExpInPlace is torch.exp_.
func (x *Tensor) ExpInPlace() *Tensor { return x.unaryInPlace(&opExp) }

// Log is torch.log.
func (x *Tensor) Log() *Tensor { return x.unary(&opLog) }

// Sqrt is torch.sqrt.
func (x *Tensor) Sqrt() *Tensor { return x.unary(&opSqrt) }

// LogInPlace is torch.log_.
func (x *Tensor) LogInPlace() *Tensor { return x.unaryInPlace(&opLog) }

// SqrtInPlace is torch.sqrt_.
func (x *Tensor) SqrtInPlace() *Tensor { return x.unaryInPlace(&opSqrt) }

// Log2 is torch.log2.
func (x *Tensor) Log2() *Tensor { return x.unary(&opLog2) }

// Log10 is torch.log10.
func (x *Tensor) Log10() *Tensor { return x.unary(&opLog10) }

// Expm1 is torch.expm1.
func (x *Tensor) Expm1() *Tensor { return x.unary(&opExpm1) }

// Sinh is torch.sinh.
func (x *Tensor) Sinh() *Tensor { return x.unary(&opSinh) }

// Cosh is torch.cosh.
func (x *Tensor) Cosh() *Tensor { return x.unary(&opCosh) }

// Acosh is torch.acosh.
func (x *Tensor) Acosh() *Tensor { return x.unary(&opAcosh) }

// Log1p is torch.log1p.
func (x *Tensor) Log1p() *Tensor { return x.unary(&opLog1p) }

// Rsqrt is torch.rsqrt.
func (x *Tensor) Rsqrt() *Tensor { return x.unary(&opRsqrt) }

// Reciprocal is torch.reciprocal.
func (x *Tensor) Reciprocal() *Tensor { return x.unary(&opReciprocal) }

// Abs is torch.abs; that of a complex tensor is real.
func (x *Tensor) Abs() *Tensor {
	if x.dtype == C64 {
		return x.unary(&opComplexAbs)
	}
	return x.unary(&opAbs)
}

// Sin is torch.sin.
func (x *Tensor) Sin() *Tensor { return x.unary(&opSin) }

// Cos is torch.cos.
func (x *Tensor) Cos() *Tensor { return x.unary(&opCos) }

// Erf is torch.erf.
func (x *Tensor) Erf() *Tensor { return x.unary(&opErf) }

// Round is torch.round; floor, ceil, trunc and sign allocate the same.
func (x *Tensor) Round() *Tensor { return x.unary(&opRound) }

// Sgn is torch.sgn.
func (x *Tensor) Sgn() *Tensor { return x.unary(&opSgn) }
