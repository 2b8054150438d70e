package step

import (
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/steptime"
)

// Evidence is what estimates go by besides recordings.
type Evidence struct {
	// Residuals say how far estimates are from PyTorch.
	Residuals Residuals
	// Learned is what calibration has learned; nil for nothing, which leaves the
	// shipped defaults.
	Learned Learned
}

// Residuals finds how far estimates are from PyTorch:
// [planner.Residuals], unless a test has its own.
type Residuals func(of planner.Subject) (allocated, reserved planner.Residual, err error)

// Learned corrects coefficients of a model on a board by what calibration has
// learned; an error ends the experiment.
type Learned func(gpu device.GPU, model string, c *planner.Coefficients) error

// Speeds finds the efficiencies of a board; [steptime.Assumed], unless
// calibration has learned better.
type Speeds func(gpu device.GPU) (steptime.Efficiency, error)
