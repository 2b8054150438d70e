package trace

import "github.com/vprof/vprof/profiler/program"

// SolveTriangular is torch.linalg.solve_triangular(a, b, left=left): x of a @ x = b, or of
// x @ a = b, for batches of triangles a [..., n, n] and of right-hand sides b.
func (a *Tensor) SolveTriangular(b *Tensor, left bool) *Tensor {
	c := a.tape.begin("linalg_solve_triangular", a, b)
	y := c.t.solveTriangular(a, b)
	return c.end(y.derived("LinalgSolveTriangularBackward0", inputs{a, b}, saves{a, y}, func(w *backward) {
		ga, gb := triangularGrads(w.grad, w.saved(0), w.saved(1), left, w.needs(0))
		w.givePair(ga, gb)
	}))
}

// triangularGrads is linalg_solve_triangular_backward.
func triangularGrads(grad, a, x *Tensor, left, wantA bool) (ga, gb *Tensor) {
	c := grad.tape.begin("linalg_solve_triangular_backward", grad, a, x)
	gb = c.let(c.t.solveTriangular(a, grad))
	if wantA {
		if left {
			ga = c.let(gb.matmul(x.mT()))
		} else {
			ga = c.let(x.mT().matmul(gb))
		}
		c.set(&ga, ga.Neg())
		c.set(&ga, ga.Tril())
	}
	return c.endPair(ga, gb)
}

// TriangularSolve is torch.triangular_solve(b, a), which gives a copy of a, too.
func (b *Tensor) TriangularSolve(a *Tensor) (x, clone *Tensor) {
	t := b.tape
	c := t.begin("triangular_solve", b, a)
	x = c.let(t.byColumns(b.dtype, b.shape...))
	clone = c.let(t.byColumns(a.dtype, a.shape...))
	t.launchCopy(clone, a)
	t.trianglePointers(a)
	t.launch(program.Matmul, b.numel*b.Size(-2), []*Tensor{x}, []*Tensor{a, b})
	t.derive(outputs{x, clone}, "TriangularSolveBackward0", inputs{b, a}, saves{a, x}, func(w *backward) {
		c := t.begin("triangular_solve_backward", w.grad)
		gb, copied := w.grad.TriangularSolve(w.saved(0))
		c.letAll([]*Tensor{gb, copied})
		c.drop(copied)
		var ga *Tensor
		if w.needs(1) {
			ga = c.let(gb.matmul(w.saved(1).mT()))
			c.set(&ga, ga.Neg())
			c.set(&ga, ga.Triu())
		}
		c.endPair(gb, ga)
		w.givePair(gb, ga)
	})
	return c.endPair(x, clone)
}

// solveTriangular computes column by column, so the result is laid out by columns, and a
// is copied if it is dense neither by rows nor by columns.
func (t *Tape) solveTriangular(a, b *Tensor) *Tensor {
	c := t.begin("linalg_solve_triangular", a, b)
	y := c.let(t.byColumns(b.dtype, b.shape...))
	if !a.isContiguous() && !c.let(a.mT()).isContiguous() {
		dense := c.let(t.byColumns(a.dtype, a.shape...))
		t.launchCopy(dense, a)
		a = dense
	}
	t.trianglePointers(a)
	t.launch(program.Matmul, b.numel*b.Size(-2), []*Tensor{y}, []*Tensor{a, b})
	return c.end(y)
}
