package calibration

import (
	"fmt"
	"math"
	"slices"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/calibrate"
)

// Limits for runs that coefficients are fitted to. The replay of a step lacks only memory that libraries allocate
// outside of PyTorch. Runs that differ by more, or that no coefficients explain together, measured something else.
const (
	// MaxReplay limits the difference of allocated bytes between a replay and a run, as a share of the run's bytes.
	// MaxFitted limits the difference between the calibrated estimate and the run in the same way.
	MaxReplay = 0.25
	MaxFitted = 0.10
	// hiddenBytes is a difference in bytes that is always accepted: libraries' workspaces in a small model.
	hiddenBytes = 128 << 20
)

// deviationError returns the error about a run that differs too much from the case that its label names.
func deviationError(label, what string, observed, says int64, bound float64) error {
	return input.Errorf("%s: %s are %s, but the estimate is %s (%.0f %% off, more than %.0f %%); check model, batch "+
		"size and settings, and that the run has a complete step, or use it nevertheless with --force",
		label, what, bytesize.Format(observed), bytesize.Format(says), 100*absoluteError(observed, says), 100*bound)
}

func absoluteError(observed, says int64) float64 { return math.Abs(relativeError(says, observed)) }

// exceedsBound reports whether a computed number of bytes differs from the observed one by more than a bound.
func exceedsBound(observed, says int64, bound float64) bool {
	return observed > 0 && absoluteError(observed, says) > bound && math.Abs(float64(says-observed)) > hiddenBytes
}

// checkReplays returns an error if runs differ too much from the replays of their cases.
func checkReplays(seen []calibrate.Observation) error {
	for _, o := range seen {
		switch {
		case exceedsBound(o.Allocated, o.Sample.Allocated(), MaxReplay):
			return deviationError(o.Label, "its allocated bytes", o.Allocated, o.Sample.Allocated(), MaxReplay)
		case exceedsBound(o.Reserved, o.Sample.Reserved, MaxReplay) && o.Allocated == 0:
			return deviationError(o.Label, "its reserved bytes", o.Reserved, o.Sample.Reserved, MaxReplay)
		}
	}
	return nil
}

// checkFit returns an error if the fitted coefficients do not explain the runs.
func checkFit(points []calibrate.Point) error {
	for _, p := range points {
		if exceedsBound(p.Observed, p.After, MaxFitted) {
			return deviationError(p.Label, "even after calibration its bytes", p.Observed, p.After, MaxFitted)
		}
	}
	return nil
}

// spareRuns is the number of runs that calibration needs beyond the number of coefficients. Each run is held out once
// and predicted by coefficients fitted to the others; that fit also needs more runs than coefficients.
const spareRuns = 3

// termLevels are the groups of coefficients that are fitted together, each to the runs that measured its kind of bytes.
var termLevels = [][]planner.Term{
	{planner.LibraryWorkspace, planner.AllocatedSlack},
	{planner.ReservedSlack},
	{planner.ContextBytes, planner.DeviceSlack, planner.CommunicationShare},
}

// checkRunCount returns an error if coefficients were fitted to too few runs.
func checkRunCount(r *calibrate.Result) error {
	for _, level := range termLevels {
		n := len(lists.Filter(r.Terms, func(t planner.Term) bool { return slices.Contains(level, t) }))
		if n > 0 && len(r.Points) < n+spareRuns {
			return &TooFewRunsError{input.Errorf("%d runs are too few for %d coefficients, because each run is "+
				"compared with a fit to the others; give at least %d runs (a sweep of more batch sizes), or use "+
				"these nevertheless with --force", len(r.Points), n, n+spareRuns)}
		}
	}
	return nil
}

// maxContext is an upper bound for CUDA's context and the kernels of PyTorch's libraries on any GPU, in bytes.
const maxContext = 4 << 30

// impossibleError returns the error about a coefficient whose value is impossible for a GPU.
func impossibleError(t planner.Term, value, most string) error {
	return input.Errorf("%s would be %s, more than the possible %s; check that the runs are of this model and that "+
		"no other process used the GPU, or use them nevertheless with --force", t, value, most)
}

// checkPlausible returns an error for coefficients that are impossible for a GPU: contexts, or slack above the
// difference between a run and its replay.
func checkPlausible(r *calibrate.Result) error {
	for _, t := range r.Terms {
		v := r.Coefficients.Term(t).Value
		switch {
		case t == planner.ContextBytes && v > maxContext:
			return impossibleError(t, bytesize.Format(int64(v)), bytesize.Format(maxContext))
		case (t == planner.AllocatedSlack || t == planner.ReservedSlack || t == planner.DeviceSlack) && v > MaxReplay:
			return impossibleError(t, fmt.Sprintf("%.0f %%", 100*v), fmt.Sprintf("%.0f %%", 100*MaxReplay))
		}
	}
	return nil
}
