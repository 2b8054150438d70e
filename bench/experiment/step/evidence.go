package step

import (
	"errors"
	"fmt"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/coefficients"
	"github.com/vprof/vprof/profiler/planner/steptime"
)

// Evidence is the input of estimates besides the case: an executor of trials, errors of replays, and coefficients.
type Evidence struct {
	// Trials runs the trials; nil is [Local], which runs them in this process.
	Trials Executor
	// Residuals returns the errors of earlier replays, compared with PyTorch.
	Residuals ResidualsFunc
	// Calibrated are coefficients that vprof calibrate has fitted; nil for the shipped defaults.
	Calibrated *coefficients.Selection
	// OnMissing, if not nil, is called for a GPU without coefficients in Calibrated.
	OnMissing func(error)
	// MeasuredSpeed is the speed from a step that the user timed, which replaces the calibrated one; nil for none.
	MeasuredSpeed *steptime.Efficiency
	NoKernels     bool // leaves launches of kernels out of recordings
	// stepCounts is shared by all setups derived from one; with [Evidence.WithSharedSteps], by the setups of all GPUs.
	stepCounts *stepCounts
}

// WithSharedSteps returns the evidence with an executor that shares recordings and replays among GPUs. An evidence that
// already has an executor keeps it.
func (e Evidence) WithSharedSteps(gpus []device.GPU) Evidence {
	e.stepCounts = &stepCounts{}
	if e.Trials == nil && len(gpus) > 1 {
		e.Trials = &CachedExecutor{GPUs: gpus}
	}
	return e
}

// ResidualsFunc returns the errors of estimates compared with PyTorch: [planner.Residuals], unless a test replaces it.
type ResidualsFunc func(of planner.ResidualSubject) (allocated, reserved planner.Residual, err error)

// Coefficients returns the planner's coefficients for a model and release on a GPU: the calibrated ones, else the
// defaults. The error is a [*coefficients.NoEntryError].
func (e Evidence) Coefficients(gpu device.GPU, of planner.ResidualSubject) (planner.Coefficients, error) {
	allocated, reserved, err := e.Residuals(of)
	if err != nil {
		return planner.Coefficients{}, err
	}
	c := planner.Coefficients{
		Context: planner.ContextOf(gpu), BareContext: gpu.HasBareContext, Libraries: planner.LibrariesOf(gpu),
		Allocated: allocated, Reserved: reserved,
	}
	err = e.Calibrated.Apply(gpu.Name, of.Model, &c)
	if none, ok := errors.AsType[*coefficients.NoEntryError](err); ok && none.Name == "" && len(none.Found) == 0 {
		if e.OnMissing != nil {
			e.OnMissing(err)
		}
		err = nil
	}
	return c, err
}

// Speed returns the share of a GPU's peak rates that a model reaches: from calibration, else
// [steptime.DefaultEfficiency]. The error is a [*coefficients.NoEntryError].
func (e Evidence) Speed(gpu device.GPU, model string) (steptime.Efficiency, error) {
	if e.MeasuredSpeed != nil {
		return *e.MeasuredSpeed, nil
	}
	return e.Calibrated.Speed(gpu.Name, model)
}

// IsRefused reports whether an error means that PyTorch or the model refuses the case.
func IsRefused(err error) bool {
	return errors.As(err, new(*RefusedError)) || errors.As(err, new(*models.CaseError))
}

// A RefusedError reports that PyTorch would raise an error instead of running a case, with PyTorch's message.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }

// Usage marks the error as bad input.
func (*RefusedError) Usage() bool { return true }

// SharedGPUWarnings returns warnings about software that shares the device, visible to the driver or not.
func SharedGPUWarnings(d device.Device) []report.Warning {
	var all []report.Warning
	if o, ok := d.(device.Observer); ok && !o.Baseline().OthersKnown {
		b := o.Baseline()
		all = append(all, report.Warning{
			What: fmt.Sprintf("what other processes hold of %s is not known, since NVML does not tell: %s are taken "+
				"for the context and %s for theirs", d.Name(), bytesize.Format(b.Context), bytesize.Format(b.Others)),
			Hint: "nothing is learned from such runs (calibrate); in a container, start it with " +
				"NVIDIA_DRIVER_CAPABILITIES=compute,utility",
		})
	}
	if s, ok := d.(device.SharingReporter); ok {
		for _, way := range s.SharingSoftware() {
			all = append(all, report.Warning{What: way})
		}
	}
	return all
}

// WarnedProcesses is the set of process IDs on a device for which a warning was given.
type WarnedProcesses map[int]bool

// Warnings returns a warning for each other process on the device that has none yet. Those in seen may have ended.
func (n *WarnedProcesses) Warnings(d device.Device, seen ...device.Neighbor) []report.Warning {
	if o, ok := d.(device.Observer); ok {
		seen = append(seen, o.Neighbors()...)
	}
	if *n == nil {
		*n = WarnedProcesses{}
	}
	var all []report.Warning
	for _, p := range seen {
		if (*n)[p.PID] {
			continue
		}
		(*n)[p.PID] = true
		all = append(all, report.Warning{
			What: fmt.Sprintf("%s is also used by %v", d.Name(), p),
			Hint: "what fits depends on it; end it and try again to be sure",
		})
	}
	return all
}
