package calibrate

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"
)

func dense(rows [][]float64) matrix {
	a := newMatrix(len(rows), len(rows[0]))
	for i, r := range rows {
		for j, v := range r {
			a[j][i] = v
		}
	}
	return a
}

// The file says which version of SciPy solved the cases.
func TestNNLSAgreesWithSciPy(t *testing.T) {
	data, err := os.ReadFile("testdata/nnls.json")
	require.NoError(t, err)
	var f struct {
		Source string
		Cases  []struct {
			Name     string
			A        [][]float64
			B, X     []float64
			Residual float64
		}
	}
	require.NoError(t, json.Unmarshal(data, &f))
	require.Len(t, f.Cases, 15)
	for _, c := range f.Cases {
		t.Run(c.Name, func(t *testing.T) {
			x, err := nnls(dense(c.A), c.B)
			require.NoError(t, err)
			require.InDeltaSlice(t, c.X, x, 1e-9*(1+floats.Max(c.X)))
			require.InDelta(t, c.Residual, dense(c.A).residual(x, c.B).length(), 1e-9*(1+c.Residual))
		})
	}
}

// At the solution no step into the feasible region goes downhill (the conditions of Karush, Kuhn and Tucker): the
// gradient is zero where x is positive and points outside where x is zero.
func TestNNLSSolutionsAreOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, n := rapid.IntRange(1, 8).Draw(t, "m"), rapid.IntRange(1, 5).Draw(t, "n")
		number := rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.IntRange(-9, 9).Draw(t, "x")) })
		column := rapid.SliceOfN(number, m, m)
		b := column.Draw(t, "b")
		a := make(matrix, n)
		for j := range a {
			a[j] = column.Draw(t, "column")
		}
		x, err := nnls(a, b)
		require.NoError(t, err)
		for j, r := 0, a.residual(x, b); j < n; j++ {
			downhill := a[j].dot(r)
			require.GreaterOrEqual(t, x[j], 0.0)
			require.LessOrEqual(t, downhill, 1e-8)
			if x[j] > 1e-9 {
				require.InDelta(t, 0, downhill, 1e-8)
			}
		}
	})
}

func TestNNLSRefusesWhatIsNoNumber(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1)} {
		_, err := nnls(dense([][]float64{{1}}), []float64{v})
		require.ErrorContains(t, err, "calibration computed with the impossible number")
		_, err = nnls(dense([][]float64{{v}}), []float64{1})
		require.ErrorContains(t, err, "calibration computed with the impossible number")
	}
}

// The decomposition of a matrix gives the matrix again, and LAPACK computes the same singular values.
func TestDecompositionsAgreeWithAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, n := rapid.IntRange(1, 8).Draw(t, "m"), rapid.IntRange(1, 5).Draw(t, "n")
		column := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), m, m)
		a, same := make(matrix, n), mat.NewDense(m, n, nil)
		for j := range a {
			a[j] = column.Draw(t, "column")
			same.SetCol(j, a[j])
		}
		d := a.decompose()
		var svd mat.SVD
		require.True(t, svd.Factorize(same, mat.SVDNone))
		want, got := svd.Values(nil), slices.Sorted(slices.Values(d.values))
		slices.Reverse(got)
		require.InDeltaSlice(t, want, got[:min(m, n)], 1e-9*(1+want[0]))
		for j, c := range a {
			for i, v := range c {
				for k := range d.u {
					v -= d.u[k][i] * d.v[k][j]
				}
				require.InDelta(t, 0, v, 1e-9*(1+want[0]))
			}
		}
	})
}
