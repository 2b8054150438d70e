package trace

import "math"

// Norm is x.norm(p, dims, keepdim): torch.linalg.vector_norm. Autocast computes
// it in fp32.
func (x *Tensor) Norm(p float64, keep bool, dims ...int) *Tensor {
	c := x.tape.begin("linalg_vector_norm", x)
	d := c.fullResult(x.dtype)
	y := x.reduce(reduction{op: "linalg_vector_norm", out: d, accSize: d.accumulate().Size()}, dims, keep)
	return c.end(y.derived("LinalgVectorNormBackward0", inputs{x}, saves{x, y},
		func(b *backward) { b.give(0, normBackward(b.grad, b.saved(0), b.saved(1), p, dims, keep)) }))
}

// normBackward is norm_backward.
func normBackward(grad, self, norm *Tensor, p float64, dims []int, keep bool) *Tensor {
	if p == 0 {
		return nil
	}
	c := grad.tape.begin("norm_backward", grad, self, norm)
	if !keep {
		grad, norm = c.let(grad.restoreDims(self.NDim(), dims)), c.let(norm.restoreDims(self.NDim(), dims))
	}
	switch {
	case p == 1:
		return c.end(self.Sgn().Mul(grad))
	case math.IsInf(p, 0):
		return c.end(maxNormGrad(grad, self, norm, dims))
	case p < 1:
		return c.end(fractionNormGrad(grad, self, norm, p))
	case p != 2:
		return c.end(powerNormGrad(grad, self, norm, p))
	}
	direction := self.Div(norm)
	direction.MaskedFillInPlace(norm.compareScalar("eq_Scalar"))
	return c.end(grad.Mul(direction))
}

// maxNormGrad shares the gradient among the largest elements.
func maxNormGrad(grad, self, norm *Tensor, dims []int) *Tensor {
	c := grad.tape.begin("norm_backward", grad, self, norm)
	size := c.let(self.plain("abs", 1))
	equal := size.compare("eq", norm)
	mask := c.let(equal.compare("logical_or", size.IsNaN()))
	share := grad.Div(mask.Sum(true, dims...)).Mul(mask)
	return c.end(self.Sgn().Mul(share))
}

// fractionNormGrad is the gradient for an order below one.
func fractionNormGrad(grad, self, norm *Tensor, p float64) *Tensor {
	c := grad.tape.begin("norm_backward", grad, self, norm)
	size := self.plain("abs", 1)
	size.MaskedFillInPlace(self.compareScalar("eq_Scalar"))
	scaled := c.let(self.Sgn().Mul(size))
	power := norm.Pow(1 - p)
	return c.end(scaled.Mul(grad).Mul(power))
}

// powerNormGrad is the gradient for an order above one but two.
func powerNormGrad(grad, self, norm *Tensor, p float64) *Tensor {
	c := grad.tape.begin("norm_backward", grad, self, norm)
	var scaled *Tensor
	if p < 2 {
		direction := self.Sgn()
		scaled = c.let(direction.Mul(self.plain("abs", 1)))
	} else {
		scaled = c.let(self.Mul(self.plain("abs", 1)))
	}
	scale := c.let(grad.Div(norm.Pow(p - 1)))
	scale.MaskedFillInPlace(norm.compareScalar("eq_Scalar"))
	c.statement()
	return c.end(scaled.Mul(scale))
}

// restoreDims is unsqueeze_multiple: reduced dimensions come back with size
// one.
func (x *Tensor) restoreDims(n int, dims []int) *Tensor {
	if n == 0 {
		return x
	}
	reduced := make([]bool, n)
	for _, d := range wrapDims(n, dims) {
		reduced[d] = true
	}
	for d, r := range reduced {
		if r {
			x = x.Unsqueeze(d)
		}
	}
	return x
}

// Normalize is torch.nn.functional.normalize(x, dim=dim).
func (x *Tensor) Normalize(dim int) *Tensor {
	f := x.tape.funcFrame(x)
	denom := f.Let(x.Norm(2, true, dim).ClampMin().ExpandAs(x))
	y := x.Div(denom)
	f.End(y)
	return y
}

// ExpandAs is x.expand_as(y).
func (x *Tensor) ExpandAs(y *Tensor) *Tensor { return x.Expand(y.shape...) }
