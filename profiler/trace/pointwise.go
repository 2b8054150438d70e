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

// sincBackward is sinc_backward.
func sincBackward(g, x *Tensor) *Tensor {
	c := g.tape.begin("sinc_backward", g, x)
	angle := c.let(x.MulScalar())
	square := c.let(x.Mul(x).MulScalar())
	cosine := angle.Mul(angle.Cos())
	slope := c.let(g.Mul(cosine.Sub(angle.Sin()).Div(square)))
	zero := c.t.scalarTensor(g.dtype)
	return c.end(Where(square.compareScalar("eq"), zero, slope))
}

// IsFinite is torch.isfinite(x): (x == x) * (x.abs() != inf).
func (x *Tensor) IsFinite() *Tensor {
	c := x.tape.begin("isfinite", x)
	if !x.dtype.differentiable() {
		return c.end(x.tape.Filled("ones_like", Bool, x.shape...))
	}
	bounded := x.plain("abs", 1).compareScalar("ne_Scalar")
	return c.end(x.compare("eq_Tensor", x).Mul(bounded))
}
