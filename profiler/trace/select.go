package trace

import (
	"errors"

	"github.com/vprof/vprof/profiler/program"
)

// WhereNumbers records torch.where(cond, number, number). Both numbers become tensors on the device.
func WhereNumbers(cond *Tensor, d DType) *Tensor {
	c := cond.tape.Begin("where_Scalar", cond)
	y := c.t.ScalarTensor(d)
	x := c.t.ScalarTensor(d)
	return c.End(Where(cond, x, y))
}

// MaskedFillWith records x.masked_fill(mask, value) with a value that is a tensor without dimensions.
func (x *Tensor) MaskedFillWith(mask, value *Tensor) *Tensor {
	c := x.tape.Begin("masked_fill_Tensor", x, mask, value)
	y := c.t.Alloc(x.dtype, broadcast(x, mask)...)
	c.t.LaunchCopy(y, x)
	c.t.LaunchElementwise(y, 1, y, mask)
	return c.End(y.SetGradFn("MaskedFillBackward1", inputs{x, value}, saves{mask}, inputGradients(
		inputGradient{0, func(b *Gradients) *Tensor { return b.Grad.MaskedFill(b.Saved(0)) }},
		inputGradient{1, func(b *Gradients) *Tensor {
			return whereScalar("where_ScalarOther", b.Saved(0), b.Grad).Sum(false)
		}},
	)))
}

// Filled records an operator op that returns a tensor like x filled with one number. The gradient of x is zero.
func (x *Tensor) Filled(op string) *Tensor {
	c := x.tape.Begin(op, x)
	y := x.AllocLike(x.dtype)
	c.t.LaunchFill(y)
	return c.End(y.SetGradFn("FillBackward0", inputs{x}, nil, func(b *Gradients) { b.Set(0, b.Grad.ZerosLike()) }))
}

// Overwrite records an in-place operator without a derivative, such as x.logical_and_(y).
func (x *Tensor) Overwrite() *Tensor {
	c := x.tape.Begin("bitwise_", x)
	x.tape.LaunchElementwise(x, 1, x)
	return c.End(x)
}

// ClampBetween records x.clamp(lo, hi) with tensors as bounds, which may be nil. The bounds get no gradients.
func (x *Tensor) ClampBetween(lo, hi *Tensor) *Tensor {
	t := x.tape
	if lo == nil && hi == nil {
		t.Raise(errors.New("torch.clamp: At least one of 'min' or 'max' must not be None"))
	}
	c := t.Begin("clamp_Tensor", x, lo, hi)
	operands := append([]*Tensor{x}, nonNilIndices([]*Tensor{lo, hi})...)
	z := t.Map("clamp", resultType(operands...), 2, operands...)
	return c.End(z.SetGradFn("ClampBackward0", inputs{x}, saves{hi, lo, x}, func(b *Gradients) {
		hi, lo, x := b.Saved(0), b.Saved(1), b.Saved(2)
		c := t.Begin("clamp_backward", b.Grad)
		zero := t.ScalarTensor(b.Grad.dtype)
		var inside *Tensor
		switch {
		case lo != nil && hi != nil:
			inside = x.compare("ge", lo)
			x.compare("le", hi)
		case lo != nil:
			inside = x.compare("ge", lo)
		default:
			inside = x.compare("le", hi)
		}
		b.Set(0, c.End(Where(inside, b.Grad, zero)))
	}))
}

// ClampBy records x.clamp_min(y) for a tensor y; clamp_max allocates the same.
func (x *Tensor) ClampBy(y *Tensor) *Tensor {
	t := x.tape
	c := t.Begin("clamp_min_Tensor", x, y)
	z := t.Map("clamp_min", resultType(x, y), 1, x, y)
	return c.End(z.SetGradFn("ClampMinBackward1", inputs{x, y}, saves{y, x}, func(b *Gradients) {
		y, x := b.Saved(0), b.Saved(1)
		for _, i := range [...]int{1, 0} {
			if b.Needs(i) {
				zero := t.ScalarTensor(b.Grad.dtype)
				b.Set(i, Where(x.compare("ge", y), b.Grad, zero))
			}
		}
	}))
}

// IsClose records torch.isclose(x, y).
func (x *Tensor) IsClose(y *Tensor) *Tensor {
	c := x.tape.Begin("isclose", x, y)
	close := c.Bind(x.compare("eq", y))
	allowed := c.Bind(y.mapWithoutGrad("mul", 1).mapWithoutGrad("abs", 1).mapWithoutGrad("add", 1))
	actual := c.Bind(x.compareAs("sub", x.dtype, y).mapWithoutGrad("abs", 1))
	within := actual.compare("le", allowed)
	close.tape.LaunchElementwise(close, 1, actual.IsFinite().compare("logical_and", within))
	c.EndStatement()
	return c.End(close)
}

// IsIn records torch.isin(x, set) for a small set.
func (x *Tensor) IsIn(set *Tensor) *Tensor {
	c := x.tape.Begin("isin", x, set)
	y := c.Bind(c.t.Alloc(Bool, x.shape...))
	shape := append([]int64(nil), x.shape...)
	wide := c.Bind(x.Alias(append(shape, 1), append(append([]int64(nil), x.strides...), 1), x.offset))
	hits := c.Bind(wide.compare("eq", set))
	found := c.Bind(c.t.Alloc(Bool, x.shape...)) // any(-1), which is then copied
	c.t.Launch(program.Reduction, hits.numel, []*Tensor{found}, []*Tensor{hits})
	c.t.LaunchCopy(y, found)
	return c.End(y)
}

// CopySign records torch.copysign(x, y).
func (x *Tensor) CopySign(y *Tensor) *Tensor {
	t := x.tape
	c := t.Begin("copysign_Tensor", x, y)
	z := t.Map("copysign", floating(resultType(x, y)), 1, x, y)
	return c.End(z.SetGradFn("CopysignBackward0", inputs{x, y}, saves{x, z}, func(b *Gradients) {
		if b.Needs(1) {
			b.Set(1, t.Zeros(b.input(1).dtype, b.input(1).shape...))
		}
		if b.Needs(0) {
			x := b.Saved(0)
			b.Set(0, copySignGrad(b.Grad, x, b.Saved(1)))
		}
	}))
}

// copySignGrad records copysign_tensor_self_backward.
func copySignGrad(grad, x, result *Tensor) *Tensor {
	c := grad.tape.Begin("copysign_tensor_self_backward", grad, x, result)
	ratio := c.Bind(result.Div(x))
	ratio.MaskedFillInPlace(x.CompareScalar("eq"))
	c.EndStatement()
	return c.End(grad.Mul(ratio))
}
