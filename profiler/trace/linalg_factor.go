package trace

import "github.com/vprof/vprof/profiler/program"

// Cholesky records torch.linalg.cholesky(x) and its upper variant.
func (x *Tensor) Cholesky() *Tensor {
	c := x.tape.Begin("linalg_cholesky", x)
	return c.checked(x.CholeskyEx())
}

// CholeskyEx records torch.linalg.cholesky_ex(x).
func (x *Tensor) CholeskyEx() (l, info *Tensor) {
	c := x.tape.Begin("linalg_cholesky_ex", x)
	l, info = c.Let(c.t.byColumns(x.dtype, x.shape...)), c.Let(x.emptyInfo())
	if batch := x.matrices(); batch > 1 {
		p := c.t.Begin("allocate_array") // of cuSOLVER
		p.pointers(1, batch)
		p.Finish()
	}
	x.factorize(l)
	l.Derived("LinalgCholeskyExBackward0", inputs{x}, saves{l},
		func(b *Gradients) { b.Give(0, choleskyGrad(b.Grad, b.Saved(0))) })
	return c.EndPair(l, info)
}

// choleskyGrad records cholesky_backward.
func choleskyGrad(grad, l *Tensor) *Tensor {
	c := grad.tape.Begin("cholesky_backward", grad, l)
	g := c.Let(l.mT().MatmulUncast(grad).Tril())
	c.Set(&g, g.Add(g.Tril().mT()).MulScalar())
	c.Set(&g, c.t.solveTriangular(l, g))
	return c.End(c.Set(&g, c.t.solveTriangular(l, g)))
}

// batchedQR reports whether cuBLAS factorizes a batch at once (geqrf_kernel).
func batchedQR(batch, rows int64) bool { return rows <= 256 && batch >= max(2, rows/16) }

// LinalgQR records torch.linalg.qr(x, mode="reduced"), or "complete" with a square Q.
func (x *Tensor) LinalgQR(complete bool) (q, r *Tensor) {
	c := x.tape.Begin("linalg_qr", x)
	m, n := x.Size(-2), x.Size(-1)
	k := min(m, n)
	if complete {
		k = m
	}
	q, r = c.Let(c.t.byColumns(x.dtype, x.batched(m, k)...)), c.Let(c.t.byColumns(x.dtype, x.batched(k, n)...))
	c.t.LaunchCopy(q, x)
	c.Let(c.t.Alloc(x.dtype, x.batched(min(m, n))...)) // tau
	if batch := x.matrices(); batchedQR(batch, m) {
		c.t.batchedBLAS(2, batch)
	} else {
		c.Drop(c.Let(c.t.Alloc(I32)))
	}
	x.factorize(q)
	c.Drop(c.Let(c.t.Alloc(I32)))
	x.factorize(q, r)
	c.t.Derive(outputs{q, r}, "LinalgQrBackward0", inputs{x}, saves{q, r},
		func(b *Gradients) { b.Give(0, qrGrad(b.Grads[0], b.Grads[1], b.Saved(0), b.Saved(1))) })
	return c.EndPair(q, r)
}

// qrGrad records linalg_qr_backward, for m >= n
func qrGrad(gq, gr, q, r *Tensor) *Tensor {
	if q.Size(-2) < r.Size(-1) {
		return qrGradOfWide(gq, gr, q, r)
	}
	t := q.tape
	c := t.Begin("linalg_qr_backward", q, r)
	g := c.Let(qrInner(gq, gr, q, r))
	sym := func(x *Tensor) *Tensor {
		c := t.Begin("syminvadj", x)
		y := c.Let(x.Add(x.mT()))
		t.LaunchElementwise(y.diagonal(), 1, y.diagonal())
		return c.End(y)
	}
	c.Set(&g, q.MatmulUncast(sym(g.Triu())))
	if gq != nil {
		c.Set(&g, g.Add(gq))
	}
	return c.End(c.Set(&g, t.solveTriangular(r, g)))
}

// qrInner records gR @ R.mH - Q.mH @ gQ without the terms of missing gradients.
func qrInner(gq, gr, q, r *Tensor) *Tensor {
	c := q.tape.Begin("linalg_qr_backward", q, r)
	switch {
	case gq == nil:
		return c.End(gr.MatmulUncast(r.mT()))
	case gr == nil:
		return c.End(q.mT().MatmulUncast(gq).Neg())
	}
	product := gr.MatmulUncast(r.mT())
	return c.End(product.Sub(q.mT().MatmulUncast(gq)))
}

