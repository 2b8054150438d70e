package ops

import (
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Cholesky records torch.linalg.cholesky(x); with upper=True it allocates the same.
func Cholesky(x *tensor) *tensor {
	c := x.Tape().Begin("linalg_cholesky", x)
	l, info := CholeskyEx(x)
	return checkedResult(c, l, info)
}

// CholeskyEx records torch.linalg.cholesky_ex(x).
func CholeskyEx(x *tensor) (l, info *tensor) {
	c := x.Tape().Begin("linalg_cholesky_ex", x)
	l, info = c.Bind(allocColumnMajor(c.Tape(), x.DType(), x.Shape()...)), c.Bind(emptyInfo(x))
	if batch := matrixCount(x); batch > 1 {
		p := c.Tape().Begin("allocate_array") // of cuSOLVER
		allocPointerArrays(p, 1, batch)
		p.Finish()
	}
	factorize(x, l)
	l.SetGradFn("LinalgCholeskyExBackward0", inputs{x}, saves{l},
		func(b *backward) { b.Set(0, choleskyGrad(b.Grad, b.Saved(0))) })
	return c.EndPair(l, info)
}

// choleskyGrad records cholesky_backward.
func choleskyGrad(grad, l *tensor) *tensor {
	c := grad.Tape().Begin("cholesky_backward", grad, l)
	g := c.Bind(mT(l).MatmulUncast(grad).Tril())
	c.Set(&g, g.Add(mT(g.Tril())).MulScalar())
	c.Set(&g, solveTriangular(c.Tape(), l, g))
	return c.End(c.Set(&g, solveTriangular(c.Tape(), l, g)))
}

// batchedQR reports whether cuBLAS factorizes the matrices of a batch together (geqrf_kernel).
func batchedQR(batch, rows int64) bool { return rows <= 256 && batch >= max(2, rows/16) }

// LinalgQR records torch.linalg.qr(x) with mode "reduced", or with mode "complete", in which Q is square.
func LinalgQR(x *tensor, complete bool) (q, r *tensor) {
	c := x.Tape().Begin("linalg_qr", x)
	m, n := x.Size(-2), x.Size(-1)
	k := min(m, n)
	if complete {
		k = m
	}
	q = c.Bind(allocColumnMajor(c.Tape(), x.DType(), batchShape(x, m, k)...))
	r = c.Bind(allocColumnMajor(c.Tape(), x.DType(), batchShape(x, k, n)...))
	c.Tape().LaunchCopy(q, x)
	c.Bind(c.Tape().Alloc(x.DType(), batchShape(x, min(m, n))...)) // tau
	if batch := matrixCount(x); batchedQR(batch, m) {
		batchedBLAS(c.Tape(), 2, batch)
	} else {
		c.Drop(c.Bind(c.Tape().Alloc(trace.I32)))
	}
	factorize(x, q)
	c.Drop(c.Bind(c.Tape().Alloc(trace.I32)))
	factorize(x, q, r)
	c.Tape().SetGradFn(outputs{q, r}, "LinalgQrBackward0", inputs{x}, saves{q, r},
		func(b *backward) { b.Set(0, qrGrad(b.Grads[0], b.Grads[1], b.Saved(0), b.Saved(1))) })
	return c.EndPair(q, r)
}

// qrGrad records linalg_qr_backward for matrices with at least as many rows as columns.
func qrGrad(gq, gr, q, r *tensor) *tensor {
	if q.Size(-2) < r.Size(-1) {
		return qrGradOfWide(gq, gr, q, r)
	}
	t := q.Tape()
	c := t.Begin("linalg_qr_backward", q, r)
	g := c.Bind(qrInner(gq, gr, q, r))
	sym := func(x *tensor) *tensor {
		c := t.Begin("syminvadj", x)
		y := c.Bind(x.Add(mT(x)))
		t.LaunchElementwise(diagonal(y), 1, diagonal(y))
		return c.End(y)
	}
	c.Set(&g, q.MatmulUncast(sym(g.Triu())))
	if gq != nil {
		c.Set(&g, g.Add(gq))
	}
	return c.End(c.Set(&g, solveTriangular(t, r, g)))
}

// qrInner records gR @ R.mH - Q.mH @ gQ; a term whose gradient is missing is left out.
func qrInner(gq, gr, q, r *tensor) *tensor {
	c := q.Tape().Begin("linalg_qr_backward", q, r)
	switch {
	case gq == nil:
		return c.End(gr.MatmulUncast(mT(r)))
	case gr == nil:
		return c.End(mT(q).MatmulUncast(gq).Neg())
	}
	product := gr.MatmulUncast(mT(r))
	return c.End(product.Sub(mT(q).MatmulUncast(gq)))
}

// qrGradOfWide records linalg_qr_backward for matrices with more columns than rows.
func qrGradOfWide(gq, gr, q, r *tensor) *tensor {
	t := q.Tape()
	c := t.Begin("linalg_qr_backward", q, r)
	m, n := q.Size(-2), r.Size(-1)
	skew := func(x *tensor) *tensor {
		c := t.Begin("trilImInvAdjSkew", x)
		return c.End(c.Bind(x.Sub(mT(x)).Tril()))
	}
	padded := func(x *tensor) *tensor {
		c := t.Begin("cat", x)
		zeros := c.Bind(t.Zeros(x.DType(), batchShape(r, m, n-m)...))
		return c.End(trace.Cat(-1, x, zeros))
	}
	g := c.Bind(qrInner(gq, gr, q, r))
	c.Set(&g, q.MatmulUncast(skew(g.Neg())))
	c.Set(&g, solveTriangular(t, r.Slice(-1, 0, m), g))
	c.Set(&g, padded(g))
	if gr != nil {
		c.Set(&g, g.Add(q.MatmulUncast(gr)))
	}
	return c.End(g)
}

// LinalgEigh records torch.linalg.eigh(x): eigenvalues and eigenvectors of symmetric matrices.
func LinalgEigh(x *tensor) (values, vectors *tensor) {
	c := x.Tape().Begin("_linalg_eigh", x)
	vectors = c.Bind(allocColumnMajor(c.Tape(), x.DType(), x.Shape()...))
	values = c.Bind(c.Tape().Alloc(x.DType(), batchShape(x, x.Size(-1))...))
	info := c.Bind(emptyInfo(x))
	factorize(x, vectors, values)
	checkInfo(info)
	c.Tape().SetGradFn(outputs{values, vectors}, "LinalgEighBackward0", inputs{x}, saves{values, vectors},
		func(b *backward) { b.Set(0, eighGrad(b.Grads[0], b.Grads[1], b.Saved(0), b.Saved(1))) })
	return c.EndPair(values, vectors)
}

// eighGrad records linalg_eig_backward for symmetric matrices.
func eighGrad(gl, gv, values, v *tensor) *tensor {
	c := v.Tape().Begin("linalg_eig_backward", values, v)
	if gv == nil {
		return c.End(v.Mul(gl.Unsqueeze(-2)).MatmulUncast(mT(v)))
	}
	product := c.Bind(mT(v).MatmulUncast(gv)) // its diagonal lives as long
	turn := c.Bind(product.Sub(mT(product)).MulScalar())
	gaps := c.Bind(eigenvalueGaps(values))
	c.Tape().LaunchElementwise(turn, 1, turn, gaps)
	c.Drop(gaps)
	if gl != nil {
		c.Tape().LaunchCopy(diagonal(turn), gl)
	}
	return c.End(v.MatmulUncast(turn.MatmulUncast(mT(v))))
}

// LinalgEigvalsh records torch.linalg.eigvalsh(x).
func LinalgEigvalsh(x *tensor) *tensor {
	c := x.Tape().Begin("linalg_eigvalsh", x)
	values, vectors := LinalgEigh(x)
	c.BindAll([]*tensor{values, vectors})
	return c.End(values)
}

// eigenvalueGaps records the pairwise differences of the numbers in each row of x, with ones on the diagonal.
func eigenvalueGaps(x *tensor) *tensor {
	c := x.Tape().Begin("gaps", x)
	y := c.Bind(x.Unsqueeze(-2).Sub(x.Unsqueeze(-1)))
	c.Tape().Launch(program.Elementwise, x.Numel(), []*tensor{y}, nil)
	return c.End(y)
}

// LUFactor records torch.linalg.lu_factor(x).
func LUFactor(x *tensor) (lu, pivots *tensor) {
	c := x.Tape().Begin("linalg_lu_factor", x)
	lu, pivots, info := LUFactorEx(x)
	c.BindAll([]*tensor{lu, pivots, info})
	checkInfo(info)
	return c.EndPair(lu, pivots)
}

// LUFactorEx records torch.linalg.lu_factor_ex(x).
func LUFactorEx(x *tensor) (lu, pivots, info *tensor) {
	c := x.Tape().Begin("linalg_lu_factor_ex", x)
	lu, pivots, info = factorizeLU(c, x)
	c.Tape().SetGradFn(outputs{lu, pivots, info}, "LinalgLuFactorExBackward0", inputs{x}, saves{lu, pivots},
		func(b *backward) { b.Set(0, luFactorGrad(b.Grad, b.Saved(0), b.Saved(1))) })
	c.EndAll(lu, pivots, info)
	return lu, pivots, info
}

// luFactorGrad records lu_factor_ex_backward for square matrices.
func luFactorGrad(grad, lu, pivots *tensor) *tensor {
	c := grad.Tape().Begin("lu_factor_ex_backward", grad, lu, pivots)
	p, l, u := luUnpack(lu, pivots)
	c.BindAll([]*tensor{u, l, p})
	g := c.Bind(mT(l).MatmulUncast(grad).Tril())
	c.Set(&g, g.Add(grad.MatmulUncast(mT(u)).Triu()))
	c.Set(&g, solveTriangular(c.Tape(), u, g))
	c.Set(&g, solveTriangular(c.Tape(), l, g))
	return c.End(p.MatmulUncast(g))
}

// luUnpack records lu_unpack for square matrices: the permutation matrices and both triangles.
func luUnpack(lu, pivots *tensor) (p, l, u *tensor) {
	c := lu.Tape().Begin("lu_unpack", lu, pivots)
	factor := func() *tensor { return c.Bind(allocColumnMajor(c.Tape(), lu.DType(), lu.Shape()...)) }
	p, l, u = factor(), factor(), factor()
	perm := c.Bind(c.Tape().Arange(lu.Size(-1)))
	if matrixCount(lu) > 1 {
		row := perm
		perm = c.Bind(c.Tape().Alloc(trace.I64, pivots.Shape()...))
		c.Tape().LaunchCopy(perm, row)
		c.Drop(row)
	}
	c.Tape().LaunchCopy(l, lu)
	c.Tape().LaunchCopy(u, lu)
	c.Tape().Launch(program.Index, perm.Numel(), []*tensor{p}, []*tensor{perm, pivots})
	c.EndAll(p, l, u)
	return p, l, u
}

// SolveTriangular records torch.linalg.solve_triangular(a, b, left=left): the solution x of a @ x = b, or of x @ a = b,
// for batches of triangular matrices a [..., n, n] and right-hand sides b.
func SolveTriangular(a *tensor, b *tensor, left bool) *tensor {
	c := a.Tape().Begin("linalg_solve_triangular", a, b)
	y := solveTriangular(c.Tape(), a, b)
	return c.End(y.SetGradFn("LinalgSolveTriangularBackward0", inputs{a, b}, saves{a, y}, func(w *backward) {
		ga, gb := triangularGrads(w.Grad, w.Saved(0), w.Saved(1), left, w.Needs(0))
		w.SetPair(ga, gb)
	}))
}

// triangularGrads records linalg_solve_triangular_backward.
func triangularGrads(grad, a, x *tensor, left, wantA bool) (ga, gb *tensor) {
	c := grad.Tape().Begin("linalg_solve_triangular_backward", grad, a, x)
	gb = c.Bind(solveTriangular(c.Tape(), a, grad))
	if wantA {
		if left {
			ga = c.Bind(gb.MatmulUncast(mT(x)))
		} else {
			ga = c.Bind(mT(x).MatmulUncast(gb))
		}
		c.Set(&ga, ga.Neg())
		c.Set(&ga, ga.Tril())
	}
	return c.EndPair(ga, gb)
}

// TriangularSolve records torch.triangular_solve(b, a), which also returns a copy of a.
func TriangularSolve(b *tensor, a *tensor) (x, clone *tensor) {
	t := b.Tape()
	c := t.Begin("triangular_solve", b, a)
	x = c.Bind(allocColumnMajor(t, b.DType(), b.Shape()...))
	clone = c.Bind(allocColumnMajor(t, a.DType(), a.Shape()...))
	t.LaunchCopy(clone, a)
	useTriangles(t, a)
	t.Launch(program.Matmul, b.Numel()*b.Size(-2), []*tensor{x}, []*tensor{a, b})
	t.SetGradFn(outputs{x, clone}, "TriangularSolveBackward0", inputs{b, a}, saves{a, x}, func(w *backward) {
		c := t.Begin("triangular_solve_backward", w.Grad)
		gb, copied := TriangularSolve(w.Grad, w.Saved(0))
		c.BindAll([]*tensor{gb, copied})
		c.Drop(copied)
		var ga *tensor
		if w.Needs(1) {
			ga = c.Bind(gb.MatmulUncast(mT(w.Saved(1))))
			c.Set(&ga, ga.Neg())
			c.Set(&ga, ga.Triu())
		}
		c.EndPair(gb, ga)
		w.SetPair(gb, ga)
	})
	return c.EndPair(x, clone)
}

// solveTriangular records the solver, which works column by column: the result is column-major, and a is copied if
// neither its rows nor its columns are dense.
func solveTriangular(t *tape, a, b *tensor) *tensor {
	c := t.Begin("linalg_solve_triangular", a, b)
	y := c.Bind(allocColumnMajor(t, b.DType(), b.Shape()...))
	if !a.IsContiguous() && !c.Bind(mT(a)).IsContiguous() {
		dense := c.Bind(allocColumnMajor(t, a.DType(), a.Shape()...))
		t.LaunchCopy(dense, a)
		a = dense
	}
	useTriangles(t, a)
	t.Launch(program.Matmul, b.Numel()*b.Size(-2), []*tensor{y}, []*tensor{a, b})
	return c.End(y)
}
