package ops

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Linear algebra of PyTorch's CUDA builds without MAGMA: cuBLAS runs batches, cuSOLVER everything else. cuSOLVER's
// workspaces are not published, and not recorded.

// allocColumnMajor allocates column-major matrices.
func allocColumnMajor(t *tape, d trace.DType, shape ...int64) *tensor {
	n := len(shape)
	order := trace.WrapDims(n, nil)
	order[n-1], order[n-2] = n-2, n-1
	return t.AllocStrided(d, shape, trace.DenseStrides(shape, order))
}

// allocMatrices allocates matrices, column-major if columns is set, otherwise row-major.
func allocMatrices(t *tape, d trace.DType, columns bool, shape []int64) *tensor {
	if columns {
		return allocColumnMajor(t, d, shape...)
	}
	return t.Alloc(d, shape...)
}

// batchShape returns the batch dimensions of x (all but the last two), followed by the dimensions more.
func batchShape(x *tensor, more ...int64) []int64 {
	return slices.Concat(x.Shape()[:len(x.Shape())-2], more)
}

func matrixCount(x *tensor) int64 { return trace.Numel(batchShape(x)) }

func mT(x *tensor) *tensor { return x.Transpose(-2, -1) }

// allocPointerArrays allocates arrays with the addresses of a batch's matrices, which a kernel reads.
func allocPointerArrays(c *call, arrays int, batch int64) {
	for range arrays {
		c.Bind(c.Tape().Alloc(trace.I64, batch))
	}
}

// batchedBLAS records a cuBLAS kernel over a batch of matrices, which it reads through arrays of addresses.
func batchedBLAS(t *tape, arrays int, batch int64) {
	c := t.Begin("allocate_array")
	allocPointerArrays(c, arrays, batch)
	t.UseBLAS()
	c.Finish()
}

// emptyInfo allocates the info of a LAPACK factorization: one number per matrix of x, zero for success.
func emptyInfo(x *tensor) *tensor { return x.Tape().Alloc(trace.I32, batchShape(x)...) }

// checkInfo records _linalg_check_errors.
func checkInfo(x *tensor) {
	c := x.Tape().Begin("_linalg_check_errors", x)
	if len(x.Shape()) == 0 {
		c.Bind(c.Tape().Alloc(trace.Bool))
	}
	wrong := c.Bind(c.Tape().Alloc(trace.Bool))
	c.Tape().Launch(program.Reduction, x.Numel(), []*tensor{wrong}, []*tensor{x})
	c.Finish()
}

// checkedResult records the check of info and returns x, the result that belongs to info.
func checkedResult(c *call, x, info *tensor) *tensor {
	c.BindAll([]*tensor{x, info})
	checkInfo(info)
	return c.End(x)
}

// factorize records a kernel that factorizes x into outs.
func factorize(x *tensor, outs ...*tensor) {
	x.Tape().Launch(program.Matmul, x.Numel()*x.Size(-1), outs, []*tensor{x})
}

// largestBatchedLU is the matrix size from which on matrices are factorized one by one, not as a batch.
const largestBatchedLU = 512

// luInto records the LU factorization of x into lu.
func luInto(x *tensor, lu *tensor) {
	if batch, n := matrixCount(x), x.Size(-1); batch > 1 && n < largestBatchedLU && n == x.Size(-2) {
		batchedBLAS(x.Tape(), 1, batch)
	}
	factorize(x, lu)
}

// factorizeLU records an LU factorization with new results: LU, pivots and info.
func factorizeLU(c *call, x *tensor) (lu, pivots, info *tensor) {
	lu = c.Bind(allocColumnMajor(c.Tape(), x.DType(), x.Shape()...))
	pivots = c.Bind(c.Tape().Alloc(trace.I32, batchShape(x, min(x.Size(-1), x.Size(-2)))...))
	info = c.Bind(emptyInfo(x))
	luInto(x, lu)
	return lu, pivots, info
}

// luSolver is the algorithm that solves systems with a factorized matrix.
type luSolver int

const (
	luByCuBLAS luSolver = iota
	luByCuSOLVER
	luByTriangles
)