// qrGradOfWide returns the rest for matrices with more columns than rows.
func qrGradOfWide(gq, gr, q, r *Tensor) *Tensor {
	t := q.tape
	c := t.Begin("linalg_qr_backward", q, r)
	m, n := q.Size(-2), r.Size(-1)
	skew := func(x *Tensor) *Tensor {
		c := t.Begin("trilImInvAdjSkew", x)
		return c.End(c.Let(x.Sub(x.mT()).Tril()))
	}
	padded := func(x *Tensor) *Tensor {
		c := t.Begin("cat", x)
		zeros := c.Let(t.Zeros(x.dtype, r.batched(m, n-m)...))
		return c.End(Cat(-1, x, zeros))
	}
	g := c.Let(qrInner(gq, gr, q, r))
	c.Set(&g, q.MatmulUncast(skew(g.Neg())))
	c.Set(&g, t.solveTriangular(r.Slice(-1, 0, m), g))
	c.Set(&g, padded(g))
	if gr != nil {
		c.Set(&g, g.Add(q.MatmulUncast(gr)))
	}
	return c.End(g)
}

// LinalgEigh records torch.linalg.eigh(x): eigenvalues and eigenvectors of symmetric matrices.
func (x *Tensor) LinalgEigh() (values, vectors *Tensor) {
	c := x.tape.Begin("_linalg_eigh", x)
	vectors = c.Let(c.t.byColumns(x.dtype, x.shape...))
	values = c.Let(c.t.Alloc(x.dtype, x.batched(x.Size(-1))...))
	info := c.Let(x.emptyInfo())
	x.factorize(vectors, values)
	info.checkInfo()
	c.t.Derive(outputs{values, vectors}, "LinalgEighBackward0", inputs{x}, saves{values, vectors},
		func(b *Gradients) { b.Give(0, eighGrad(b.Grads[0], b.Grads[1], b.Saved(0), b.Saved(1))) })
	return c.EndPair(values, vectors)
}

// eighGrad records linalg_eig_backward of symmetric matrices.
func eighGrad(gl, gv, values, v *Tensor) *Tensor {
	c := v.tape.Begin("linalg_eig_backward", values, v)
	if gv == nil {
		return c.End(v.Mul(gl.Unsqueeze(-2)).MatmulUncast(v.mT()))
	}
	product := c.Let(v.mT().MatmulUncast(gv)) // its diagonal lives as long
	turn := c.Let(product.Sub(product.mT()).MulScalar())
	gaps := c.Let(values.gaps())
	c.t.LaunchElementwise(turn, 1, turn, gaps)
	c.Drop(gaps)
	if gl != nil {
		c.t.LaunchCopy(turn.diagonal(), gl)
	}
	return c.End(v.MatmulUncast(turn.MatmulUncast(v.mT())))
}

// LinalgEigvalsh records torch.linalg.eigvalsh(x).
func (x *Tensor) LinalgEigvalsh() *Tensor {
	c := x.tape.Begin("linalg_eigvalsh", x)
	values, vectors := x.LinalgEigh()
	c.LetAll([]*Tensor{values, vectors})
	return c.End(values)
}

// gaps returns the differences of the numbers of each row, with ones on the diagonal.
func (x *Tensor) gaps() *Tensor {
	c := x.tape.Begin("gaps", x)
	y := c.Let(x.Unsqueeze(-2).Sub(x.Unsqueeze(-1)))
	c.t.Launch(program.Elementwise, x.numel, []*Tensor{y}, nil)
	return c.End(y)
}

// LUFactor records torch.linalg.lu_factor(x).
func (x *Tensor) LUFactor() (lu, pivots *Tensor) {
	c := x.tape.Begin("linalg_lu_factor", x)
	lu, pivots, info := x.LUFactorEx()
	c.LetAll([]*Tensor{lu, pivots, info})
	info.checkInfo()
	return c.EndPair(lu, pivots)
}

// LUFactorEx records torch.linalg.lu_factor_ex(x).
func (x *Tensor) LUFactorEx() (lu, pivots, info *Tensor) {
	c := x.tape.Begin("linalg_lu_factor_ex", x)
	lu, pivots, info = c.luOf(x)
	c.t.Derive(outputs{lu, pivots, info}, "LinalgLuFactorExBackward0", inputs{x}, saves{lu, pivots},
		func(b *Gradients) { b.Give(0, luFactorGrad(b.Grad, b.Saved(0), b.Saved(1))) })
	c.EndAll(lu, pivots, info)
	return lu, pivots, info
}

// luFactorGrad records lu_factor_ex_backward of square matrices.
func luFactorGrad(grad, lu, pivots *Tensor) *Tensor {
	c := grad.tape.Begin("lu_factor_ex_backward", grad, lu, pivots)
	p, l, u := luUnpack(lu, pivots)
	c.LetAll([]*Tensor{u, l, p})
	g := c.Let(l.mT().MatmulUncast(grad).Tril())
	c.Set(&g, g.Add(grad.MatmulUncast(u.mT()).Triu()))
	c.Set(&g, c.t.solveTriangular(u, g))
	c.Set(&g, c.t.solveTriangular(l, g))
	return c.End(p.MatmulUncast(g))
}

