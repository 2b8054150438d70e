package trace

import "github.com/vprof/vprof/profiler/program"

// LUFactor is torch.linalg.lu_factor(x).
func (x *Tensor) LUFactor() (lu, pivots *Tensor) {
	c := x.tape.begin("linalg_lu_factor", x)
	lu, pivots, info := x.LUFactorEx()
	c.letAll([]*Tensor{lu, pivots, info})
	info.mustBeZero()
	return c.endPair(lu, pivots)
}

// LUFactorEx is torch.linalg.lu_factor_ex(x).
func (x *Tensor) LUFactorEx() (lu, pivots, info *Tensor) {
	c := x.tape.begin("linalg_lu_factor_ex", x)
	lu, pivots, info = c.luOf(x)
	c.t.derive(outputs{lu, pivots, info}, "LinalgLuFactorExBackward0", inputs{x}, saves{lu, pivots},
		func(b *backward) { b.give(0, luFactorGrad(b.grad, b.saved(0), b.saved(1))) })
	c.endAll(lu, pivots, info)
	return lu, pivots, info
}

// luFactorGrad is lu_factor_ex_backward of square matrices.
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

// luUnpack is lu_unpack of square matrices: permutations and both triangles.
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
