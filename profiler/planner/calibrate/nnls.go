package calibrate

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// errNoEnd says that the active set cycles, which rounding errors cause where columns are nearly dependent.
var errNoEnd = errors.New("calibrate: the least squares found no end; the columns hardly differ")

// NNLS finds the x with no negative element for which |a·x - b| is smallest, by the active-set method of Lawson and
// Hanson, Solving Least Squares Problems, 1974, chapter 23. Columns should be of like size; they need not be
// independent.
func NNLS(a Matrix, b []float64) ([]float64, error) {
	longest, n := 0.0, len(a)
	for _, column := range append(slices.Clone(a), b) {
		if len(column) != len(b) {
			return nil, fmt.Errorf("calibrate: %d rows and %d right-hand sides", len(column), len(b))
		}
		for _, v := range column {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("calibrate: %v in the least squares", v)
			}
		}
	}
	for _, column := range a {
		longest = max(longest, floats.Norm(column, 1))
	}
	s := &activeSet{a: a, b: b, x: make([]float64, n), passive: make([]bool, n)}
	// The tolerance of the reference implementations: rounding of a gradient.
	tolerance := 10 * 0x1p-52 * longest * float64(max(len(b), n))
	for range 30 * n {
		j := s.steepest(tolerance)
		if j < 0 {
			return s.x, nil
		}
		s.passive[j] = true
		s.settle(j)
	}
	return nil, errNoEnd
}

// activeSet is the state of the method: x is zero outside the passive columns and the least squares solution over them.
type activeSet struct {
	a       Matrix
	b, x    []float64
	passive []bool
	// refused are columns that depend on passive ones.
	refused []int
}

// steepest returns the column outside the passive set that lowers the residual most, or -1 if none does.
func (s *activeSet) steepest(tolerance float64) int {
	r := s.a.residual(s.x, s.b)
	best, most := -1, tolerance
	for j, column := range s.a {
		if w := floats.Dot(column, r); !s.passive[j] && w > most && !slices.Contains(s.refused, j) {
			best, most = j, w
		}
	}
	return best
}

// settle solves over the passive columns, the newest of which is j, and removes the columns that would become negative,
// until none would.
func (s *activeSet) settle(j int) {
	for newest := true; ; newest = false {
		z, ok := s.solve()
		if !ok || newest && z[j] <= 0 {
			// The column depends on the others, so that only rounding made it look like one to take.
			s.passive[j] = false
			s.refused = append(s.refused, j)
			return
		}
		step, first := 1.0, -1
		for i, v := range z {
			if s.passive[i] && v <= 0 {
				if part := s.x[i] / (s.x[i] - v); first < 0 || part < step {
					step, first = part, i
				}
			}
		}
		for i := range s.x {
			s.x[i] = max(0, s.x[i]+step*(z[i]-s.x[i]))
		}
		if first >= 0 { // the one that reaches zero leaves
			s.passive[first], s.x[first] = false, 0
			continue
		}
		s.refused = nil
		return
	}
}

// solve returns the least squares solution over the passive columns; false if they depend on one another.
func (s *activeSet) solve() ([]float64, bool) {
	var columns []int
	var sub Matrix
	for j, in := range s.passive {
		if in {
			columns, sub = append(columns, j), append(sub, s.a[j])
		}
	}
	z := make([]float64, len(s.x))
	if len(columns) == 0 {
		return z, true
	}
	d := decompose(sub)
	if math.IsInf(d.condition(), 1) {
		return nil, false
	}
	for k, v := range d.solve(s.b) {
		z[columns[k]] = v
	}
	return z, true
}
