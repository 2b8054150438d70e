package ops

import (
	"slices"

	"github.com/vprof/vprof/profiler/trace"
)

// CDist records torch.cdist(x, y, p): the distances in the p-norm between the rows of x and of y. Autocast runs it in
// fp32. products selects whether Euclidean distances are computed by matrix products; the default is more than 25 rows.
func CDist(x *tensor, y *tensor, p float64, products Products) *tensor {
	c := x.Tape().Begin("cdist", x, y)
	c.CastToFP32(&x, &y)
	r1, r2, m := x.Size(-2), y.Size(-2), x.Size(-1)
	lead := x.BatchShape(y)
	batch := trace.Numel(lead)
	shape := append(slices.Clone(lead), r1, r2)
	if p != 2 || products == NoProducts || products == ProductsOfMany && r1 <= 25 && r2 <= 25 {
		x, y = c.Bind(x.AsContiguous()), c.Bind(y.AsContiguous())
		x = c.Bind(x.Expand(append(slices.Clone(lead), r1, m)...).AsContiguous())
		y = c.Bind(y.Expand(append(slices.Clone(lead), r2, m)...).AsContiguous())
		return c.End(pairwiseDistances(x, y, p, shape))
	}
	if batch > 1 {
		x = c.Bind(x.Expand(append(slices.Clone(lead), r1, m)...).AsContiguous().View(batch, r1, m))
		y = c.Bind(y.Expand(append(slices.Clone(lead), r2, m)...).AsContiguous().View(batch, r2, m))
	}
	return c.End(euclideanDistance(x, y).View(shape...))
}

// Products selects whether cdist computes Euclidean distances by matrix products, numbered as compute_mode.
type Products int64

// The values of cdist's compute_mode.
const (
	ProductsOfMany Products = iota
	AlwaysProducts
	NoProducts
)

// euclideanDistance records _euclidean_dist: one product of padded matrices.
func euclideanDistance(x *tensor, y *tensor) *tensor {
	c := x.Tape().Begin("_euclidean_dist", x, y)
	z := paddedProduct(x, y)
	c.Tape().LaunchElementwise(z, 1, z) // clamp_min_
	c.Tape().LaunchElementwise(z, 4, z) // sqrt_
	return c.End(z.SetGradFn("EuclideanDistBackward0", inputs{x, y}, saves{x, y, z}, euclideanDistanceBackward))
}

func paddedProduct(x *tensor, y *tensor) *tensor {
	c := x.Tape().Begin("_euclidean_dist", x, y)
	c.WithoutGrad()
	nx := c.Bind(x.Pow(2).Sum(true, -1))
	px := c.Bind(nx.OnesLike())
	ny := c.Bind(y.Pow(2).Sum(true, -1))
	py := c.Bind(ny.OnesLike())
	// The lists that are concatenated own the norms; a list frees its last element first.
	left := trace.Cat(-1, x.MulScalar(), nx, px)
	c.Drop(px)
	c.Drop(nx)
	left = c.Bind(left)
	right := trace.Cat(-1, y, py, ny)
	c.Drop(ny)
	c.Drop(py)
	right = c.Bind(right)
	z := left.Matmul(right.Transpose(-2, -1))
	return c.End(z)
}

// euclideanDistanceBackward records _euclidean_dist_backward, which computes both gradients even if one is not needed.
func euclideanDistanceBackward(b *backward) {
	x, y, res := b.Saved(0), b.Saved(1), b.Saved(2)
	gx, gy := euclideanDistanceGrads(b.Grad, x, y, res)
	b.SetPair(gx, gy)
}

func euclideanDistanceGrads(grad, x, y, res *tensor) (gx, gy *tensor) {
	c := grad.Tape().Begin("_euclidean_dist_backward", grad, x, y, res)
	ratio := c.Bind(grad.Div(res))
	ratio.MaskedFillInPlace(res.CompareScalar("eq_Scalar"))
	c.EndStatement()
	product := ratio.Matmul(y)
	gx = x.Mul(ratio.Sum(true, -1)).Sub(product)
	product = ratio.Transpose(-2, -1).Matmul(x)
	gy = y.Mul(ratio.Sum(false, -2).Unsqueeze(-1)).Sub(product)
	return c.EndPair(gx, gy)
}

