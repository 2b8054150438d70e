package trace

import "github.com/vprof/vprof/profiler/program"

// SolveTriangular is torch.linalg.solve_triangular(a, b, upper=False): x of a @ x = b, for
// batches of lower triangles a [..., n, n] and b [..., n, k] of equal batches.
func (a *Tensor) SolveTriangular(b *Tensor) *Tensor {
	t := a.tape
	c := t.begin("linalg_solve_triangular", a, b)
	y := t.solveTriangular(a, b)
	if n := t.record("LinalgSolveTriangularBackward0", a, b); n != nil {
		n.save(a, y)
		n.yields(y)
		n.apply = func(w *backward) {
			c := t.begin("linalg_solve_triangular_backward", w.grad)
			grad := c.let(t.solveTriangular(w.saved(0), w.grad))
			if w.needs(0) {
				w.give(0, c.let(c.let(grad.matmul(w.saved(1).Transpose(-2, -1))).Neg()).Tril())
			}
			if w.needs(1) {
				w.give(1, grad)
			}
			c.done()
		}
	}
	return c.end(y)
}

// solveTriangular computes column by column, so the result is laid out by columns.
func (t *Tape) solveTriangular(a, b *Tensor) *Tensor {
	n := len(b.shape)
	order := ascending(n)
	order[n-1], order[n-2] = n-2, n-1
	y := t.emptyStrided(b.dtype, b.shape, denseAlong(b.shape, order))
	t.launch(program.Matmul, b.numel*b.shape[n-2], []*Tensor{y}, []*Tensor{a, b})
	return y
}
