package trace

import (
	"math"
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
)

// Operations per element of the normalizations, counting each addition, multiplication and comparison in their formulas
// as one. On every GPU of the catalog, memory traffic takes longer, so small errors change no estimate.
const (
	// Mean and variance: a sum, difference, square and sum. Result: difference, scale, affine multiplication, addition.
	normFLOPs = 8
	// Gradient of the input: two sums of products, and the three terms
	// (g*w - mean(g*w) - xhat*mean(g*w*xhat)) * invstd.
	normBackwardFLOPs = 12
	// The elementwise kernel of a batch norm's backward, without its sums: subtract means, scale, multiply by weight
	// and invstd.
	batchNormElementwiseBackwardFLOPs = 6
	// RMS norm has no mean: a square, a sum and the two scalings.
	rmsNormFLOPs = 6
	// w = v * (g / |v|): a square, a sum, the division and the product.
	weightNormFLOPs         = 4
	weightNormBackwardFLOPs = 8
	// Gradients of weight and bias, per element of the input: recompute xhat
	// (subtract and scale), multiply by the gradient, add.
	normParameterFLOPs = 4
	// Group norm's kernel adds precomputed sums by group.
	groupNormParameterFLOPs = 2
)

// launchNorm records a normalization kernel with a number of operations per element of y.
func (t *Tape) launchNorm(y *Tensor, flops int64, ins ...*Tensor) *program.Op {
	return t.Launch(program.Normalization, flops*y.numel, []*Tensor{y}, ins)
}

// launchNormOf records a normalization kernel over groups of y's elements, described as in [program.Product].
func (t *Tape) launchNormOf(groups program.Product, y *Tensor, flops int64, ins ...*Tensor) {
	t.setProduct(t.launchNorm(y, flops, ins...), groups)
}

// byChannel returns the groups of a batch norm: one channel of all images.
func (x *Tensor) byChannel() program.Product {
	channels, images := max(x.shape[1], 1), max(x.shape[0], 1)
	return program.Product{M: channels, N: x.numel / (channels * images), Batch: images}
}

// byRow returns the groups of a norm over rows: adjacent elements.
func (x *Tensor) byRow(rows int64) program.Product {
	return program.Product{M: rows, N: x.numel / max(rows, 1), Batch: 1}
}

// WeightNorm records torch._weight_norm(v, g, dim): g * v / norm(v). The norm is over all dimensions but dim, the first
// or the last.
func WeightNorm(v, g *Tensor) *Tensor {
	t := v.tape
	c := t.Begin("_weight_norm", v, g)
	w := c.Bind(t.Alloc(v.dtype, v.shape...))
	acc := g.dtype
	if acc == F16 {
		acc = F32
	}
	norms := c.Bind(t.newTensor(acc, g.layout))
	t.launchNorm(w, weightNormFLOPs, v, g)
	return c.End(w.SetGradFn("WeightNormInterfaceBackward0", inputs{v, g}, saves{v, g, norms}, func(b *Gradients) {
		v, g := b.Saved(0), b.Saved(1)
		in := b.Grad.ContiguousUntracked()
		gv, gg := t.Alloc(v.dtype, v.shape...).Retain(), t.Alloc(g.dtype, g.shape...).Retain()
		t.launchNorm(gv, weightNormBackwardFLOPs, in, v, g)
		b.SetAll(gv, gg)
	}))
}

// NormalizeInto records torch.nn.functional.normalize(x, dim=0, out=into) of a vector.
func (x *Tensor) NormalizeInto(into *Tensor) {
	f := x.tape.functionFrame(x)
	denom := f.Bind(x.Norm(2, true, 0).ClampMinInPlace().ExpandAs(x))
	x.tape.LaunchElementwise(into, 4, x, denom)
	f.End()
}

// Norm records x.norm(p, dims, keepdim): torch.linalg.vector_norm. Autocast computes it in fp32.
func (x *Tensor) Norm(p float64, keep bool, dims ...int) *Tensor {
	c := x.tape.Begin("linalg_vector_norm", x)
	d := c.fullResult(x.dtype)
	y := x.reduce(reduction{op: "linalg_vector_norm", out: d, accSize: d.accumulate().Size()}, dims, keep)
	return c.End(y.SetGradFn("LinalgVectorNormBackward0", inputs{x}, saves{x, y},
		func(b *Gradients) { b.Set(0, NormBackward(b.Grad, b.Saved(0), b.Saved(1), p, dims, keep)) }))
}

// NormBackward records norm_backward.
func NormBackward(grad, self, norm *Tensor, p float64, dims []int, keep bool) *Tensor {
	if p == 0 {
		return nil
	}
	c := grad.tape.Begin("norm_backward", grad, self, norm)
	if !keep {
		grad, norm = c.Bind(grad.restoreDims(self.NDim(), dims)), c.Bind(norm.restoreDims(self.NDim(), dims))
	}
	switch {
	case p == 1:
		return c.End(self.Sgn().Mul(grad))
	case math.IsInf(p, 0):
		return c.End(maxNormGrad(grad, self, norm, dims))
	case p < 1:
		return c.End(fractionNormGrad(grad, self, norm, p))
	case p != 2:
		return c.End(powerNormGrad(grad, self, norm, p))
	}
	direction := self.Div(norm)
	direction.MaskedFillInPlace(norm.CompareScalar("eq_Scalar"))
	return c.End(grad.Mul(direction))
}

