package aten

import "errors"

// linearAlgebra are factorizations of matrices and what is made of them. What cuSOLVER asks
// for as its workspace is not published and is left out.
var linearAlgebra = family{
	"linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> " +
		"Tensor": one(func(a *Args) *tensor {
		return a.first(0).SolveTriangular(a.Tensor("B"), a.Bool("left"))
	}),
	"triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False) -> " +
		"(Tensor solution, Tensor cloned_coefficient)": pair(func(a *Args) (x, y *tensor) {
		return a.first(0).TriangularSolve(a.Tensor("A"))
	}),
	"linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).LinalgSolve(a.Tensor("B"), a.Bool("left"))
	}),
	"linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result, Tensor " +
		"info)": pair(func(a *Args) (x, y *tensor) {
		return a.first(0).LinalgSolveEx(a.Tensor("B"), a.Bool("left"))
	}),
	"linalg_inv(Tensor A) -> Tensor": unary((*tensor).LinalgInv),
	"inverse(Tensor self) -> Tensor": unary((*tensor).LinalgInv),
	"linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)": pair(
		func(a *Args) (x, y *tensor) {
			return a.first(0).LinalgInvEx()
		}),
	"linalg_matrix_power(Tensor self, int n) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).MatrixPower(a.Int("n"))
	}),
	"matrix_power(Tensor self, int n) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).MatrixPower(a.Int("n"))
	}),
	"linalg_det(Tensor A) -> Tensor": unary((*tensor).LinalgDet),
	"det(Tensor self) -> Tensor":     unary((*tensor).LinalgDet),
	"linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)": pair(func(a *Args) (x, y *tensor) {
		return a.first(0).LinalgSlogDet()
	}),
	"slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)": pair(func(a *Args) (x, y *tensor) {
		return a.first(0).LinalgSlogDet()
	}),
	"logdet(Tensor self) -> Tensor":                               unary((*tensor).LogDet),
	"linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor": unary((*tensor).Cholesky),
	"cholesky(Tensor self, bool upper=False) -> Tensor":           unary((*tensor).Cholesky),
	"linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)": pair(
		func(a *Args) (x, y *tensor) {
			return a.first(0).CholeskyEx()
		}),
	"linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor pivots, " +
		"Tensor info)": several(func(a *Args) []*tensor {
		lu, pivots, info := a.first(0).LUFactorEx()
		return []*tensor{lu, pivots, info}
	}),
	"linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)": pair(func(a *Args) (x, y *tensor) {
		return a.first(0).LUFactor()
	}),
	"linalg_qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)": pair(func(a *Args) (q, r *tensor) {
		if a.Text("mode") == "r" {
			a.Tape().Raise(errors.New("linalg_qr is described with its Q, not for mode='r'"))
		}
		return a.first(0).LinalgQR(a.Text("mode") == "complete")
	}),
	"qr(Tensor self, bool some=True) -> (Tensor Q, Tensor R)": pair(func(a *Args) (q, r *tensor) {
		return a.first(0).LinalgQR(!a.Bool("some"))
	}),
	"linalg_eigh(Tensor self, str UPLO='L') -> (Tensor eigenvalues, Tensor eigenvectors)": pair(
		func(a *Args) (x, y *tensor) {
			return a.first(0).LinalgEigh()
		}),
	"linalg_eigvalsh(Tensor self, str UPLO='L') -> Tensor":    unary((*tensor).LinalgEigvalsh),
	"linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor": unary((*tensor).LinalgSVDVals),
	"linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)": several(
		func(a *Args) []*tensor {
			return svd(a.first(0), a.Bool("full_matrices"))
		}),
	"svd(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)": several(
		func(a *Args) []*tensor {
			out := svd(a.first(0), !a.Bool("some"))
			out[2] = out[2].Transpose(-2, -1)
			return out
		}),
}

func svd(x *tensor, full bool) []*tensor {
	u, s, vh := x.LinalgSVD(full)
	return []*tensor{u, s, vh}
}