// pairwiseDistances records _cdist_forward.
func pairwiseDistances(x *tensor, y *tensor, p float64, shape []int64) *tensor {
	c := x.Tape().Begin("_cdist_forward", x, y)
	z := c.Tape().Alloc(x.DType(), shape...)
	c.Tape().LaunchElementwise(z, 3*x.Size(-1), x, y)
	return c.End(z.SetGradFn("CdistBackward0", inputs{x, y}, saves{x, y, z}, func(b *backward) {
		x, y, z := b.Saved(0), b.Saved(1), b.Saved(2)
		if b.Needs(0) {
			b.Set(0, pairwiseDistancesGrad(b.Grad.AsContiguous(), x, y, z, p))
		}
		if b.Needs(1) {
			b.Set(1, pairwiseDistancesGrad(b.Grad.Transpose(-2, -1).AsContiguous(), y, x,
				z.Transpose(-2, -1).AsContiguous(), p))
		}
	}))
}

// pairwiseDistancesGrad records _cdist_backward: the contributions of all pairs are stored, then summed. For p = 0, it
// is zero.
func pairwiseDistancesGrad(grad, x, y, z *tensor, p float64) *tensor {
	c := x.Tape().Begin("_cdist_backward", grad, x, y, z)
	if p == 0 {
		return c.End(c.Tape().Filled("_cdist_backward", x.DType(), x.Shape()...))
	}
	r1, r2, m := x.Size(-2), y.Size(-2), x.Size(-1)
	result := c.Bind(c.Tape().Alloc(x.DType(), x.Shape()...))
	pairs := c.Bind(c.Tape().Alloc(x.DType(), trace.Numel(z.Shape())/(r1*r2), r2, r1, m))
	c.Tape().LaunchElementwise(pairs, 4, grad, x, y, z)
	c.Drop(pairs)
	return c.End(result)
}

// Dist records torch.dist(x, y, p). Its backward computes the difference again. Autocast runs it in fp32.
func Dist(x *tensor, y *tensor, p float64) *tensor {
	c := x.Tape().Begin("dist", x, y)
	c.CastToFP32(&x, &y)
	var z *tensor
	c.Tape().NoGrad(func() { z = c.Bind(x.Sub(y).Norm(p, false)) })
	return c.End(z.SetGradFn("DistBackward0", inputs{x, y}, saves{y, x, z}, func(b *backward) {
		for i := range b.Out {
			if b.Needs(i) {
				g := trace.NormBackward(b.Grad, b.Saved(1).Sub(b.Saved(0)), b.Saved(2), p, nil, false)
				if i == 1 && g != nil {
					g = g.Neg()
				}
				b.Set(i, g)
			}
		}
	}))
}

// PDist records torch.pdist(x, p): the distances between all pairs of rows.
func PDist(x *tensor, p float64) *tensor {
	t := x.Tape()
	c := t.Begin("pdist", x)
	in := c.Bind(x.AsContiguous())
	rows, m := in.Shape()[0], in.Shape()[1]
	pairs := rows * (rows - 1) / 2
	y := c.Bind(t.Alloc(x.DType(), pairs))
	t.LaunchElementwise(y, 3*m, in)
	return c.End(y.SetGradFn("PdistBackward0", inputs{in}, saves{in, y}, func(b *backward) {
		c := t.Begin("_pdist_backward", b.Grad)
		x := b.Saved(0)
		g := c.Bind(t.Alloc(x.DType(), x.Shape()...))
		parts := c.Bind(t.Alloc(x.DType(), rows-1, rows, m))
		t.LaunchElementwise(parts, 4, b.Grad, x, b.Saved(1))
		b.Set(0, c.End(g))
	}))
}