// maxNormGrad records the gradient for the order inf, which the largest elements share.
func maxNormGrad(grad, self, norm *Tensor, dims []int) *Tensor {
	c := grad.tape.Begin("norm_backward", grad, self, norm)
	size := c.Bind(self.mapWithoutGrad("abs", 1))
	equal := size.compare("eq", norm)
	mask := c.Bind(equal.compare("logical_or", size.IsNaN()))
	share := grad.Div(mask.Sum(true, dims...)).Mul(mask)
	return c.End(self.Sgn().Mul(share))
}

// fractionNormGrad records the gradient for an order below one.
func fractionNormGrad(grad, self, norm *Tensor, p float64) *Tensor {
	c := grad.tape.Begin("norm_backward", grad, self, norm)
	size := self.mapWithoutGrad("abs", 1)
	size.MaskedFillInPlace(self.CompareScalar("eq_Scalar"))
	scaled := c.Bind(self.Sgn().Mul(size))
	power := norm.Pow(1 - p)
	return c.End(scaled.Mul(grad).Mul(power))
}

// powerNormGrad records the gradient for an order above one, except two.
func powerNormGrad(grad, self, norm *Tensor, p float64) *Tensor {
	c := grad.tape.Begin("norm_backward", grad, self, norm)
	var scaled *Tensor
	if p < 2 {
		direction := self.Sgn()
		scaled = c.Bind(direction.Mul(self.mapWithoutGrad("abs", 1)))
	} else {
		scaled = c.Bind(self.Mul(self.mapWithoutGrad("abs", 1)))
	}
	scale := c.Bind(grad.Div(norm.Pow(p - 1)))
	scale.MaskedFillInPlace(norm.CompareScalar("eq_Scalar"))
	c.EndStatement()
	return c.End(scaled.Mul(scale))
}

// restoreDims records unsqueeze_multiple, which restores reduced dimensions with size one.
func (x *Tensor) restoreDims(n int, dims []int) *Tensor {
	if n == 0 {
		return x
	}
	reduced := WrapDims(n, dims)
	for d := range n {
		if slices.Contains(reduced, d) {
			x = x.Unsqueeze(d)
		}
	}
	return x
}

// Normalize records torch.nn.functional.normalize(x, dim=dim).
func (x *Tensor) Normalize(dim int) *Tensor {
	f := x.tape.functionFrame(x)
	denom := f.Bind(x.Norm(2, true, dim).ClampMin().ExpandAs(x))
	y := x.Div(denom)
	return f.Return(y)
}

// ExpandAs records x.expand_as(y).
func (x *Tensor) ExpandAs(y *Tensor) *Tensor { return x.Expand(y.shape...) }

// Renorm records x.renorm(p, d, maxnorm), which scales each slice of x along d to a norm of at most maxnorm.
func (x *Tensor) Renorm(p float64, d int) *Tensor {
	c := x.tape.Begin("renorm", x)
	c.CastToFP32(&x)
	dims := lists.RemoveAt(lists.Ascending(len(x.shape)), x.Dim(d))
	y := x.AllocLike(x.dtype)
	c.Bind(y)
	c.t.NoGrad(func() {
		norm := c.Bind(x.reduce(reduction{
			op: "linalg_vector_norm", out: x.dtype.accumulate(),
			accSize: x.dtype.accumulate().Size(),
		}, dims, true))
		factor := norm
		if norm.dtype != x.dtype {
			factor = c.Bind(c.t.Alloc(x.dtype, norm.shape...))
		}
		c.t.LaunchElementwise(factor, 4, norm)
		c.t.LaunchElementwise(y, 1, x, factor)
	})
	return c.End(y.SetGradFn("RenormBackward0", inputs{x}, saves{x},
		func(b *Gradients) { b.Set(0, renormGrad(b.Grad, b.Saved(0), p, dims)) }))
}

// renormGrad records renorm_backward.
func renormGrad(grad, self *Tensor, p float64, dims []int) *Tensor {
	c := grad.tape.Begin("renorm_backward", grad, self)
	norm := c.Bind(self.Norm(p, true, dims...))
	output := c.Bind(self.Mul(grad).Sum(true, dims...))
	along := c.Bind(NormBackward(output, self, norm, p, dims, true))
	inverse := c.Bind(norm.AddScalar().Reciprocal())
	rest := grad.Sub(inverse.Mul(along))
	scaled := inverse.MulScalar()
	gradNorm := c.Bind(scaled.Mul(rest))
	return c.End(Where(norm.CompareScalar("gt"), gradNorm, grad))
}
