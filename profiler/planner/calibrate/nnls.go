package calibrate

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// errDependent reports that columns are so nearly dependent that rounding errors determine the solution.
var errDependent = errors.New("the runs are too similar to determine the coefficients; add runs of other batch sizes")

// nnls finds the x with no negative element for which |a·x - b| is smallest. Its positive elements solve the least
// squares over their columns alone, so nnls solves every subset of the few columns and returns the best solution.
func nnls(a matrix, b vector) (vector, error) {
	for _, column := range append(slices.Clone(a), b) {
		for _, v := range column {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("calibration computed with the impossible number %v; check the measured bytes",
					v)
			}
		}
	}
	best, least := make(vector, len(a)), b.length()
	for subset := 1; subset < 1<<len(a); subset++ {
		var some matrix
		for j, column := range a {
			if subset>>j&1 == 1 {
				some = append(some, column)
			}
		}
		d := some.decompose()
		if !d.isDetermined(1e-13) {
			continue
		}
		x := d.solve(b)
		if left := some.residual(x, b).length(); slices.Min(x) >= 0 && left < least {
			least = left
			for j := range a {
				if best[j] = 0; subset>>j&1 == 1 {
					best[j], x = x[0], x[1:]
				}
			}
		}
	}
	return best, nil
}
