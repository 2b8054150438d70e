package trace

import "github.com/vprof/vprof/profiler/program"

// parity records lu_det_P: 1 or -1 for each permutation of pivots.
func (pivots *Tensor) parity() *Tensor {
	c := pivots.tape.Begin("lu_det_P", pivots)
	places := c.Let(c.t.Alloc(I32, pivots.Size(-1)))
	c.t.LaunchFill(places)
	moved := c.Let(c.t.Map("ne", Bool, 1, pivots, places))
	lead := pivots.shape[:len(pivots.shape)-1]
	odd := c.Let(c.t.Alloc(I64, lead...))
	wide := c.Let(c.t.Alloc(I64, pivots.shape...))
	c.t.LaunchCopy(wide, moved)
	c.t.Launch(program.Reduction, wide.numel, []*Tensor{odd}, []*Tensor{wide})
	c.DropAll(wide, moved, places)
	c.t.LaunchElementwise(odd, 3, odd)
	return c.End(odd)
}

// LinalgDet records torch.linalg.det(x): the product of the diagonal of an LU factorization, with
// the sign of its permutation.
func (x *Tensor) LinalgDet() *Tensor {
	t := x.tape
	c := t.Begin("_linalg_det", x)
	y := c.Let(t.Alloc(x.dtype, x.batched()...))
	lu, pivots, _ := c.luOf(x)
	t.NoGrad(func() {
		c := t.Begin("_linalg_det", lu, pivots)
		product := c.Let(lu.diagonal().Prod(false, -1))
		t.LaunchElementwise(y, 1, c.Let(pivots.parity()), product)
		c.Finish()
	})
	return c.End(y.Derived("LinalgDetBackward0", inputs{x}, saves{x, lu, pivots, y},
		func(b *Gradients) { b.Give(0, detGrad(b.Grad, b.Saved(3), b.Saved(1), b.Saved(0).luAdjoint())) }))
}

func (x *Tensor) diagonal() *Tensor { return x.Diagonal(0, -2, -1) }

// spreadAlong gives each matrix of a batch x's number n times: x.unsqueeze(-1).expand(.., n).
func (x *Tensor) spreadAlong(n int64) *Tensor {
	return x.Unsqueeze(-1).Expand(append(append([]int64(nil), x.shape...), n)...)
}

// detGrad records linalg_det_backward.
func detGrad(grad, det, lu *Tensor, adjoint bool) *Tensor {
	c := grad.tape.Begin("linalg_det_backward", grad, det, lu)
	scale := c.Let(grad.Mul(det))
	d := c.Let(scale.spreadAlong(lu.Size(-1)).DiagEmbed(0))
	safe := c.Let(lu.withoutZeros())
	return c.End(d.luSolve(safe, adjoint))
}

func (lu *Tensor) withoutZeros() *Tensor {
	c := lu.tape.Begin("linalg_det_backward", lu)
	zero := lu.diagonal().CompareScalar("eq")
	return c.End(lu.Add(WhereNumbers(zero, lu.dtype).DiagEmbed(0)))
}

// luAdjoint reports whether backward solves with the adjoint. A matrix and its transpose have
// the same determinant, and the transpose is factorized if that needs no copy.
func (x *Tensor) luAdjoint() bool { return !x.IsContiguous() }

// LinalgSlogDet records torch.linalg.slogdet(x): the sign and the logarithm of the absolute value
// of the determinant.
func (x *Tensor) LinalgSlogDet() (sign, logarithm *Tensor) {
	t := x.tape
	c := t.Begin("_linalg_slogdet", x)
	sign, logarithm = c.Let(t.Alloc(x.dtype, x.batched()...)), c.Let(t.Alloc(x.dtype, x.batched()...))
	lu, pivots, _ := c.luOf(x)
	t.NoGrad(func() {
		c := t.Begin("_linalg_slogdet", lu, pivots)
		parity := pivots.parity()
		t.LaunchElementwise(sign, 1, parity, lu.diagonal().Sgn().Prod(false, -1))
		c.EndStatement()
		t.Launch(program.Reduction, pivots.numel, []*Tensor{logarithm}, []*Tensor{lu.diagonal().Abs()})
		c.Finish()
	})
	t.Derive(outputs{sign, logarithm}, "LinalgSlogdetBackward0", inputs{x}, saves{x, lu, pivots, sign},
		func(b *Gradients) {
			lu := b.Saved(1)
			if g := b.Grads[1]; g != nil {
				b.Give(0, g.spreadAlong(lu.Size(-1)).DiagEmbed(0).luSolve(lu, b.Saved(0).luAdjoint()))
			}
		})
	return c.EndPair(sign, logarithm)
}

// LogDet records torch.logdet(x): NaN where the determinant is below zero.
func (x *Tensor) LogDet() *Tensor {
	c := x.tape.Begin("logdet", x)
	sign, logarithm := x.LinalgSlogDet()
	c.LetAll([]*Tensor{sign, logarithm})
	none := c.t.ScalarTensor(x.dtype)
	return c.End(Where(sign.CompareScalar("eq"), none, logarithm))
}
