package calibrate

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/planner"
)

// maxCondition is the condition number (of columns of length 1) above which columns count as dependent: the limit of
// Belsley, Kuh and Welsch, Regression Diagnostics, 1980, section 3.2.
const maxCondition = 30

// system is the linear system of one level. Each row has the bytes that are missing from the estimate of a run, and
// their standard error.
type system struct {
	terms []planner.Term
	// optional are terms that are also fitted if the rows determine them.
	optional []planner.Term
	// quantity describes, for messages, what the terms separate.
	quantity string
	rows     []equation
	batches  []int
}

type equation struct {
	factors planner.TermFactors
	missing float64
	sigma   float64
}

func (s *system) add(o Observation, factors planner.TermFactors, missing int64, sigma float64) {
	s.rows = append(s.rows, equation{factors, float64(missing), sigma})
	s.batches = append(s.batches, o.Sample.Batch)
}

// solution is the fitted values of terms and their covariance.
type solution struct {
	terms          []planner.Term
	values, stderr []float64
	covariance     matrix
	undetermined   []string
}

func (s *solution) correlation(i, j int) float64 {
	d := math.Sqrt(s.covariance[i][i] * s.covariance[j][j])
	if d == 0 {
		return 0
	}
	return min(1, max(-1, s.covariance[i][j]/d))
}

// solve fits the terms, and the optional terms if the rows determine them with one row to spare.
func (s *system) solve() (*solution, error) {
	terms := s.terms
	if k := s.condition(terms); k > maxCondition {
		return nil, &ConditionError{
			What:    s.quantity,
			Batches: slices.Compact(slices.Sorted(slices.Values(s.batches))), Condition: k,
		}
	}
	var undetermined []string
	for _, t := range s.optional {
		more := append(slices.Clone(terms), t)
		switch k := s.condition(more); {
		case len(s.rows) <= len(more):
			undetermined = append(undetermined,
				fmt.Sprintf("%v: needs %d runs, there are %d", t, len(more)+1, len(s.rows)))
		case k > maxCondition:
			undetermined = append(undetermined,
				fmt.Sprintf("%v: goes with the other terms in these runs (condition number %.0f)", t, k))
		default:
			terms = more
		}
	}
	solved, err := s.fit(terms)
	if err != nil {
		return nil, err
	}
	solved.undetermined = undetermined
	return solved, nil
}

// designMatrix returns the matrix of the terms' factors, with each row multiplied by a weight.
func (s *system) designMatrix(terms []planner.Term, weight func(equation) float64) matrix {
	a := newMatrix(len(s.rows), len(terms))
	for j, t := range terms {
		for i, r := range s.rows {
			a[j][i] = r.factors[t] * weight(r)
		}
	}
	return a
}

// condition returns the condition number of the unweighted design matrix, since the precision of measurements does not
// affect what a design can separate. It is infinite if there are fewer distinct rows than terms.
func (s *system) condition(terms []planner.Term) float64 {
	if len(s.rows) < len(terms) {
		return math.Inf(1)
	}
	return s.designMatrix(terms, func(equation) float64 { return 1 }).condition()
}

func (s *system) fit(terms []planner.Term) (*solution, error) {
	a := s.designMatrix(terms, func(r equation) float64 { return 1 / r.sigma })
	scale := a.normalize()
	b := lists.Map(s.rows, func(r equation) float64 { return r.missing / r.sigma })
	x, err := nnls(a, b)
	if err != nil {
		return nil, err
	}
	out := &solution{terms: terms, values: make([]float64, len(terms)), stderr: make([]float64, len(terms))}
	spread := s.residualSpread(a, x, b)
	if out.covariance, err = covariance(a, spread); err != nil {
		return nil, err
	}
	for j := range terms {
		out.values[j] = x[j] / scale[j]
		out.stderr[j] = math.Sqrt(out.covariance[j][j]) / scale[j]
	}
	return out, nil
}

// residualSpread returns the factor by which standard errors grow if the rows agree less than expected (Birge's ratio),
// using Student's t for so few rows; 1 if they agree.
func (s *system) residualSpread(a matrix, x, b []float64) float64 {
	freedom := len(b) - len(a)
	if freedom < 1 {
		return 1
	}
	ratio := a.residual(x, b).length() / math.Sqrt(float64(freedom))
	if ratio <= 1 {
		return 1
	}
	tail := mathext.InvRegIncBeta(float64(freedom)/2, 0.5, 2*(1-0.975))
	return ratio * math.Sqrt(float64(freedom)*(1-tail)/tail) / 1.96
}

// covariance returns the covariance of the scaled solution: spread² (aᵀa)⁻¹. Terms at zero are counted as free,
// which can only widen intervals.
func covariance(a matrix, spread float64) (matrix, error) {
	d := a.decompose()
	if !d.isDetermined(1e-8) {
		return nil, errDependent
	}
	c := newMatrix(len(a), len(a))
	for i := range a {
		for j := range a {
			for k, value := range d.values {
				c[i][j] += d.v[k][i] * d.v[k][j] * (spread * spread / (value * value))
			}
		}
	}
	return c, nil
}

// AdviseRun returns the batch size of the run that, together with the finished runs, best separates constant from
// growing memory. Of the candidates, in ascending order, it is the smallest that separates well enough, else the best;
// zero if none does.
func AdviseRun(ran, candidates []planner.Sample) int {
	best, lowest := 0, float64(maxCondition)
	for _, c := range candidates {
		s := &system{}
		for _, r := range append(slices.Clone(ran), c) {
			s.rows = append(s.rows, equation{factors: r.DeviceRow(), sigma: 1})
		}
		k := s.condition([]planner.Term{planner.ContextBytes, planner.DeviceSlack})
		if k < lowest {
			best, lowest = c.Batch, k
		}
		if k < maxCondition/3 {
			return c.Batch
		}
	}
	return best
}
