package calibrate

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/floats"
	"pgregory.net/rapid"
)

func dense(rows [][]float64) Matrix {
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
			x, err := NNLS(dense(c.A), c.B)
			require.NoError(t, err)
			require.InDeltaSlice(t, c.X, x, 1e-9*(1+floats.Max(c.X)))
			require.InDelta(t, c.Residual, floats.Norm(dense(c.A).residual(x, c.B), 2), 1e-9*(1+c.Residual))
		})
	}
}

// At the solution no step into the feasible region goes downhill (the conditions of Karush, Kuhn and Tucker): the
// gradient is zero where x is positive and points outside where x is zero.
func TestNNLSSolutionsAreOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, n := rapid.IntRange(1, 8).Draw(t, "m"), rapid.IntRange(1, 5).Draw(t, "n")
		number := rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.IntRange(-9, 9).Draw(t, "x")) })
		a := Matrix(rapid.SliceOfN(rapid.SliceOfN(number, m, m), n, n).Draw(t, "a"))
		b := rapid.SliceOfN(number, m, m).Draw(t, "b")
		x, err := NNLS(a, b)
		require.NoError(t, err)
		r := a.residual(x, b)
		for j, v := range x {
			g := -floats.Dot(a[j], r)
			require.GreaterOrEqual(t, v, 0.0)
			require.GreaterOrEqual(t, g, -1e-8)
			if v > 1e-9 {
				require.InDelta(t, 0, g, 1e-8)
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

// Rotated columns are orthogonal. A column is solved by itself alone, and the inverse times the normal matrix is one.
func TestDecompositionsInvert(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, n := rapid.IntRange(1, 8).Draw(t, "m"), rapid.IntRange(1, 5).Draw(t, "n")
		number := rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.IntRange(-9, 9).Draw(t, "x")) })
		a := Matrix(rapid.SliceOfN(rapid.SliceOfN(number, m, m), n, n).Draw(t, "a"))
		d := decompose(a)
		for p, x := range d.rotated {
			for q, y := range d.rotated[:p] {
				require.InDelta(t, 0, floats.Dot(x, y), 1e-9, "columns %d and %d", p, q)
			}
		}
		if d.condition() > 1e5 {
			return
		}
		inverse := d.inverse()
		for p, x := range a {
			for q, solved := range d.solve(x) {
				want := 0.0
				if p == q {
					want = 1
				}
				require.InDelta(t, want, solved, 1e-6)
				normal := 0.0
				for k, column := range a {
					normal += inverse[q][k] * floats.Dot(column, x)
				}
				require.InDelta(t, want, normal, 1e-4)
			}
		}
	})
}
