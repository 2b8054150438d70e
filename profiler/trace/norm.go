package trace

import "github.com/vprof/vprof/profiler/program"

// Operations per element of the normalizations, counted in their formulas: each
// addition, multiplication and comparison is one. On every board of the catalog they
// take less time than the memory traffic, so that a count off by a few changes no
// estimate.
const (
	// Two sums and a square for mean and variance, then subtract, scale, and the
	// affine multiplication and addition.
	normFLOPs = 8
	// Gradient of the input: two sums of products, and the three terms
	// (g*w - mean(g*w) - xhat*mean(g*w*xhat)) * invstd.
	normBackwardFLOPs = 12
	// The elementwise kernel of a batch norm's backward, which finds its sums made:
	// subtract the means, scale, and multiply by weight and invstd.
	batchNormElementwiseBackwardFLOPs = 6
	// Without a mean: a square, a sum and the two scalings.
	rmsNormFLOPs = 6
	// w = v * (g / |v|): a square, a sum, the division and the product.
	weightNormFLOPs         = 4
	weightNormBackwardFLOPs = 8
	// Gradients of weight and bias, per element of the input: recompute xhat
	// (subtract and scale), multiply by the gradient, add.
	normParameterFLOPs = 4
	// Of group norm, whose kernel sums what it has summed by group already.
	groupNormParameterFLOPs = 2
)

// launchNorm records a normalization with a number of operations per element of y.
func (t *Tape) launchNorm(y *Tensor, flops int64, ins ...*Tensor) *program.Op {
	return t.launch(program.Normalization, flops*y.numel, []*Tensor{y}, ins)
}

// launchNormOf records one over groups of y's elements, as [program.Product] has
// them.
func (t *Tape) launchNormOf(groups program.Product, y *Tensor, flops int64, ins ...*Tensor) {
	t.setProduct(t.launchNorm(y, flops, ins...), groups)
}

// byChannel are the groups of batch norm: a channel of all images.
func (x *Tensor) byChannel() program.Product {
	channels, images := max(x.shape[1], 1), max(x.shape[0], 1)
	return program.Product{M: channels, N: x.numel / (channels * images), Batch: images}
}

// byRow are so many groups whose elements lie one after the other.
func (x *Tensor) byRow(rows int64) program.Product {
	return program.Product{M: rows, N: x.numel / max(rows, 1), Batch: 1}
}

// WeightNorm is torch._weight_norm(v, g, dim): g * v / norm(v), the norm taken
// over all dimensions but dim, the first or the last.
func WeightNorm(v, g *Tensor) *Tensor {
	t := v.tape
	c := t.begin("_weight_norm", v, g)
	w := c.let(t.empty(v.dtype, v.shape...))
	acc := g.dtype
	if acc == F16 {
		acc = F32
	}
	norms := c.let(t.fresh(acc, g.layout))
	t.launchNorm(w, weightNormFLOPs, v, g)
	return c.end(w.derived("WeightNormInterfaceBackward0", inputs{v, g}, saves{v, g, norms}, func(b *backward) {
		v, g := b.saved(0), b.saved(1)
		in := b.grad.contiguousUntracked()
		gv, gg := t.empty(v.dtype, v.shape...).retain(), t.empty(g.dtype, g.shape...).retain()
		t.launchNorm(gv, weightNormBackwardFLOPs, in, v, g)
		b.giveAll(gv, gg)
	}))
}

// NormalizeInto is torch.nn.functional.normalize(x, dim=0, out=into) of a
// vector.
func (x *Tensor) NormalizeInto(into *Tensor) {
	f := x.tape.funcFrame(x)
	denom := f.Let(x.Norm(2, true, 0).ClampMinInPlace().ExpandAs(x))
	x.tape.launchElementwise(into, 4, x, denom)
	f.End()
}
