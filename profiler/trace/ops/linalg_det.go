package ops

import (
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// parity records lu_det_P: the sign (1 or -1) of each permutation of pivots.
func parity(pivots *tensor) *tensor {
	c := pivots.Tape().Begin("lu_det_P", pivots)
	places := c.Bind(c.Tape().Alloc(trace.I32, pivots.Size(-1)))
	c.Tape().LaunchFill(places)
	moved := c.Bind(c.Tape().Map("ne", trace.Bool, 1, pivots, places))
	lead := pivots.Shape()[:len(pivots.Shape())-1]
	odd := c.Bind(c.Tape().Alloc(trace.I64, lead...))
	wide := c.Bind(c.Tape().Alloc(trace.I64, pivots.Shape()...))
	c.Tape().LaunchCopy(wide, moved)
	c.Tape().Launch(program.Reduction, wide.Numel(), []*tensor{odd}, []*tensor{wide})
	c.DropAll(wide, moved, places)
	c.Tape().LaunchElementwise(odd, 3, odd)
	return c.End(odd)
}

// LinalgDet records torch.linalg.det(x): the product of the LU factorization's diagonal, times a sign.
func LinalgDet(x *tensor) *tensor {
	t := x.Tape()
	c := t.Begin("_linalg_det", x)
	y := c.Bind(t.Alloc(x.DType(), batchShape(x)...))
	lu, pivots, _ := factorizeLU(c, x)
	t.NoGrad(func() {
		c := t.Begin("_linalg_det", lu, pivots)
		product := c.Bind(diagonal(lu).Prod(false, -1))
		t.LaunchElementwise(y, 1, c.Bind(parity(pivots)), product)
		c.Finish()
	})
	return c.End(y.SetGradFn("LinalgDetBackward0", inputs{x}, saves{x, lu, pivots, y},
		func(b *backward) { b.Set(0, detGrad(b.Grad, b.Saved(3), b.Saved(1), luAdjoint(b.Saved(0)))) }))
}

func diagonal(x *tensor) *tensor { return x.Diagonal(0, -2, -1) }

// repeatAlong records x.unsqueeze(-1).expand(..., n): it repeats the number of each matrix of a batch n times.
func repeatAlong(x *tensor, n int64) *tensor {
	return x.Unsqueeze(-1).Expand(append(append([]int64(nil), x.Shape()...), n)...)
}

// detGrad records linalg_det_backward.
func detGrad(grad, det, lu *tensor, adjoint bool) *tensor {
	c := grad.Tape().Begin("linalg_det_backward", grad, det, lu)
	scale := c.Bind(grad.Mul(det))
	d := c.Bind(repeatAlong(scale, lu.Size(-1)).DiagEmbed(0))
	safe := c.Bind(withoutZeros(lu))
	return c.End(luSolve(d, safe, adjoint))
}

func withoutZeros(lu *tensor) *tensor {
	c := lu.Tape().Begin("linalg_det_backward", lu)
	zero := diagonal(lu).CompareScalar("eq")
	return c.End(lu.Add(trace.WhereNumbers(zero, lu.DType()).DiagEmbed(0)))
}

// luAdjoint reports whether backward solves with the adjoint: it does unless det factorized the transpose of x, which
// has the same determinant and needs no copy if x is row-major.
func luAdjoint(x *tensor) bool { return !x.IsContiguous() }

// LinalgSlogDet records torch.linalg.slogdet(x): the sign and the logarithm of the absolute value of the determinant.
func LinalgSlogDet(x *tensor) (sign, logarithm *tensor) {
	t := x.Tape()
	c := t.Begin("_linalg_slogdet", x)
	sign, logarithm = c.Bind(t.Alloc(x.DType(), batchShape(x)...)), c.Bind(t.Alloc(x.DType(), batchShape(x)...))
	lu, pivots, _ := factorizeLU(c, x)
	t.NoGrad(func() {
		c := t.Begin("_linalg_slogdet", lu, pivots)
		parity := parity(pivots)
		t.LaunchElementwise(sign, 1, parity, diagonal(lu).Sgn().Prod(false, -1))
		c.EndStatement()
		t.Launch(program.Reduction, pivots.Numel(), []*tensor{logarithm}, []*tensor{diagonal(lu).Abs()})
		c.Finish()
	})
	t.SetGradFn(outputs{sign, logarithm}, "LinalgSlogdetBackward0", inputs{x}, saves{x, lu, pivots, sign},
		func(b *backward) {
			lu := b.Saved(1)
			if g := b.Grads[1]; g != nil {
				b.Set(0, luSolve(repeatAlong(g, lu.Size(-1)).DiagEmbed(0), lu, luAdjoint(b.Saved(0))))
			}
		})
	return c.EndPair(sign, logarithm)
}

// LogDet records torch.logdet(x), which is NaN if the determinant is negative.
func LogDet(x *tensor) *tensor {
	c := x.Tape().Begin("logdet", x)
	sign, logarithm := LinalgSlogDet(x)
	c.BindAll([]*tensor{sign, logarithm})
	none := c.Tape().ScalarTensor(x.DType())
	return c.End(trace.Where(sign.CompareScalar("eq"), none, logarithm))
}
