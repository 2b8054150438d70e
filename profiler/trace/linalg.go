package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Linear algebra of PyTorch's CUDA builds without MAGMA: cuBLAS for batches, cuSOLVER otherwise.
// The workspaces of cuSOLVER are not published and not counted.

// byColumns returns a new tensor of matrices that are laid out by columns.
func (t *Tape) byColumns(d DType, shape ...int64) *Tensor {
	n := len(shape)
	order := WrapDims(n, nil)
	order[n-1], order[n-2] = n-2, n-1
	return t.AllocStrided(d, shape, DenseStrides(shape, order))
}

// matricesOf returns a new tensor of matrices that are laid out by columns, or by rows.
func (t *Tape) matricesOf(d DType, columns bool, shape []int64) *Tensor {
	if columns {
		return t.byColumns(d, shape...)
	}
	return t.Alloc(d, shape...)
}

// batched returns the leading dimensions of batches of matrices, followed by others.
func (x *Tensor) batched(more ...int64) []int64 {
	return slices.Concat(x.shape[:len(x.shape)-2], more)
}

// matrices returns how many matrices x holds.
func (x *Tensor) matrices() int64 { return Numel(x.batched()) }

// mT records x.mT, matrices transposed.
func (x *Tensor) mT() *Tensor { return x.Transpose(-2, -1) }

// pointers allocates arrays with the addresses of a batch's matrices for a kernel.
func (c *Call) pointers(arrays int, batch int64) {
	for range arrays {
		c.Let(c.t.Alloc(I64, batch))
	}
}

// batchedBLAS records a kernel of cuBLAS over a batch of matrices, passed by their addresses.
func (t *Tape) batchedBLAS(arrays int, batch int64) {
	c := t.Begin("allocate_array")
	c.pointers(arrays, batch)
	t.UseBLAS()
	c.Finish()
}

// emptyInfo returns the info of LAPACK for each matrix of x, which a factorization leaves: zero for success.
func (x *Tensor) emptyInfo() *Tensor { return x.tape.Alloc(I32, x.batched()...) }

// checkInfo records _linalg_check_errors.
func (x *Tensor) checkInfo() {
	c := x.tape.Begin("_linalg_check_errors", x)
	if len(x.shape) == 0 {
		c.Let(c.t.Alloc(Bool))
	}
	wrong := c.Let(c.t.Alloc(Bool))
	c.t.Launch(program.Reduction, x.numel, []*Tensor{wrong}, []*Tensor{x})
	c.Finish()
}

// checked returns a result after it has checked the info that it comes with.
func (c *Call) checked(x, info *Tensor) *Tensor {
	c.LetAll([]*Tensor{x, info})
	info.checkInfo()
	return c.End(x)
}

// factorize launches a kernel with the work of a factorization of x.
func (x *Tensor) factorize(outs ...*Tensor) {
	x.tape.Launch(program.Matmul, x.numel*x.Size(-1), outs, []*Tensor{x})
}

// largestBatchedLU is the size of the smallest matrices that are not factorized as a batch.
const largestBatchedLU = 512

// luInto puts the LU factorization of x into lu.
func (x *Tensor) luInto(lu *Tensor) {
	if batch, n := x.matrices(), x.Size(-1); batch > 1 && n < largestBatchedLU && n == x.Size(-2) {
		x.tape.batchedBLAS(1, batch)
	}
	x.factorize(lu)
}

// luOf allocates and makes a factorization: LU, pivots and info.
func (c *Call) luOf(x *Tensor) (lu, pivots, info *Tensor) {
	lu = c.Let(c.t.byColumns(x.dtype, x.shape...))
	pivots = c.Let(c.t.Alloc(I32, x.batched(min(x.Size(-1), x.Size(-2)))...))
	info = c.Let(x.emptyInfo())
	x.luInto(lu)
	return lu, pivots, info
}

// luSolver is how systems whose matrix is factorized are solved.
type luSolver int

const (
	luByCuBLAS luSolver = iota
	luByCuSOLVER
	luByTriangles
)

