package trace

import "github.com/vprof/vprof/profiler/program"

// Cholesky is torch.linalg.cholesky(x) and its upper variant.
func (x *Tensor) Cholesky() *Tensor {
	c := x.tape.begin("linalg_cholesky", x)
	return c.checked(x.CholeskyEx())
}

// CholeskyEx is torch.linalg.cholesky_ex(x).
func (x *Tensor) CholeskyEx() (l, info *Tensor) {
	c := x.tape.begin("linalg_cholesky_ex", x)
	l, info = c.let(c.t.byColumns(x.dtype, x.shape...)), c.let(x.report())
	if batch := x.matrices(); batch > 1 {
		c.t.pointers(1, batch)
	}
	x.factorize(l)
	l.derived("LinalgCholeskyExBackward0", inputs{x}, saves{l},
		func(b *backward) { b.give(0, choleskyGrad(b.grad, b.saved(0))) })
	return c.endPair(l, info)
}

// choleskyGrad is cholesky_backward.
func choleskyGrad(grad, l *Tensor) *Tensor {
	c := grad.tape.begin("cholesky_backward", grad, l)
	g := c.let(l.mT().matmul(grad).Tril())
	c.set(&g, g.Add(g.Tril().mT()).MulScalar())
	c.set(&g, c.t.solveTriangular(l, g))
	c.set(&g, c.t.solveTriangular(l, g))
	return c.end(g)
}

// batchedQR reports whether cuBLAS factorizes a batch at once (geqrf_kernel).
func batchedQR(batch, rows int64) bool { return rows <= 256 && batch >= max(2, rows/16) }

// LinalgQR is torch.linalg.qr(x, mode="reduced"), or "complete" with a square Q.
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
		c.t.pointers(2, batch)
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

// qrGrad is linalg_qr_backward, for m >= n
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
	c.set(&g, t.solveTriangular(r, g))
	return c.end(g)
}

// qrInner is gR @ R.mH - Q.mH @ gQ, or what there is of it.
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

// qrGradOfWide is the rest for matrices with more columns than rows.
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

// LinalgEigh is torch.linalg.eigh(x): eigenvalues and eigenvectors of symmetric matrices.
func (x *Tensor) LinalgEigh() (values, vectors *Tensor) {
	c := x.tape.begin("_linalg_eigh", x)
	vectors = c.let(c.t.byColumns(x.dtype, x.shape...))
	values = c.let(c.t.empty(x.dtype, x.batched(x.Size(-1))...))
	info := c.let(x.report())
	x.factorize(vectors, values)
	info.mustBeZero()
	c.t.derive(outputs{values, vectors}, "LinalgEighBackward0", inputs{x}, saves{values, vectors},
		func(b *backward) { b.give(0, eighGrad(b.grads[0], b.grads[1], b.saved(0), b.saved(1))) })
	return c.endPair(values, vectors)
}

// eighGrad is linalg_eig_backward of symmetric matrices.
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

// LinalgEigvalsh is torch.linalg.eigvalsh(x).
func (x *Tensor) LinalgEigvalsh() *Tensor {
	c := x.tape.begin("linalg_eigvalsh", x)
	values, vectors := x.LinalgEigh()
	c.letAll([]*Tensor{values, vectors})
	return c.end(values)
}

// gaps are the differences of the numbers of each row, with ones on the diagonal.
func (x *Tensor) gaps() *Tensor {
	c := x.tape.begin("gaps", x)
	y := c.let(x.Unsqueeze(-2).Sub(x.Unsqueeze(-1)))
	c.t.launch(program.Elementwise, x.numel, []*Tensor{y}, nil)
	return c.end(y)
}