// luUnpack records lu_unpack of square matrices: permutations and both triangles.
func luUnpack(lu, pivots *Tensor) (p, l, u *Tensor) {
	c := lu.tape.Begin("lu_unpack", lu, pivots)
	p, l, u = c.Let(c.t.byColumns(lu.dtype, lu.shape...)), c.Let(c.t.byColumns(lu.dtype, lu.shape...)),
		c.Let(c.t.byColumns(lu.dtype, lu.shape...))
	perm := c.Let(c.t.Arange(lu.Size(-1)))
	if lu.matrices() > 1 {
		row := perm
		perm = c.Let(c.t.Alloc(I64, pivots.shape...))
		c.t.LaunchCopy(perm, row)
		c.Drop(row)
	}
	c.t.LaunchCopy(l, lu)
	c.t.LaunchCopy(u, lu)
	c.t.Launch(program.Index, perm.numel, []*Tensor{p}, []*Tensor{perm, pivots})
	c.EndAll(p, l, u)
	return p, l, u
}

// SolveTriangular records torch.linalg.solve_triangular(a, b, left=left): x of a @ x = b, or of
// x @ a = b, for batches of triangles a [..., n, n] and of right-hand sides b.
func (a *Tensor) SolveTriangular(b *Tensor, left bool) *Tensor {
	c := a.tape.Begin("linalg_solve_triangular", a, b)
	y := c.t.solveTriangular(a, b)
	return c.End(y.Derived("LinalgSolveTriangularBackward0", inputs{a, b}, saves{a, y}, func(w *Gradients) {
		ga, gb := triangularGrads(w.Grad, w.Saved(0), w.Saved(1), left, w.Needs(0))
		w.GivePair(ga, gb)
	}))
}

// triangularGrads records linalg_solve_triangular_backward.
func triangularGrads(grad, a, x *Tensor, left, wantA bool) (ga, gb *Tensor) {
	c := grad.tape.Begin("linalg_solve_triangular_backward", grad, a, x)
	gb = c.Let(c.t.solveTriangular(a, grad))
	if wantA {
		if left {
			ga = c.Let(gb.MatmulUncast(x.mT()))
		} else {
			ga = c.Let(x.mT().MatmulUncast(gb))
		}
		c.Set(&ga, ga.Neg())
		c.Set(&ga, ga.Tril())
	}
	return c.EndPair(ga, gb)
}

// TriangularSolve records torch.triangular_solve(b, a), which gives a copy of a, too.
func (b *Tensor) TriangularSolve(a *Tensor) (x, clone *Tensor) {
	t := b.tape
	c := t.Begin("triangular_solve", b, a)
	x = c.Let(t.byColumns(b.dtype, b.shape...))
	clone = c.Let(t.byColumns(a.dtype, a.shape...))
	t.LaunchCopy(clone, a)
	t.useTriangles(a)
	t.Launch(program.Matmul, b.numel*b.Size(-2), []*Tensor{x}, []*Tensor{a, b})
	t.Derive(outputs{x, clone}, "TriangularSolveBackward0", inputs{b, a}, saves{a, x}, func(w *Gradients) {
		c := t.Begin("triangular_solve_backward", w.Grad)
		gb, copied := w.Grad.TriangularSolve(w.Saved(0))
		c.LetAll([]*Tensor{gb, copied})
		c.Drop(copied)
		var ga *Tensor
		if w.Needs(1) {
			ga = c.Let(gb.MatmulUncast(w.Saved(1).mT()))
			c.Set(&ga, ga.Neg())
			c.Set(&ga, ga.Triu())
		}
		c.EndPair(gb, ga)
		w.GivePair(gb, ga)
	})
	return c.EndPair(x, clone)
}

// solveTriangular computes column by column, so the result is laid out by columns, and a
// is copied if it is dense neither by rows nor by columns.
func (t *Tape) solveTriangular(a, b *Tensor) *Tensor {
	c := t.Begin("linalg_solve_triangular", a, b)
	y := c.Let(t.byColumns(b.dtype, b.shape...))
	if !a.IsContiguous() && !c.Let(a.mT()).IsContiguous() {
		dense := c.Let(t.byColumns(a.dtype, a.shape...))
		t.LaunchCopy(dense, a)
		a = dense
	}
	t.useTriangles(a)
	t.Launch(program.Matmul, b.numel*b.Size(-2), []*Tensor{y}, []*Tensor{a, b})
	return c.End(y)
}
