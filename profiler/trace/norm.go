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
