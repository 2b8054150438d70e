package trace

import (
	"errors"

	"github.com/vprof/vprof/profiler/program"
)

// WhereNumbers records torch.where(cond, number, number): both become tensors.
func WhereNumbers(cond *Tensor, d DType) *Tensor {
	c := cond.tape.begin("where_Scalar", cond)
	y := c.t.scalarTensor(d)
	x := c.t.scalarTensor(d)
	return c.end(Where(cond, x, y))
}

// MaskedFillWith records x.masked_fill(mask, value) for a value that is a tensor
// without dimensions.
func (x *Tensor) MaskedFillWith(mask, value *Tensor) *Tensor {
	c := x.tape.begin("masked_fill_Tensor", x, mask, value)
	y := c.t.empty(x.dtype, broadcast(x, mask)...)
	c.t.launchCopy(y, x)
	c.t.launchElementwise(y, 1, y, mask)
	return c.end(y.derived("MaskedFillBackward1", inputs{x, value}, saves{mask}, each(
		partial{0, func(b *backward) *Tensor { return b.grad.MaskedFill(b.saved(0)) }},
		partial{1, func(b *backward) *Tensor {
			return whereScalar("where_ScalarOther", b.saved(0), b.grad).Sum(false)
		}},
	)))
}

// Filled returns a tensor like x that operator op fills with one number; no gradient
// comes through.
func (x *Tensor) Filled(op string) *Tensor {
	c := x.tape.begin(op, x)
	y := x.emptyLike(x.dtype)
	c.t.launchFill(y)
	return c.end(y.derived("FillBackward0", inputs{x}, nil, func(b *backward) { b.give(0, b.grad.ZerosLike()) }))
}

// Overwrite returns an operator that changes the elements of x in place and that
// autograd does not follow, such as x.logical_and_(y).
func (x *Tensor) Overwrite() *Tensor {
	c := x.tape.begin("bitwise_", x)
	x.tape.launchElementwise(x, 1, x)
	return c.end(x)
}

// ClampBetween records x.clamp(lo, hi) with tensors as bounds, either of which may
// be nil. The bounds get no gradient.
func (x *Tensor) ClampBetween(lo, hi *Tensor) *Tensor {
	t := x.tape
	if lo == nil && hi == nil {
		t.Raise(errors.New("torch.clamp: At least one of 'min' or 'max' must not be None"))
	}
	c := t.begin("clamp_Tensor", x, lo, hi)
	operands := append([]*Tensor{x}, indicesGiven([]*Tensor{lo, hi})...)
	z := t.map1("clamp", resultType(operands...), 2, operands...)
	return c.end(z.derived("ClampBackward0", inputs{x}, saves{hi, lo, x}, func(b *backward) {
		hi, lo, x := b.saved(0), b.saved(1), b.saved(2)
		c := t.begin("clamp_backward", b.grad)
		zero := t.scalarTensor(b.grad.dtype)
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
		b.give(0, c.end(Where(inside, b.grad, zero)))
	}))
}

// ClampBy records x.clamp_min(y), or clamp_max, for a tensor y.
func (x *Tensor) ClampBy(y *Tensor) *Tensor {
	t := x.tape
	c := t.begin("clamp_min_Tensor", x, y)
	z := t.map1("clamp_min", resultType(x, y), 1, x, y)
	return c.end(z.derived("ClampMinBackward1", inputs{x, y}, saves{y, x}, func(b *backward) {
		y, x := b.saved(0), b.saved(1)
		for _, i := range [...]int{1, 0} {
			if b.needs(i) {
				zero := t.scalarTensor(b.grad.dtype)
				b.give(i, Where(x.compare("ge", y), b.grad, zero))
			}
		}
	}))
}

// IsClose records torch.isclose(x, y).
func (x *Tensor) IsClose(y *Tensor) *Tensor {
	c := x.tape.begin("isclose", x, y)
	close := c.let(x.compare("eq", y))
	allowed := c.let(y.plain("mul", 1).plain("abs", 1).plain("add", 1))
	actual := c.let(x.compareAs("sub", x.dtype, y).plain("abs", 1))
	within := actual.compare("le", allowed)
	close.tape.launchElementwise(close, 1, actual.IsFinite().compare("logical_and", within))
	c.statement()
	return c.end(close)
}

// IsIn records torch.isin(x, set) for a small set.
func (x *Tensor) IsIn(set *Tensor) *Tensor {
	c := x.tape.begin("isin", x, set)
	y := c.let(c.t.empty(Bool, x.shape...))
	shape := append([]int64(nil), x.shape...)
	wide := c.let(x.alias(append(shape, 1), append(append([]int64(nil), x.strides...), 1), x.offset))
	hits := c.let(wide.compare("eq", set))
	found := c.let(c.t.empty(Bool, x.shape...)) // any(-1), which is then copied
	c.t.launch(program.Reduction, hits.numel, []*Tensor{found}, []*Tensor{hits})
	c.t.launchCopy(y, found)
	return c.end(y)
}

// CopySign records torch.copysign(x, y).
func (x *Tensor) CopySign(y *Tensor) *Tensor {
	t := x.tape
	c := t.begin("copysign_Tensor", x, y)
	z := t.map1("copysign", floating(resultType(x, y)), 1, x, y)
	return c.end(z.derived("CopysignBackward0", inputs{x, y}, saves{x, z}, func(b *backward) {
		if b.needs(1) {
			b.give(1, t.Zeros(b.input(1).dtype, b.input(1).shape...))
		}
		if b.needs(0) {
			x := b.saved(0)
			b.give(0, copySignGrad(b.grad, x, b.saved(1)))
		}
	}))
}

// copySignGrad records copysign_tensor_self_backward.
func copySignGrad(grad, x, result *Tensor) *Tensor {
	c := grad.tape.begin("copysign_tensor_self_backward", grad, x, result)
	ratio := c.let(result.Div(x))
	ratio.MaskedFillInPlace(x.compareScalar("eq"))
	c.statement()
	return c.end(grad.Mul(ratio))
}
