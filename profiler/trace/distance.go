package trace

import "slices"

// CDist records torch.cdist(x, y, p), the distances between the rows of x and of y in
// the norm of order p. Autocast runs it in fp32. Euclidean distances are made of
// matrix products, from more than 25 rows on or as products says.
func (x *Tensor) CDist(y *Tensor, p float64, products Products) *Tensor {
	c := x.tape.begin("cdist", x, y)
	c.full(&x, &y)
	r1, r2, m := x.Size(-2), y.Size(-2), x.Size(-1)
	lead := x.BatchShape(y)
	batch := numel(lead)
	shape := append(slices.Clone(lead), r1, r2)
	if p != 2 || products == NoProducts || products == ProductsOfMany && r1 <= 25 && r2 <= 25 {
		x, y = c.let(x.contiguous()), c.let(y.contiguous())
		x = c.let(x.Expand(append(slices.Clone(lead), r1, m)...).contiguous())
		y = c.let(y.Expand(append(slices.Clone(lead), r2, m)...).contiguous())
		return c.end(x.pairwiseDistances(y, p, shape))
	}
	if batch > 1 {
		x = c.let(x.Expand(append(slices.Clone(lead), r1, m)...).contiguous().View(batch, r1, m))
		y = c.let(y.Expand(append(slices.Clone(lead), r2, m)...).contiguous().View(batch, r2, m))
	}
	return c.end(x.euclideanDistance(y).View(shape...))
}

// Products says when Euclidean distances are made of matrix products, in the
// numbers of cdist's compute_mode.
type Products int64

// The ways of cdist.
const (
	ProductsOfMany Products = iota
	AlwaysProducts
	NoProducts
)

// euclideanDistance records _euclidean_dist, one product of padded matrices.
func (x *Tensor) euclideanDistance(y *Tensor) *Tensor {
	c := x.tape.begin("_euclidean_dist", x, y)
	z := x.paddedProduct(y)
	c.t.launchElementwise(z, 1, z) // clamp_min_
	c.t.launchElementwise(z, 4, z) // sqrt_
	return c.end(z.derived("EuclideanDistBackward0", inputs{x, y}, saves{x, y, z}, euclideanDistanceBackward))
}

func (x *Tensor) paddedProduct(y *Tensor) *Tensor {
	c := x.tape.begin("_euclidean_dist", x, y)
	c.withoutGrad()
	nx := c.let(x.Pow(2).Sum(true, -1))
	px := c.let(nx.OnesLike())
	ny := c.let(y.Pow(2).Sum(true, -1))
	py := c.let(ny.OnesLike())
	// The lists of the concatenations take the norms over; they lose the last
	// element first.
	left := Cat(-1, x.MulScalar(), nx, px)
	c.drop(px)
	c.drop(nx)
	left = c.let(left)
	right := Cat(-1, y, py, ny)
	c.drop(ny)
	c.drop(py)
	right = c.let(right)
	z := left.Matmul(right.Transpose(-2, -1))
	return c.end(z)
}

// euclideanDistanceBackward records _euclidean_dist_backward, which makes both
// gradients, wanted or not.
func euclideanDistanceBackward(b *backward) {
	x, y, res := b.saved(0), b.saved(1), b.saved(2)
	gx, gy := euclideanDistanceGrads(b.grad, x, y, res)
	b.givePair(gx, gy)
}

func euclideanDistanceGrads(grad, x, y, res *Tensor) (gx, gy *Tensor) {
	c := grad.tape.begin("_euclidean_dist_backward", grad, x, y, res)
	ratio := c.let(grad.Div(res))
	ratio.MaskedFillInPlace(res.compareScalar("eq_Scalar"))
	c.statement()
	product := ratio.Matmul(y)
	gx = x.Mul(ratio.Sum(true, -1)).Sub(product)
	product = ratio.Transpose(-2, -1).Matmul(x)
	gy = y.Mul(ratio.Sum(false, -2).Unsqueeze(-1)).Sub(product)
	return c.endPair(gx, gy)
}

// pairwiseDistances records _cdist_forward.
func (x *Tensor) pairwiseDistances(y *Tensor, p float64, shape []int64) *Tensor {
	c := x.tape.begin("_cdist_forward", x, y)
	z := c.t.empty(x.dtype, shape...)
	c.t.launchElementwise(z, 3*x.Size(-1), x, y)
	return c.end(z.derived("CdistBackward0", inputs{x, y}, saves{x, y, z}, func(b *backward) {
		x, y, z := b.saved(0), b.saved(1), b.saved(2)
		if b.needs(0) {
			b.give(0, pairwiseDistancesGrad(b.grad.contiguous(), x, y, z, p))
		}
		if b.needs(1) {
			b.give(1, pairwiseDistancesGrad(b.grad.Transpose(-2, -1).contiguous(), y, x,
				z.Transpose(-2, -1).contiguous(), p))
		}
	}))
}

// pairwiseDistancesGrad records _cdist_backward: the contributions of all pairs are
// written out and then summed; the norm of order zero has none.
func pairwiseDistancesGrad(grad, x, y, z *Tensor, p float64) *Tensor {
	c := x.tape.begin("_cdist_backward", grad, x, y, z)
	if p == 0 {
		return c.end(c.t.Filled("_cdist_backward", x.dtype, x.shape...))
	}
	r1, r2, m := x.Size(-2), y.Size(-2), x.Size(-1)
	result := c.let(c.t.empty(x.dtype, x.shape...))
	pairs := c.let(c.t.empty(x.dtype, numel(z.shape)/(r1*r2), r2, r1, m))
	c.t.launchElementwise(pairs, 4, grad, x, y, z)
	c.drop(pairs)
	return c.end(result)
}

// Dist records torch.dist(x, y, p): the norm of their difference, which backward computes
// again. Autocast runs it in fp32.
func (x *Tensor) Dist(y *Tensor, p float64) *Tensor {
	c := x.tape.begin("dist", x, y)
	c.full(&x, &y)
	var z *Tensor
	c.t.NoGrad(func() { z = c.let(x.Sub(y).Norm(p, false)) })
	return c.end(z.derived("DistBackward0", inputs{x, y}, saves{y, x, z}, func(b *backward) {
		for i := range b.out {
			if b.needs(i) {
				g := normBackward(b.grad, b.saved(1).Sub(b.saved(0)), b.saved(2), p, nil, false)
				if i == 1 && g != nil {
					g = g.Neg()
				}
				b.give(i, g)
			}
		}
	}))
}

// PDist records torch.pdist(x, p): the distances between all pairs of rows.
func (x *Tensor) PDist(p float64) *Tensor {
	t := x.tape
	c := t.begin("pdist", x)
	in := c.let(x.contiguous())
	rows, m := in.shape[0], in.shape[1]
	pairs := rows * (rows - 1) / 2
	y := c.let(t.empty(x.dtype, pairs))
	t.launchElementwise(y, 3*m, in)
	return c.end(y.derived("PdistBackward0", inputs{in}, saves{in, y}, func(b *backward) {
		c := t.begin("_pdist_backward", b.grad)
		x := b.saved(0)
		g := c.let(t.empty(x.dtype, x.shape...))
		parts := c.let(t.empty(x.dtype, rows-1, rows, m))
		t.launchElementwise(parts, 4, b.grad, x, b.saved(1))
		b.give(0, c.end(g))
	}))
}