// luSolverFor chooses by the number of matrices, their size and the right-hand sides of
// each (lu_solve_kernel), as PyTorch 2.11 was seen to.
func luSolverFor(batch, n, k int64, adjoint bool) luSolver {
	few := batch <= 2
	switch {
	case n == k && n > 16 || n > 128:
		return luByTriangles
	case n == k && n <= 16:
		return luByCuBLAS
	case n <= 8:
		if k >= 256 && !adjoint {
			return luByCuSOLVER
		}
		return luByCuBLAS
	case n <= 64 && few:
		if n > 32 && k > 64 && !adjoint {
			return luByTriangles
		}
		return luByCuSOLVER
	case n <= 64 && k > 16, n > 64 && k > 1:
		return luByTriangles
	case few:
		return luByCuSOLVER
	}
	return luByCuBLAS
}

// luSolveInPlace replaces x by the solutions for the right-hand sides that it holds.
func (x *Tensor) luSolveInPlace(lu *Tensor, adjoint bool) {
	t := x.tape
	batch, n := lu.matrices(), lu.Size(-1)
	c := t.Begin("lu_solve", x, lu)
	switch luSolverFor(batch, n, x.numel/max(batch*n, 1), adjoint) {
	case luByCuBLAS:
		t.batchedBLAS(2, batch)
	case luByCuSOLVER:
		c.Let(t.Alloc(I32))
	case luByTriangles:
		x.luSolveByTriangles(lu, adjoint)
	}
	t.Launch(program.Matmul, x.numel*n, []*Tensor{x}, []*Tensor{x, lu})
	c.Finish()
}

// luSolveByTriangles permutes rows and solves for both triangles.
func (x *Tensor) luSolveByTriangles(lu *Tensor, adjoint bool) {
	t := x.tape
	batch, n := lu.matrices(), lu.Size(-1)
	c := t.Begin("lu_solve_triangular")
	perm := c.Let(t.Arange(n))
	if batch > 1 {
		row := perm
		perm = c.Let(t.Alloc(I64, lu.batched(n)...))
		t.LaunchCopy(perm, row)
		c.Drop(row)
	}
	solve := func() {
		for range 2 {
			t.useTriangles(lu)
		}
	}
	if adjoint {
		solve()
	} else {
		row := c.Let(t.Arange(n))
		inverse := c.Let(t.Alloc(I64, lu.batched(n)...))
		t.Launch(program.Index, inverse.numel, []*Tensor{inverse}, []*Tensor{perm, row})
	}
	y := c.Let(t.byColumns(x.dtype, lu.batched(n, x.numel/max(batch*n, 1))...))
	t.LaunchCopy(y, x)
	if !adjoint {
		solve()
	}
	c.Finish()
}

// useTriangles records triangular solvers of cuBLAS; few large systems are solved one by one.
func (t *Tape) useTriangles(a *Tensor) {
	batch := a.matrices()
	if batch > 8 || a.Size(-1) < 64 {
		t.batchedBLAS(2, batch)
		return
	}
	for range batch {
		t.UseBLAS()
	}
}

// luSolve records torch.linalg.lu_solve where autograd does not look.
func (x *Tensor) luSolve(lu *Tensor, adjoint bool) *Tensor { return x.luSolveBy(lu, true, adjoint) }

func (x *Tensor) luSolveBy(lu *Tensor, left, adjoint bool) *Tensor {
	c := x.tape.Begin("linalg_lu_solve", x, lu)
	y := c.Let(c.t.matricesOf(x.dtype, left, x.shape))
	c.t.LaunchCopy(y, x)
	y.luSolveInPlace(lu, adjoint)
	return c.End(y)
}

// LinalgSolve records torch.linalg.solve(a, b, left=left): x of a @ x = b, or of x @ a = b. A b
// with as many dimensions as a batch of vectors has is one.
func (a *Tensor) LinalgSolve(b *Tensor, left bool) *Tensor {
	c := a.tape.Begin("linalg_solve", a, b)
	return c.checked(a.LinalgSolveEx(b, left))
}

