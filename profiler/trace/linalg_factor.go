package trace

import "github.com/vprof/vprof/profiler/program"

// Cholesky records torch.linalg.cholesky(x) and its upper variant.
func (x *Tensor) Cholesky() *Tensor {
	c := x.tape.begin("linalg_cholesky", x)
	return c.checked(x.CholeskyEx())
}

// CholeskyEx records torch.linalg.cholesky_ex(x).
func (x *Tensor) CholeskyEx() (l, info *Tensor) {
	c := x.tape.begin("linalg_cholesky_ex", x)
	l, info = c.let(c.t.byColumns(x.dtype, x.shape...)), c.let(x.emptyInfo())
	if batch := x.matrices(); batch > 1 {
		p := c.t.begin("allocate_array") // of cuSOLVER
		p.pointers(1, batch)
		p.finish()
	}
	x.factorize(l)
	l.derived("LinalgCholeskyExBackward0", inputs{x}, saves{l},
		func(b *backward) { b.give(0, choleskyGrad(b.grad, b.saved(0))) })
	return c.endPair(l, info)
}

// choleskyGrad records cholesky_backward.
func choleskyGrad(grad, l *Tensor) *Tensor {
	c := grad.tape.begin("cholesky_backward", grad, l)
	g := c.let(l.mT().matmul(grad).Tril())
	c.set(&g, g.Add(g.Tril().mT()).MulScalar())
	c.set(&g, c.t.solveTriangular(l, g))
	return c.end(c.set(&g, c.t.solveTriangular(l, g)))
}

// batchedQR reports whether cuBLAS factorizes a batch at once (geqrf_kernel).
func batchedQR(batch, rows int64) bool { return rows <= 256 && batch >= max(2, rows/16) }

// LinalgQR records torch.linalg.qr(x, mode="reduced"), or "complete" with a square Q.
func (x *Tensor) LinalgQR(complete bool) (q, r *Tensor) {
	c := x.tape.begin("linalg_qr", x)
	m, n := x.Size(-2), x.Size(-1)
	k := min(m, n)
	if complete {
		k = m
	}
	q, r = c.let(c.t.byColumns(x.dtype, x.batched(m, k)...)), c.let(c.t.byColumns(x.dtype, x.batched(k, n)...))
	c.t.launchCopy(q, x)
	c.let(c.t.empty(x.dtype, x.batched(min(m, n))...)) // tau
	if batch := x.matrices(); batchedQR(batch, m) {
		c.t.batchedBLAS(2, batch)
	} else {
		c.drop(c.let(c.t.empty(I32)))
	}
	x.factorize(q)
	c.drop(c.let(c.t.empty(I32)))
	x.factorize(q, r)
	c.t.derive(outputs{q, r}, "LinalgQrBackward0", inputs{x}, saves{q, r},
		func(b *backward) { b.give(0, qrGrad(b.grads[0], b.grads[1], b.saved(0), b.saved(1))) })
	return c.endPair(q, r)
}

// qrGrad records linalg_qr_backward, for m >= n
func qrGrad(gq, gr, q, r *Tensor) *Tensor {
	if q.Size(-2) < r.Size(-1) {
		return qrGradOfWide(gq, gr, q, r)
	}
	t := q.tape
	c := t.begin("linalg_qr_backward", q, r)
	g := c.let(qrInner(gq, gr, q, r))
	sym := func(x *Tensor) *Tensor {
		c := t.begin("syminvadj", x)
		y := c.let(x.Add(x.mT()))
		t.launchElementwise(y.diagonal(), 1, y.diagonal())
		return c.end(y)
	}
	c.set(&g, q.matmul(sym(g.Triu())))
	if gq != nil {
		c.set(&g, g.Add(gq))
	}
	return c.end(c.set(&g, t.solveTriangular(r, g)))
}

