package trace

import "slices"

// ViewAsReal records torch.view_as_real(x): a last dimension of two.
func (x *Tensor) ViewAsReal() *Tensor {
	shape, strides := append(slices.Clone(x.shape), 2), append(doubled(x.strides), 1)
	return x.retyped("view_as_real", "ViewAsRealBackward0", F32, shape, strides, 2*x.offset,
		func(b *backward) {
			b.give(0, b.grad.contiguous().ViewAsComplex())
		})
}

// ViewAsComplex records torch.view_as_complex(x) of a tensor whose last dimension is
// two.
func (x *Tensor) ViewAsComplex() *Tensor {
	last := len(x.shape) - 1
	strides := slices.Clone(x.strides[:last])
	for d := range strides {
		strides[d] /= 2
	}
	return x.retyped("view_as_complex", "ViewAsComplexBackward0", C64, x.shape[:last], strides, x.offset/2,
		func(b *backward) {
			b.give(0, b.grad.contiguous().ViewAsReal())
		})
}

// Real records torch.real(x), a view of a complex tensor.
func (x *Tensor) Real() *Tensor {
	if x.dtype != C64 {
		return x
	}
	c := x.tape.begin("real", x)
	return c.end(x.ViewAsReal().Select(-1, 0))
}

// Imag records torch.imag(x), a view of a complex tensor.
func (x *Tensor) Imag() *Tensor {
	c := x.tape.begin("imag", x)
	return c.end(x.ViewAsReal().Select(-1, 1))
}

// Conj records torch.conj(x): a view that the next operator conjugates.
func (x *Tensor) Conj() *Tensor {
	return x.viewOf("_conj", "ConjBackward0", x.shape, x.strides, x.offset, func(b *backward) {
		b.give(0, b.grad.Conj())
	})
}

// Complex records torch.complex(re, im). Its backward saves both and uses neither, because derivatives.yaml
// gives them the names of the functions real(grad) and imag(grad) in its formulas.
func Complex(re, im *Tensor) *Tensor {
	c := re.tape.begin("complex", re, im)
	z := c.t.map1("complex", C64, 0, re, im)
	kept := saves{when(im.requiresGrad, im), when(re.requiresGrad, re)}
	return c.end(z.derived("ComplexBackward0", inputs{re, im}, kept, each(
		partial{1, func(b *backward) *Tensor { return b.grad.Imag() }},
		partial{0, func(b *backward) *Tensor { return b.grad.Real() }},
	)))
}

// retyped returns a view of x as elements of another type.
func (x *Tensor) retyped(op, node string, d DType, shape, strides []int64, offset int64,
	back func(b *backward),
) *Tensor {
	c := x.tape.begin(op, x)
	y := c.t.header(x.store, d, c.t.layout(shape, strides), offset)
	y.derived(node, inputs{x}, nil, back)
	y.setBase(x)
	return c.end(y)
}

// realPart records at::real of a complex tensor: a view of every other number.
func (x *Tensor) realPart() *Tensor {
	return x.tape.header(x.store, F32, x.tape.layout(x.shape, doubled(x.strides)), 2*x.offset)
}

// doubled returns the strides of complex numbers in units of real ones.
func doubled(strides []int64) []int64 {
	out := make([]int64, len(strides), len(strides)+1)
	for d, s := range strides {
		out[d] = 2 * s
	}
	return out
}

// Angle records torch.angle(x), of a complex tensor.
func (x *Tensor) Angle() *Tensor {
	if x.dtype != C64 {
		return x.Function("angle")
	}
	c := x.tape.begin("angle", x)
	wide := c.let(c.t.map1("angle", C64, transcendentalFLOPs, x))
	y := c.let(x.emptyLike(F32))
	c.t.launchCopy(y, wide)
	return c.end(y.derived("AngleBackward0", inputs{x}, saves{x},
		func(b *backward) { b.give(0, angleGrad(b.grad, b.saved(0))) }))
}

// angleGrad records angle_backward: where(self == 0, 0, grad * self / self.abs().pow(2) * 1j).
func angleGrad(grad, x *Tensor) *Tensor {
	c := grad.tape.begin("angle_backward", grad, x)
	square := x.Abs().Pow(2)
	turned := grad.Mul(x).Div(square).MulScalar()
	zero := c.t.scalarTensor(C64)
	return c.end(Where(x.compareScalar("eq"), zero, turned))
}

// Polar records torch.polar(x, angle): complex numbers of absolute values and angles.
func (x *Tensor) Polar(angle *Tensor) *Tensor {
	t := x.tape
	c := t.begin("polar", x, angle)
	z := t.map1("polar", C64, transcendentalFLOPs, x, angle)
	return c.end(z.derived("PolarBackward0", inputs{x, angle}, saves{z}, func(b *backward) {
		c := t.begin("polar_backward", b.grad, b.saved(0))
		conj := c.let(b.grad.conjugated())
		var dx, dangle *Tensor
		if b.needs(0) {
			dx = conj.Mul(b.saved(0).Sgn()).Real().retain()
			c.statement()
		}
		if b.needs(1) {
			dangle = conj.Mul(b.saved(0).MulScalar()).Real().retain()
			c.statement()
		}
		c.finish()
		b.giveAll(dx, dangle)
	}))
}
