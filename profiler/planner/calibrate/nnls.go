package calibrate

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// errNoEnd reports that the active set cycles, which rounding errors cause where columns are nearly dependent.
var errNoEnd = errors.New("calibrate: the least squares do not converge; the columns hardly differ")

// NNLS finds the x with no negative element for which |a·x - b| is smallest, by the active-set method of Lawson and
// Hanson, Solving Least Squares Problems, 1974, chapter 23. Columns should be of like size; they need not be
// independent.
func NNLS(a *mat.Dense, b []float64) ([]float64, error) {
	m, n := a.Dims()
	if len(b) != m {
		return nil, fmt.Errorf("calibrate: %d rows and %d right-hand sides", m, len(b))
	}
	for _, v := range slices.Concat(a.RawMatrix().Data, b) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("calibrate: %v in the least squares", v)
		}
	}
	s := &activeSet{a: a, b: mat.NewVecDense(m, slices.Clone(b)), x: make([]float64, n), passive: make([]bool, n)}
	// The tolerance of the reference implementations: rounding of a gradient.
	tolerance := 10 * 0x1p-52 * mat.Norm(a, 1) * float64(max(m, n))
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
	a       *mat.Dense
	b       *mat.VecDense
	x       []float64
	passive []bool
	// refused are columns that depend on passive ones.
	refused []int
}

// steepest returns the column outside the passive set that lowers the residual most, or -1 if none does.
func (s *activeSet) steepest(tolerance float64) int {
	var r, w mat.VecDense
	r.MulVec(s.a, mat.NewVecDense(len(s.x), s.x))
	r.SubVec(s.b, &r)
	w.MulVec(s.a.T(), &r)
	best := -1
	for j := range s.x {
		if !s.passive[j] && w.AtVec(j) > tolerance && !slices.Contains(s.refused, j) &&
			(best < 0 || w.AtVec(j) > w.AtVec(best)) {
			best = j
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
	for j, in := range s.passive {
		if in {
			columns = append(columns, j)
		}
	}
	z := make([]float64, len(s.x))
	m, _ := s.a.Dims()
	switch {
	case len(columns) == 0:
		return z, true
	case len(columns) > m:
		return nil, false
	}
	sub := mat.NewDense(m, len(columns), nil)
	for k, j := range columns {
		sub.SetCol(k, mat.Col(nil, j, s.a))
	}
	var qr mat.QR
	qr.Factorize(sub)
	if qr.Cond() > 1e13 {
		return nil, false
	}
	var part mat.VecDense
	if err := qr.SolveVecTo(&part, false, s.b); err != nil {
		return nil, false
	}
	for k, j := range columns {
		z[j] = part.AtVec(k)
	}
	return z, true
}