// qrInner records gR @ R.mH - Q.mH @ gQ without the terms of missing gradients.
func qrInner(gq, gr, q, r *Tensor) *Tensor {
	c := q.tape.begin("linalg_qr_backward", q, r)
	switch {
	case gq == nil:
		return c.end(gr.matmul(r.mT()))
	case gr == nil:
		return c.end(q.mT().matmul(gq).Neg())
	}
	product := gr.matmul(r.mT())
	return c.end(product.Sub(q.mT().matmul(gq)))
}

// qrGradOfWide returns the rest for matrices with more columns than rows.
func qrGradOfWide(gq, gr, q, r *Tensor) *Tensor {
	t := q.tape
	c := t.begin("linalg_qr_backward", q, r)
	m, n := q.Size(-2), r.Size(-1)
	skew := func(x *Tensor) *Tensor {
		c := t.begin("trilImInvAdjSkew", x)
		return c.end(c.let(x.Sub(x.mT()).Tril()))
	}
	padded := func(x *Tensor) *Tensor {
		c := t.begin("cat", x)
		zeros := c.let(t.Zeros(x.dtype, r.batched(m, n-m)...))
		return c.end(Cat(-1, x, zeros))
	}
	g := c.let(qrInner(gq, gr, q, r))
	c.set(&g, q.matmul(skew(g.Neg())))
	c.set(&g, t.solveTriangular(r.Slice(-1, 0, m), g))
	c.set(&g, padded(g))
	if gr != nil {
		c.set(&g, g.Add(q.matmul(gr)))
	}
	return c.end(g)
}

// LinalgEigh records torch.linalg.eigh(x): eigenvalues and eigenvectors of symmetric matrices.
func (x *Tensor) LinalgEigh() (values, vectors *Tensor) {
	c := x.tape.begin("_linalg_eigh", x)
	vectors = c.let(c.t.byColumns(x.dtype, x.shape...))
	values = c.let(c.t.empty(x.dtype, x.batched(x.Size(-1))...))
	info := c.let(x.emptyInfo())
	x.factorize(vectors, values)
	info.checkInfo()
	c.t.derive(outputs{values, vectors}, "LinalgEighBackward0", inputs{x}, saves{values, vectors},
		func(b *backward) { b.give(0, eighGrad(b.grads[0], b.grads[1], b.saved(0), b.saved(1))) })
	return c.endPair(values, vectors)
}

// eighGrad records linalg_eig_backward of symmetric matrices.
func eighGrad(gl, gv, values, v *Tensor) *Tensor {
	c := v.tape.begin("linalg_eig_backward", values, v)
	if gv == nil {
		return c.end(v.Mul(gl.Unsqueeze(-2)).matmul(v.mT()))
	}
	product := c.let(v.mT().matmul(gv)) // its diagonal lives as long
	turn := c.let(product.Sub(product.mT()).MulScalar())
	gaps := c.let(values.gaps())
	c.t.launchElementwise(turn, 1, turn, gaps)
	c.drop(gaps)
	if gl != nil {
		c.t.launchCopy(turn.diagonal(), gl)
	}
	return c.end(v.matmul(turn.matmul(v.mT())))
}

// LinalgEigvalsh records torch.linalg.eigvalsh(x).
func (x *Tensor) LinalgEigvalsh() *Tensor {
	c := x.tape.begin("linalg_eigvalsh", x)
	values, vectors := x.LinalgEigh()
	c.letAll([]*Tensor{values, vectors})
	return c.end(values)
}

// gaps returns the differences of the numbers of each row, with ones on the diagonal.
func (x *Tensor) gaps() *Tensor {
	c := x.tape.begin("gaps", x)
	y := c.let(x.Unsqueeze(-2).Sub(x.Unsqueeze(-1)))
	c.t.launch(program.Elementwise, x.numel, []*Tensor{y}, nil)
	return c.end(y)
}

