package step

import (
	"errors"

	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/coefficients"
	"github.com/vprof/vprof/profiler/planner/steptime"
)

// Evidence is what estimates are made of: trials, how far their replays are from PyTorch,
// and calibrated coefficients.
type Evidence struct {
	// Trials runs them; nil is [Local], this process.
	Trials Executor
	// Residuals returns how far replays are from PyTorch.
	Residuals Residuals
	// Calibrated are coefficients that vprof calibrate has fitted; nil for none,
	// which leaves the shipped defaults.
	Calibrated *coefficients.Selection
	// Missed, if not nil, is called for a board that Calibrated has no coefficients of.
	Missed func(error)
}

// Residuals finds how far estimates are from PyTorch:
// [planner.Residuals], unless a test has its own.
type Residuals func(of planner.Subject) (allocated, reserved planner.Residual, err error)

// Coefficients are the planner's coefficients for a model and release on a board: the
// shipped ones, corrected by calibration. The error is a [*coefficients.NoEntryError].
func (e Evidence) Coefficients(gpu device.GPU, of planner.Subject) (planner.Coefficients, error) {
	allocated, reserved, err := e.Residuals(of)
	if err != nil {
		return planner.Coefficients{}, err
	}
	c := planner.Coefficients{Context: planner.ContextOf(gpu), Allocated: allocated, Reserved: reserved}
	err = e.Calibrated.Correct(gpu.Name, of.Model, &c)
	var none *coefficients.NoEntryError
	if errors.As(err, &none) && none.Unknown() {
		if e.Missed != nil {
			e.Missed(err)
		}
		err = nil
	}
	return c, err
}

// Speed is how much of its peak rates a board reaches with a model: what calibration
// has found, else [steptime.Assumed]. The error is a [*coefficients.NoEntryError].
func (e Evidence) Speed(gpu device.GPU, model string) (steptime.Efficiency, error) {
	return e.Calibrated.Speed(gpu.Name, model)
}