// LinalgSolveEx records torch.linalg.solve_ex(a, b, left=left).
func (a *Tensor) LinalgSolveEx(b *Tensor, left bool) (solution, info *Tensor) {
	var x *Tensor
	c := a.tape.Begin("linalg_solve_ex", a, b)
	n := a.Size(-1)
	vector := len(b.shape) == 1 || slices.Equal(b.shape, a.shape[:len(a.shape)-1])
	if vector {
		x = c.t.Alloc(a.dtype, a.batched(n)...)
	} else {
		x = c.t.matricesOf(a.dtype, left, slices.Concat(a.BatchShape(b), b.shape[len(b.shape)-2:]))
	}
	c.Let(x)
	lu, pivots, info := c.luOf(a)
	if vector {
		rows := c.Let(c.t.byColumns(a.dtype, a.batched(n, 1)...))
		rows.luSolveInPlace(lu, false)
		c.t.LaunchCopy(x, rows)
		c.Drop(rows)
	} else {
		x.luSolveInPlace(lu, false)
	}
	x.Derived("LinalgSolveExBackward0", inputs{a, b}, saves{a, lu, pivots, x}, func(w *Gradients) {
		ga, gb := solveGrads(w.Grad, w.Saved(1), w.Saved(3), left, vector, w.Needs(0))
		w.GivePair(ga, gb)
	})
	return c.EndPair(x, info)
}

// solveGrads records linalg_solve_backward.
func solveGrads(grad, lu, x *Tensor, left, vector, wantA bool) (ga, gb *Tensor) {
	c := grad.tape.Begin("linalg_solve_backward", grad, lu, x)
	if vector {
		grad = c.Let(grad.Unsqueeze(-1))
		x = c.Let(x.Unsqueeze(-1))
	}
	gb = c.Let(grad.luSolveBy(lu, left, true))
	if wantA {
		if left {
			ga = gb.MatmulUncast(x.mT()).Neg()
		} else {
			ga = x.mT().MatmulUncast(gb).Neg()
		}
		ga = c.Let(ga)
	}
	if vector {
		gb = gb.Squeeze(-1)
	}
	return c.EndPair(ga, gb)
}

// LinalgInv records torch.linalg.inv(x): LinalgInvEx, and a check of its info.
func (x *Tensor) LinalgInv() *Tensor {
	c := x.tape.Begin("linalg_inv", x)
	return c.checked(x.LinalgInvEx())
}

// LinalgInvEx records torch.linalg.inv_ex(x): the solution for an identity.
func (x *Tensor) LinalgInvEx() (y, info *Tensor) {
	t := x.tape
	c := t.Begin("linalg_inv_ex", x)
	y = c.Let(t.byColumns(x.dtype, x.shape...))
	info = c.Let(x.emptyInfo())
	t.LaunchFill(y)
	t.NoGrad(func() {
		c := t.Begin("linalg_solve_ex", x)
		lu := c.Let(t.byColumns(x.dtype, x.shape...))
		c.Let(t.Alloc(I32, x.batched(x.Size(-1))...))
		x.luInto(lu)
		y.luSolveInPlace(lu, false)
		c.Finish()
	})
	y.Derived("LinalgInvExBackward0", inputs{x}, saves{y}, func(b *Gradients) {
		y := b.Saved(0).mT()
		b.Give(0, y.MatmulUncast(b.Grad.MatmulUncast(y)).Neg())
	})
	return c.EndPair(y, info)
}

// MatrixPower records torch.linalg.matrix_power(x, n): by squaring, of the inverse for an n below
// zero.
func (x *Tensor) MatrixPower(n int64) *Tensor {
	c := x.tape.Begin("linalg_matrix_power", x)
	switch {
	case n == 0:
		return c.End(x.ZerosLike())
	case n == 1:
		return c.End(x.Clone())
	case n < 0:
		x, n = c.Let(x.LinalgInv()), -n
	}
	if n == 1 {
		return c.End(x)
	}
	if n == 3 {
		return c.End(x.Matmul(x).Matmul(x))
	}
	z, result := x, (*Tensor)(nil)
	for first := true; n > 0; n /= 2 {
		if !first {
			z = c.Let(z.Matmul(z))
		}
		first = false
		switch {
		case n%2 == 0:
		case result == nil:
			result = z
		default:
			result = c.Let(result.Matmul(z))
		}
	}
	return c.End(result)
}
