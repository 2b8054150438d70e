package trace

import "slices"

// ViewAsReal records torch.view_as_real(x), whose result has an additional last dimension of two.
func (x *Tensor) ViewAsReal() *Tensor {
	shape, strides := append(slices.Clone(x.shape), 2), append(doubleStrides(x.strides), 1)
	return x.viewAsType("view_as_real", "ViewAsRealBackward0", F32, shape, strides, 2*x.offset, func(b *Gradients) {
		b.Set(0, b.Grad.AsContiguous().ViewAsComplex())
	})
}

// ViewAsComplex records torch.view_as_complex(x) of a tensor whose last dimension is two.
func (x *Tensor) ViewAsComplex() *Tensor {
	last := len(x.shape) - 1
	strides := slices.Clone(x.strides[:last])
	for d := range strides {
		strides[d] /= 2
	}
	return x.viewAsType("view_as_complex", "ViewAsComplexBackward0", C64, x.shape[:last], strides, x.offset/2,
		func(b *Gradients) { b.Set(0, b.Grad.AsContiguous().ViewAsReal()) })
}

// Real records torch.real(x), a view of a complex tensor.
func (x *Tensor) Real() *Tensor {
	if x.dtype != C64 {
		return x
	}
	c := x.tape.Begin("real", x)
	return c.End(x.ViewAsReal().Select(-1, 0))
}

// Imag records torch.imag(x), a view of a complex tensor.
func (x *Tensor) Imag() *Tensor {
	c := x.tape.Begin("imag", x)
	return c.End(x.ViewAsReal().Select(-1, 1))
}

// Conj records torch.conj(x): a view that the next operator conjugates.
func (x *Tensor) Conj() *Tensor {
	return x.viewOf("_conj", "ConjBackward0", x.shape, x.strides, x.offset, func(b *Gradients) {
		b.Set(0, b.Grad.Conj())
	})
}

// Complex records torch.complex(re, im). Its backward saves both and uses neither, because derivatives.yaml
// gives them the names of the functions real(grad) and imag(grad) in its formulas.
func Complex(re, im *Tensor) *Tensor {
	c := re.tape.Begin("complex", re, im)
	z := c.t.Map("complex", C64, 0, re, im)
	kept := saves{tensorIf(im.requiresGrad, im), tensorIf(re.requiresGrad, re)}
	return c.End(z.SetGradFn("ComplexBackward0", inputs{re, im}, kept, inputGradients(
		inputGradient{1, func(b *Gradients) *Tensor { return b.Grad.Imag() }},
		inputGradient{0, func(b *Gradients) *Tensor { return b.Grad.Real() }},
	)))
}

// viewAsType records a view of x as elements of another type.
func (x *Tensor) viewAsType(op, node string, d DType, shape, strides []int64, offset int64,
	back func(b *Gradients),
) *Tensor {
	c := x.tape.Begin(op, x)
	y := c.t.newHeader(x.store, d, c.t.layout(shape, strides), offset)
	y.SetGradFn(node, inputs{x}, nil, back)
	y.setBase(x)
	return c.End(y)
}

// RealPart records at::real of a complex tensor: a view of every second number.
func (x *Tensor) RealPart() *Tensor {
	return x.tape.newHeader(x.store, F32, x.tape.layout(x.shape, doubleStrides(x.strides)), 2*x.offset)
}

// doubleStrides converts strides in complex elements to strides in real elements.
func doubleStrides(strides []int64) []int64 {
	out := make([]int64, len(strides), len(strides)+1)
	for d, s := range strides {
		out[d] = 2 * s
	}
	return out
}

// Angle records torch.angle(x), of a complex tensor.
func (x *Tensor) Angle() *Tensor {
	if x.dtype != C64 {
		return x.Unary("angle")
	}
	c := x.tape.Begin("angle", x)
	wide := c.Bind(c.t.Map("angle", C64, transcendentalFLOPs, x))
	y := c.Bind(x.AllocLike(F32))
	c.t.LaunchCopy(y, wide)
	return c.End(y.SetGradFn("AngleBackward0", inputs{x}, saves{x},
		func(b *Gradients) { b.Set(0, angleGrad(b.Grad, b.Saved(0))) }))
}

// angleGrad records angle_backward: where(self == 0, 0, grad * self / self.abs().pow(2) * 1j).
func angleGrad(grad, x *Tensor) *Tensor {
	c := grad.tape.Begin("angle_backward", grad, x)
	square := x.Abs().Pow(2)
	turned := grad.Mul(x).Div(square).MulScalar()
	zero := c.t.ScalarTensor(C64)
	return c.End(Where(x.CompareScalar("eq"), zero, turned))
}

// Polar records torch.polar(x, angle): complex numbers with absolute values x.
func (x *Tensor) Polar(angle *Tensor) *Tensor {
	t := x.tape
	c := t.Begin("polar", x, angle)
	z := t.Map("polar", C64, transcendentalFLOPs, x, angle)
	return c.End(z.SetGradFn("PolarBackward0", inputs{x, angle}, saves{z}, func(b *Gradients) {
		c := t.Begin("polar_backward", b.Grad, b.Saved(0))
		conj := c.Bind(b.Grad.conjugate())
		var dx, dangle *Tensor
		if b.Needs(0) {
			dx = conj.Mul(b.Saved(0).Sgn()).Real().Retain()
			c.EndStatement()
		}
		if b.Needs(1) {
			dangle = conj.Mul(b.Saved(0).MulScalar()).Real().Retain()
			c.EndStatement()
		}
		c.Finish()
		b.SetAll(dx, dangle)
	}))
}
