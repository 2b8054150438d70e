package trace

import "github.com/vprof/vprof/profiler/program"

// parity records lu_det_P: 1 or -1 for each permutation of pivots.
func (pivots *Tensor) parity() *Tensor {
	c := pivots.tape.begin("lu_det_P", pivots)
	places := c.let(c.t.empty(I32, pivots.Size(-1)))
	c.t.launchFill(places)
	moved := c.let(c.t.map1("ne", Bool, 1, pivots, places))
	lead := pivots.shape[:len(pivots.shape)-1]
	odd := c.let(c.t.empty(I64, lead...))
	wide := c.let(c.t.empty(I64, pivots.shape...))
	c.t.launchCopy(wide, moved)
	c.t.launch(program.Reduction, wide.numel, []*Tensor{odd}, []*Tensor{wide})
	c.dropLocals(wide, moved, places)
	c.t.launchElementwise(odd, 3, odd)
	return c.end(odd)
}

// LinalgDet records torch.linalg.det(x): the product of the diagonal of an LU factorization, with
// the sign of its permutation.
func (x *Tensor) LinalgDet() *Tensor {
	t := x.tape
	c := t.begin("_linalg_det", x)
	y := c.let(t.empty(x.dtype, x.batched()...))
	lu, pivots, _ := c.luOf(x)
	t.NoGrad(func() {
		c := t.begin("_linalg_det", lu, pivots)
		product := c.let(lu.diagonal().Prod(false, -1))
		t.launchElementwise(y, 1, c.let(pivots.parity()), product)
		c.finish()
	})
	return c.end(y.derived("LinalgDetBackward0", inputs{x}, saves{x, lu, pivots, y},
		func(b *backward) { b.give(0, detGrad(b.grad, b.saved(3), b.saved(1), b.saved(0).luAdjoint())) }))
}

func (x *Tensor) diagonal() *Tensor { return x.Diagonal(0, -2, -1) }

// spreadAlong gives each matrix of a batch x's number n times: x.unsqueeze(-1).expand(.., n).
func (x *Tensor) spreadAlong(n int64) *Tensor {
	return x.Unsqueeze(-1).Expand(append(append([]int64(nil), x.shape...), n)...)
}

// detGrad records linalg_det_backward.
func detGrad(grad, det, lu *Tensor, adjoint bool) *Tensor {
	c := grad.tape.begin("linalg_det_backward", grad, det, lu)
	scale := c.let(grad.Mul(det))
	d := c.let(scale.spreadAlong(lu.Size(-1)).DiagEmbed(0))
	safe := c.let(lu.withoutZeros())
	return c.end(d.luSolve(safe, adjoint))
}

func (lu *Tensor) withoutZeros() *Tensor {
	c := lu.tape.begin("linalg_det_backward", lu)
	zero := lu.diagonal().compareScalar("eq")
	return c.end(lu.Add(WhereNumbers(zero, lu.dtype).DiagEmbed(0)))
}

// luAdjoint reports whether backward solves with the adjoint. A matrix and its transpose have
// the same determinant, and the transpose is factorized if that needs no copy.
func (x *Tensor) luAdjoint() bool { return !x.isContiguous() }

// LinalgSlogDet records torch.linalg.slogdet(x): the sign and the logarithm of the absolute value
// of the determinant.
func (x *Tensor) LinalgSlogDet() (sign, logarithm *Tensor) {
	t := x.tape
	c := t.begin("_linalg_slogdet", x)
	sign, logarithm = c.let(t.empty(x.dtype, x.batched()...)), c.let(t.empty(x.dtype, x.batched()...))
	lu, pivots, _ := c.luOf(x)
	t.NoGrad(func() {
		c := t.begin("_linalg_slogdet", lu, pivots)
		parity := pivots.parity()
		t.launchElementwise(sign, 1, parity, lu.diagonal().Sgn().Prod(false, -1))
		c.statement()
		t.launch(program.Reduction, pivots.numel, []*Tensor{logarithm}, []*Tensor{lu.diagonal().Abs()})
		c.finish()
	})
	t.derive(outputs{sign, logarithm}, "LinalgSlogdetBackward0", inputs{x}, saves{x, lu, pivots, sign},
		func(b *backward) {
			lu := b.saved(1)
			if g := b.grads[1]; g != nil {
				b.give(0, g.spreadAlong(lu.Size(-1)).DiagEmbed(0).luSolve(lu, b.saved(0).luAdjoint()))
			}
		})
	return c.endPair(sign, logarithm)
}

// LogDet records torch.logdet(x): NaN where the determinant is below zero.
func (x *Tensor) LogDet() *Tensor {
	c := x.tape.begin("logdet", x)
	sign, logarithm := x.LinalgSlogDet()
	c.letAll([]*Tensor{sign, logarithm})
	none := c.t.scalarTensor(x.dtype)
	return c.end(Where(sign.compareScalar("eq"), none, logarithm))
}
