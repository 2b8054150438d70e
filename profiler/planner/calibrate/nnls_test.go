package calibrate

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"
)

func dense(rows [][]float64) *mat.Dense {
	a := mat.NewDense(len(rows), len(rows[0]), nil)
	for i, r := range rows {
		a.SetRow(i, r)
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
			x, err := NNLS(dense(c.A), c.B)
			require.NoError(t, err)
			require.InDeltaSlice(t, c.X, x, 1e-9*(1+floats.Max(c.X)))
			require.InDelta(t, c.Residual, residual(dense(c.A), x, c.B), 1e-9*(1+c.Residual))
		})
	}
}

func residual(a *mat.Dense, x, b []float64) float64 {
	var r mat.VecDense
	r.MulVec(a, mat.NewVecDense(len(x), x))
	r.SubVec(&r, mat.NewVecDense(len(b), b))
	return mat.Norm(&r, 2)
}

// At the solution no step into the feasible region goes downhill (the conditions of Karush, Kuhn and Tucker): the
// gradient is zero where x is positive and points outside where x is zero.
func TestNNLSSolutionsAreOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, n := rapid.IntRange(1, 8).Draw(t, "m"), rapid.IntRange(1, 5).Draw(t, "n")
		number := rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.IntRange(-9, 9).Draw(t, "x")) })
		data := rapid.SliceOfN(number, m*n, m*n).Draw(t, "a")
		b := rapid.SliceOfN(number, m, m).Draw(t, "b")
		a := mat.NewDense(m, n, data)
		x, err := NNLS(a, b)
		require.NoError(t, err)
		var r, g mat.VecDense
		r.MulVec(a, mat.NewVecDense(n, x))
		r.SubVec(&r, mat.NewVecDense(m, b))
		g.MulVec(a.T(), &r)
		for j, v := range x {
			require.GreaterOrEqual(t, v, 0.0)
			require.GreaterOrEqual(t, g.AtVec(j), -1e-8)
			if v > 1e-9 {
				require.InDelta(t, 0, g.AtVec(j), 1e-8)
			}
		}
	})
}

func TestNNLSRefusesWhatIsNoNumber(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1)} {
		_, err := NNLS(dense([][]float64{{1}}), []float64{v})
		require.ErrorContains(t, err, "in the least squares")
		_, err = NNLS(dense([][]float64{{v}}), []float64{1})
		require.ErrorContains(t, err, "in the least squares")
	}
	_, err := NNLS(dense([][]float64{{1}}), []float64{1, 2})
	require.ErrorContains(t, err, "1 rows and 2 right-hand sides")
}
