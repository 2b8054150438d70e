package judge

import (
	"errors"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/profiler/planner"
)

// Safe reports whether a batch of a search is safe. The search begins at one sample, or at two if PyTorch refuses one,
// as batch norm does.
func Safe(s *planner.Search, batch int) (bool, error) {
	safe, _, err := safeAt(s, batch)
	return safe, err
}

func safeAt(s *planner.Search, batch int) (safe bool, at int, err error) {
	safe, at, err = s.Safe(batch)
	if errors.As(err, new(*step.RefusedError)) && batch > 1 && s.From < 2 {
		s.From = 2
		return s.Safe(batch)
	}
	return safe, at, err
}

// Largest returns the largest safe batch of a search; zero if none is.
func Largest(s *planner.Search) (int, error) {
	largest, err := s.Largest()
	if errors.As(err, new(*step.RefusedError)) && s.To > 1 {
		s.From = 2
		return s.Largest()
	}
	return largest, err
}