// luSolverFor returns the solver that PyTorch 2.11 was observed to choose (lu_solve_kernel) by the number of matrices,
// their size n, and their number k of right-hand sides.
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

// luSolveInPlace records a solver that replaces the right-hand sides in x by the solutions.
func luSolveInPlace(x *tensor, lu *tensor, adjoint bool) {
	t := x.Tape()
	batch, n := matrixCount(lu), lu.Size(-1)
	c := t.Begin("lu_solve", x, lu)
	switch luSolverFor(batch, n, x.Numel()/max(batch*n, 1), adjoint) {
	case luByCuBLAS:
		batchedBLAS(t, 2, batch)
	case luByCuSOLVER:
		c.Bind(t.Alloc(trace.I32))
	case luByTriangles:
		luSolveByTriangles(x, lu, adjoint)
	}
	t.Launch(program.Matmul, x.Numel()*n, []*tensor{x}, []*tensor{x, lu})
	c.Finish()
}

// luSolveByTriangles records a solver that permutes rows and then solves two triangular systems.
func luSolveByTriangles(x *tensor, lu *tensor, adjoint bool) {
	t := x.Tape()
	batch, n := matrixCount(lu), lu.Size(-1)
	c := t.Begin("lu_solve_triangular")
	perm := c.Bind(t.Arange(n))
	if batch > 1 {
		row := perm
		perm = c.Bind(t.Alloc(trace.I64, batchShape(lu, n)...))
		t.LaunchCopy(perm, row)
		c.Drop(row)
	}
	solve := func() {
		for range 2 {
			useTriangles(t, lu)
		}
	}
	if adjoint {
		solve()
	} else {
		row := c.Bind(t.Arange(n))
		inverse := c.Bind(t.Alloc(trace.I64, batchShape(lu, n)...))
		t.Launch(program.Index, inverse.Numel(), []*tensor{inverse}, []*tensor{perm, row})
	}
	y := c.Bind(allocColumnMajor(t, x.DType(), batchShape(lu, n, x.Numel()/max(batch*n, 1))...))
	t.LaunchCopy(y, x)
	if !adjoint {
		solve()
	}
	c.Finish()
}

// useTriangles records cuBLAS's triangular solvers; a few large systems are solved one by one.
func useTriangles(t *tape, a *tensor) {
	batch := matrixCount(a)
	if batch > 8 || a.Size(-1) < 64 {
		batchedBLAS(t, 2, batch)
		return
	}
	for range batch {
		t.UseBLAS()
	}
}

// luSolve records torch.linalg.lu_solve without autograd.
func luSolve(x *tensor, lu *tensor, adjoint bool) *tensor { return luSolveBy(x, lu, true, adjoint) }

func luSolveBy(x *tensor, lu *tensor, left, adjoint bool) *tensor {
	c := x.Tape().Begin("linalg_lu_solve", x, lu)
	y := c.Bind(allocMatrices(c.Tape(), x.DType(), left, x.Shape()))
	c.Tape().LaunchCopy(y, x)
	luSolveInPlace(y, lu, adjoint)
	return c.End(y)
}

// LinalgSolve records torch.linalg.solve(a, b, left=left): the solution x of a @ x = b, or of x @ a = b. b is a batch
// of vectors if it has one dimension less than a.
func LinalgSolve(a *tensor, b *tensor, left bool) *tensor {
	c := a.Tape().Begin("linalg_solve", a, b)
	x, info := LinalgSolveEx(a, b, left)
	return checkedResult(c, x, info)
}

