package aten

import "errors"

// linearAlgebra are factorizations of matrices and what is made of them. What cuSOLVER asks
// for as its workspace is not published and is left out.
var linearAlgebra = family{
	"linalg_solve_triangular":          with((*tensor).SolveTriangular, "B", "left"),
	"triangular_solve":                 (*tensor).TriangularSolve,
	"linalg_solve":                     (*tensor).LinalgSolve,
	"linalg_solve_ex":                  (*tensor).LinalgSolveEx,
	"linalg_inv inverse":               (*tensor).LinalgInv,
	"linalg_inv_ex":                    (*tensor).LinalgInvEx,
	"linalg_matrix_power matrix_power": (*tensor).MatrixPower,
	"linalg_det det":                   (*tensor).LinalgDet,
	"linalg_slogdet slogdet":           (*tensor).LinalgSlogDet,
	"logdet":                           (*tensor).LogDet,
	"linalg_cholesky cholesky":         (*tensor).Cholesky,
	"linalg_cholesky_ex":               (*tensor).CholeskyEx,
	"linalg_lu_factor":                 (*tensor).LUFactor,
	"linalg_qr": func(a *Args) (q, r *tensor) {
		if a.Text("mode") == "r" {
			a.Tape().Raise(errors.New("linalg_qr is described with its Q, not for mode='r'"))
		}
		return a.first(0).LinalgQR(a.Text("mode") == "complete")
	},
	"qr":                  func(a *Args) (q, r *tensor) { return a.first(0).LinalgQR(!a.Bool("some")) },
	"linalg_eigh":         (*tensor).LinalgEigh,
	"linalg_eigvalsh":     (*tensor).LinalgEigvalsh,
	"linalg_svdvals":      (*tensor).LinalgSVDVals,
	"linalg_lu_factor_ex": (*tensor).LUFactorEx,
	"linalg_svd":          (*tensor).LinalgSVD,
	"svd": func(a *Args) (u, s, v *tensor) {
		u, s, vh := a.first(0).LinalgSVD(!a.Bool("some"))
		return u, s, vh.Transpose(-2, -1)
	},
}
