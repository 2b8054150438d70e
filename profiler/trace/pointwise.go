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