// LUFactor records torch.linalg.lu_factor(x).
func (x *Tensor) LUFactor() (lu, pivots *Tensor) {
	c := x.tape.begin("linalg_lu_factor", x)
	lu, pivots, info := x.LUFactorEx()
	c.letAll([]*Tensor{lu, pivots, info})
	info.checkInfo()
	return c.endPair(lu, pivots)
}

// LUFactorEx records torch.linalg.lu_factor_ex(x).
func (x *Tensor) LUFactorEx() (lu, pivots, info *Tensor) {
	c := x.tape.begin("linalg_lu_factor_ex", x)
	lu, pivots, info = c.luOf(x)
	c.t.derive(outputs{lu, pivots, info}, "LinalgLuFactorExBackward0", inputs{x}, saves{lu, pivots},
		func(b *backward) { b.give(0, luFactorGrad(b.grad, b.saved(0), b.saved(1))) })
	c.endAll(lu, pivots, info)
	return lu, pivots, info
}

// luFactorGrad records lu_factor_ex_backward of square matrices.
func luFactorGrad(grad, lu, pivots *Tensor) *Tensor {
	c := grad.tape.begin("lu_factor_ex_backward", grad, lu, pivots)
	p, l, u := luUnpack(lu, pivots)
	c.letAll([]*Tensor{u, l, p})
	g := c.let(l.mT().matmul(grad).Tril())
	c.set(&g, g.Add(grad.matmul(u.mT()).Triu()))
	c.set(&g, c.t.solveTriangular(u, g))
	c.set(&g, c.t.solveTriangular(l, g))
	return c.end(p.matmul(g))
}

// luUnpack records lu_unpack of square matrices: permutations and both triangles.
func luUnpack(lu, pivots *Tensor) (p, l, u *Tensor) {
	c := lu.tape.begin("lu_unpack", lu, pivots)
	p, l, u = c.let(c.t.byColumns(lu.dtype, lu.shape...)), c.let(c.t.byColumns(lu.dtype, lu.shape...)),
		c.let(c.t.byColumns(lu.dtype, lu.shape...))
	perm := c.let(c.t.Arange(lu.Size(-1)))
	if lu.matrices() > 1 {
		row := perm
		perm = c.let(c.t.empty(I64, pivots.shape...))
		c.t.launchCopy(perm, row)
		c.drop(row)
	}
	c.t.launchCopy(l, lu)
	c.t.launchCopy(u, lu)
	c.t.launch(program.Index, perm.numel, []*Tensor{p}, []*Tensor{perm, pivots})
	c.endAll(p, l, u)
	return p, l, u
}

// SolveTriangular records torch.linalg.solve_triangular(a, b, left=left): x of a @ x = b, or of
// x @ a = b, for batches of triangles a [..., n, n] and of right-hand sides b.
func (a *Tensor) SolveTriangular(b *Tensor, left bool) *Tensor {
	c := a.tape.begin("linalg_solve_triangular", a, b)
	y := c.t.solveTriangular(a, b)
	return c.end(y.derived("LinalgSolveTriangularBackward0", inputs{a, b}, saves{a, y}, func(w *backward) {
		ga, gb := triangularGrads(w.grad, w.saved(0), w.saved(1), left, w.needs(0))
		w.givePair(ga, gb)
	}))
}

// triangularGrads records linalg_solve_triangular_backward.
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

// TriangularSolve records torch.triangular_solve(b, a), which gives a copy of a, too.
func (b *Tensor) TriangularSolve(a *Tensor) (x, clone *Tensor) {
	t := b.tape
	c := t.begin("triangular_solve", b, a)
	x = c.let(t.byColumns(b.dtype, b.shape...))
	clone = c.let(t.byColumns(a.dtype, a.shape...))
	t.launchCopy(clone, a)
	t.useTriangles(a)
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
	t.useTriangles(a)
	t.launch(program.Matmul, b.numel*b.Size(-2), []*Tensor{y}, []*Tensor{a, b})
	return c.end(y)
}