// LinalgSolveEx records torch.linalg.solve_ex(a, b, left=left).
func LinalgSolveEx(a *tensor, b *tensor, left bool) (solution, info *tensor) {
	var x *tensor
	c := a.Tape().Begin("linalg_solve_ex", a, b)
	n := a.Size(-1)
	vector := len(b.Shape()) == 1 || slices.Equal(b.Shape(), a.Shape()[:len(a.Shape())-1])
	if vector {
		x = c.Tape().Alloc(a.DType(), batchShape(a, n)...)
	} else {
		x = allocMatrices(c.Tape(), a.DType(), left, slices.Concat(a.BatchShape(b), b.Shape()[len(b.Shape())-2:]))
	}
	c.Bind(x)
	lu, pivots, info := factorizeLU(c, a)
	if vector {
		rows := c.Bind(allocColumnMajor(c.Tape(), a.DType(), batchShape(a, n, 1)...))
		luSolveInPlace(rows, lu, false)
		c.Tape().LaunchCopy(x, rows)
		c.Drop(rows)
	} else {
		luSolveInPlace(x, lu, false)
	}
	x.SetGradFn("LinalgSolveExBackward0", inputs{a, b}, saves{a, lu, pivots, x}, func(w *backward) {
		ga, gb := solveGrads(w.Grad, w.Saved(1), w.Saved(3), left, vector, w.Needs(0))
		w.SetPair(ga, gb)
	})
	return c.EndPair(x, info)
}

// solveGrads records linalg_solve_backward.
func solveGrads(grad, lu, x *tensor, left, vector, wantA bool) (ga, gb *tensor) {
	c := grad.Tape().Begin("linalg_solve_backward", grad, lu, x)
	if vector {
		grad = c.Bind(grad.Unsqueeze(-1))
		x = c.Bind(x.Unsqueeze(-1))
	}
	gb = c.Bind(luSolveBy(grad, lu, left, true))
	if wantA {
		if left {
			ga = gb.MatmulUncast(mT(x)).Neg()
		} else {
			ga = mT(x).MatmulUncast(gb).Neg()
		}
		ga = c.Bind(ga)
	}
	if vector {
		gb = gb.Squeeze(-1)
	}
	return c.EndPair(ga, gb)
}

// LinalgInv records torch.linalg.inv(x): inv_ex, and a check of its info.
func LinalgInv(x *tensor) *tensor {
	c := x.Tape().Begin("linalg_inv", x)
	y, info := LinalgInvEx(x)
	return checkedResult(c, y, info)
}

// LinalgInvEx records torch.linalg.inv_ex(x), which solves x @ y = identity.
func LinalgInvEx(x *tensor) (y, info *tensor) {
	t := x.Tape()
	c := t.Begin("linalg_inv_ex", x)
	y = c.Bind(allocColumnMajor(t, x.DType(), x.Shape()...))
	info = c.Bind(emptyInfo(x))
	t.LaunchFill(y)
	t.NoGrad(func() {
		c := t.Begin("linalg_solve_ex", x)
		lu := c.Bind(allocColumnMajor(t, x.DType(), x.Shape()...))
		c.Bind(t.Alloc(trace.I32, batchShape(x, x.Size(-1))...))
		luInto(x, lu)
		luSolveInPlace(y, lu, false)
		c.Finish()
	})
	y.SetGradFn("LinalgInvExBackward0", inputs{x}, saves{y}, func(b *backward) {
		y := mT(b.Saved(0))
		b.Set(0, y.MatmulUncast(b.Grad.MatmulUncast(y)).Neg())
	})
	return c.EndPair(y, info)
}

// MatrixPower records torch.linalg.matrix_power(x, n) by repeated squaring, of the inverse if n is negative.
func MatrixPower(x *tensor, n int64) *tensor {
	c := x.Tape().Begin("linalg_matrix_power", x)
	switch {
	case n == 0:
		return c.End(x.ZerosLike())
	case n == 1:
		return c.End(x.Clone())
	case n < 0:
		x, n = c.Bind(LinalgInv(x)), -n
	}
	if n == 1 {
		return c.End(x)
	}
	if n == 3 {
		return c.End(x.Matmul(x).Matmul(x))
	}
	z, result := x, (*tensor)(nil)
	for first := true; n > 0; n /= 2 {
		if !first {
			z = c.Bind(z.Matmul(z))
		}
		first = false
		switch {
		case n%2 == 0:
		case result == nil:
			result = z
		default:
			result = c.Bind(result.Matmul(z))
		}
	}
	return c.End(result)
}
