package coefficients

import (
	"errors"
	"fmt"

	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/steptime"
)

// A Selection is the coefficients that estimates are corrected by: the entries of a
// file, of which boards and models have their own. It is plain data, so that a job can
// carry it to another machine. Nil is no correction.
type Selection struct {
	Entries []Entry `json:"entries"`
	// Name is the one entry to go by; empty is that of the board and model.
	Name string `json:"name,omitempty"`
}

// Correct corrects the coefficients of a model on a board. The error is a
// [*NoEntryError]; if it is [NoEntryError.Unknown], the defaults stand.
func (s *Selection) Correct(gpu, model string, c *planner.Coefficients) error {
	if s == nil {
		return nil
	}
	e, err := s.find(gpu, model)
	if err != nil {
		return err
	}
	e.Apply(model, c)
	return nil
}

// Speed is how much of a board's peak rates each class of kernel reaches. What no
// entry of the board has is as [steptime.Assumed]. The error is a [*NoEntryError].
func (s *Selection) Speed(gpu, model string) (steptime.Efficiency, error) {
	speed := steptime.Assumed()
	if s == nil {
		return speed, nil
	}
	e, err := s.find(gpu, model)
	var none *NoEntryError
	switch {
	case errors.As(err, &none) && len(none.Found) == 0:
		return speed, nil
	case err != nil:
		return speed, fmt.Errorf("efficiency: %w", err)
	}
	e.Speed(&speed)
	return speed, nil
}

func (s *Selection) find(gpu, model string) (*Entry, error) {
	f := File{Entries: s.Entries}
	return f.Find(gpu, model, s.Name)
}
