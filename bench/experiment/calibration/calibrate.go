// Package calibration fits the planner's coefficients to observed runs, and lists and compares coefficients files.
package calibration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/calibrate"
	"github.com/vprof/vprof/profiler/planner/coefficients"
	"github.com/vprof/vprof/profiler/planner/steptime"
)

// A Calibration is the input and the settings of a fit of coefficients to observed runs.
type Calibration struct {
	Models    *models.Registry
	Residuals step.ResidualsFunc
	// Trials runs the trials; nil runs them in this process.
	Trials step.Executor
	Runs   []ObservedRun
	Inputs []coefficients.Input
	// Name is the name of the new entry in the coefficients file. An empty name becomes the GPU and the software stack.
	Name string
	// Stack, if not empty, replaces the software stack that the runs name.
	Stack coefficients.Stack
	// Pool allows runs of several models to share one set of coefficients.
	Pool bool
	// Force accepts runs that differ from their replays by more than [MaxReplay] or [MaxFitted], too few runs, and
	// coefficients that are impossible for a GPU.
	Force bool
	Tool  report.Tool
	Now   time.Time
}

// Run fits coefficients to the runs. The error is bad input if the runs do not belong together, differ from their case,
// are too few, or give impossible values; it is a [*calibrate.ConditionError] if they leave coefficients open.
func (c *Calibration) Run(ctx context.Context) (*report.Calibration, *coefficients.Entry, error) {
	if err := checkPoolable(c.Runs, c.Pool); err != nil {
		return nil, nil, err
	}
	if i := slices.IndexFunc(c.Runs, func(o ObservedRun) bool { return o.OthersAssumed }); i >= 0 && !c.Force {
		return nil, nil, input.Errorf("%s: other processes may have used the GPU, and their memory in the device "+
			"bytes is unknown; measure where NVML works (vprof doctor), or use this run nevertheless with --force",
			c.Runs[i].Label)
	}
	gpu, err := device.Lookup(c.Runs[0].GPU)
	if known := c.Runs[0].DescribedGPU; err != nil && known.Name != "" {
		gpu, err = known, nil
	}
	if err != nil {
		return nil, nil, err
	}
	libraries := planner.LibrariesOf(gpu)
	if c.isBare() {
		gpu = gpu.WithoutLibraries()
	}
	seen, timed, from, err := c.observe(ctx, gpu)
	if err != nil {
		return nil, nil, err
	}
	if err := checkReplays(seen); err != nil && !c.Force {
		return nil, nil, err
	}
	fitted, err := c.fit(ctx, gpu, seen, from)
	if _, few := errors.AsType[*TooFewRunsError](err); few && len(timed[false]) > 0 {
		// Even one timed step is enough to fit the speed.
		fitted, err = &calibrate.Result{Undetermined: []string{"memory: " + err.Error()}}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if c.isBare() {
		fitted.Undetermined = append(fitted.Undetermined, fmt.Sprintf("what PyTorch adds: the runs and these errors "+
			"are of vprof's kernels. Plans add %s ± %s for PyTorch's libraries",
			bytesize.Format(int64(libraries.Value)), bytesize.Format(int64(1.96*libraries.StdErr))))
	}
	entry := c.newEntry(gpu, fitted)
	for synthetic, steps := range timed {
		speed := steptime.DefaultEfficiency()
		if synthetic { // no Python launches vprof's own kernels
			speed.Dispatch, speed.Module = planner.Coefficient{}, planner.Coefficient{}
		}
		speed, err := calibrate.FitSpeed(steps, speed)
		if err != nil {
			return nil, nil, err
		}
		entry.SetSpeed(speed, synthetic)
	}
	return c.newReport(entry, fitted), entry, nil
}

// fit fits the coefficients of memory. The error is a [*TooFewRunsError] if there are too few runs.
func (c *Calibration) fit(ctx context.Context, gpu device.GPU, seen []calibrate.Observation,
	from planner.Coefficients,
) (*calibrate.Result, error) {
	fitted, err := calibrate.Fit(seen, from)
	if few, ok := errors.AsType[*calibrate.ConditionError](err); ok {
		return nil, c.adviseRuns(ctx, gpu, few, seen)
	}
	if err != nil {
		return nil, err
	}
	for _, err := range []error{checkFit(fitted.Points), checkRunCount(fitted), checkPlausible(fitted)} {
		if err != nil && !c.Force {
			return nil, err
		}
	}
	return fitted, nil
}

// isBare reports whether the runs come from a process of vprof itself, which does not load PyTorch's libraries.
func (c *Calibration) isBare() bool { return c.Runs[0].Bare }

// setupKey returns a key that is equal for runs of the same case at different batch sizes.
func setupKey(o ObservedRun) models.CaseKey {
	k := o.Case
	k.Batch = 0
	return k.Key()
}

// observe replays the step of every run and returns the observations. It also returns the timed steps, by whether
// synthetic kernels ran, and the coefficients of a plan without calibration.
func (c *Calibration) observe(ctx context.Context, gpu device.GPU) ([]calibrate.Observation,
	map[bool][]calibrate.TimedStep, planner.Coefficients, error,
) {
	timed := map[bool][]calibrate.TimedStep{}
	var from planner.Coefficients
	setups := map[models.CaseKey]*step.Setup{}
	var seen []calibrate.Observation
	for _, o := range c.Runs {
		setup := setups[setupKey(o)]
		if setup == nil {
			var err error
			if setup, err = c.setupOf(o); err != nil {
				return nil, nil, from, fmt.Errorf("%s: %w", o.Label, err)
			}
			setups[setupKey(o)] = setup
			if from, err = setup.Coefficients(gpu, false); err != nil {
				return nil, nil, from, err
			}
		}
		t := setup.Trial(gpu, o.Case.Batch)
		if o.StepSeconds > 0 && gpu.Peak.FP32 > 0 { // of no share if nobody knows the GPU's rates
			t.Timed = []device.GPU{gpu}
		}
		r, err := setup.Try(ctx, t)
		if err != nil {
			return nil, nil, from, fmt.Errorf("%s: %w", o.Label, err)
		}
		for _, load := range r.Loads {
			timed[o.Synthetic] = append(timed[o.Synthetic], calibrate.TimedStep{Load: load, Seconds: o.StepSeconds})
		}
		seen = append(seen, calibrate.Observation{
			Label: o.Label, Sample: r.Sample(), Allocated: o.Allocated,
			Reserved: o.Reserved, Device: o.Device, Replayed: o.Synthetic, Communication: ncclBytes(o, gpu),
		})
	}
	return seen, timed, from, nil
}

// setupOf returns the step of a run's case.
func (c *Calibration) setupOf(o ObservedRun) (*step.Setup, error) {
	m, err := c.Models.ModelForCase(o.Case, o.Description)
	if err != nil {
		return nil, err
	}
	return step.New(m, o.Case, step.Evidence{Trials: c.Trials, Residuals: c.Residuals})
}

// ncclBytes returns the estimated memory of NCCL on a run's GPU, in bytes; zero for a run without NCCL.
func ncclBytes(o ObservedRun, gpu device.GPU) float64 {
	if o.Case.Strategy == nil || o.Synthetic {
		return 0
	}
	return planner.CommunicationOf(gpu, o.Case.Strategy.Communicators(o.Case.GPUs)).Value
}

// maxAdvisedBatch is the largest batch size that a [TooFewRunsError] may name.
const maxAdvisedBatch = 4096

// A TooFewRunsError reports that the runs do not determine the coefficients.
type TooFewRunsError struct{ error }

func (e *TooFewRunsError) Unwrap() error { return e.error }

// adviseRuns makes a [TooFewRunsError] that names the most useful further run whose replay fits the GPU.
func (c *Calibration) adviseRuns(ctx context.Context, gpu device.GPU, few *calibrate.ConditionError,
	seen []calibrate.Observation,
) error {
	setup, err := c.setupOf(c.Runs[0])
	if err != nil {
		return err
	}
	ran := lists.Map(seen, func(s calibrate.Observation) planner.Sample { return s.Sample })
	var candidates []planner.Sample
	for batch := 1; batch <= maxAdvisedBatch; batch *= 2 {
		r, err := setup.Try(ctx, setup.Trial(gpu, batch))
		if step.IsRefused(err) {
			continue // as a batch norm refuses one sample
		}
		if err != nil {
			return err
		}
		s := r.Sample()
		if s.Reserved+gpu.Context > gpu.Memory {
			break
		}
		candidates = append(candidates, s)
	}
	add := calibrate.AdviseRun(ran, candidates)
	return &TooFewRunsError{fmt.Errorf("%w%s", few, cmp.Or(phrase.If(add > 0, "; add a run at batch %d", add),
		"; nor would any other batch that fits this GPU"))}
}

// newEntry returns the fitted coefficients as an entry of the coefficients file.
func (c *Calibration) newEntry(gpu device.GPU, r *calibrate.Result) *coefficients.Entry {
	e := &coefficients.Entry{
		Name: c.Name, GPU: gpu.Name, Stack: c.Runs[0].Stack, Simulated: c.Runs[0].Simulated, Bare: c.isBare(),
		Fitted: c.Now, Memory: map[string]coefficients.Number{}, Undetermined: r.Undetermined, Inputs: c.Inputs,
	}
	if c.Stack != (coefficients.Stack{}) {
		e.Stack = c.Stack
	}
	e.Name = cmp.Or(e.Name, gpu.Name+"/"+stackName(e.Stack))
	for _, o := range c.Runs {
		e.Models = lists.Union(e.Models, o.Case.Model)
	}
	slices.Sort(e.Models)
	for i, t := range r.Terms {
		k := r.Coefficients.Term(t)
		e.Memory[t.String()] = coefficients.Number{
			Value:  roundSignificant(k.Value),
			StdErr: roundSignificant(k.StdErr), Source: k.Source,
		}
		for _, u := range r.Terms[:i] {
			if rho := r.Coefficients.Correlation[t][u]; rho != 0 {
				e.Correlations = append(e.Correlations,
					coefficients.Correlation{Between: [2]string{u.String(), t.String()}, Value: roundSignificant(rho)})
			}
		}
	}
	before, after, heldOut := errorsOf(r.Points)
	e.Errors = coefficients.FitErrors{Before: before, After: after, HeldOut: heldOut}
	return e
}

// roundSignificant rounds to seven digits, more than any measurement of memory has. People read the files, and the last
// digits of a float differ between machines.
func roundSignificant(v float64) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 7, 64), 64)
	if err != nil {
		panic(err) // what FormatFloat writes is a number
	}
	return short
}

func stackName(s coefficients.Stack) string {
	switch {
	case s.Torch != "":
		return "torch-" + s.Torch
	case s.Driver != "":
		return "driver-" + s.Driver
	}
	return "replay"
}

// errorsOf summarizes the errors of the fitted points before and after calibration. heldOut is nil unless every point
// has a held-out error.
func errorsOf(points []calibrate.Point) (before, after coefficients.Error, heldOut *coefficients.Error) {
	var b, a, h []float64
	for _, p := range points {
		b = append(b, math.Abs(relativeError(p.Before, p.Observed)))
		a = append(a, math.Abs(relativeError(p.After, p.Observed)))
		if p.HeldOut > 0 {
			h = append(h, math.Abs(relativeError(p.HeldOut, p.Observed)))
		}
	}
	if len(h) == len(points) && len(h) > 0 {
		heldOut = new(summarizeErrors(h))
	}
	return summarizeErrors(b), summarizeErrors(a), heldOut
}

func relativeError(estimate, observed int64) float64 {
	return float64(estimate-observed) / float64(max(1, observed))
}

func summarizeErrors(errs []float64) coefficients.Error {
	if len(errs) == 0 {
		return coefficients.Error{}
	}
	slices.Sort(errs)
	// The percentile is the nearest rank, as in accuracy reports.
	return coefficients.Error{Median: roundSignificant(errs[(len(errs)-1)/2]), Max: roundSignificant(errs[len(errs)-1])}
}

func (c *Calibration) newReport(e *coefficients.Entry, r *calibrate.Result) *report.Calibration {
	out := &report.Calibration{
		Schema: report.CalibrationSchema, Tool: c.Tool, Started: c.Now, Entry: e.Name, GPU: e.GPU,
		Stack:  e.Stack.String(),
		Models: e.Models, Simulated: e.Simulated, Errors: report.CalibrationErrors{
			Before: report.ErrorSummary(e.Errors.Before), After: report.ErrorSummary(e.Errors.After),
		},
		Coefficients: []report.Coefficient{}, Points: []report.CalibrationPoint{}, Undetermined: r.Undetermined,
	}
	if e.Errors.HeldOut != nil {
		out.Errors.HeldOut = new(report.ErrorSummary(*e.Errors.HeldOut))
	}
	for _, t := range r.Terms {
		k := r.Coefficients.Term(t)
		out.Coefficients = append(out.Coefficients,
			report.Coefficient{Name: t.String(), Value: k.Value, StdErr: k.StdErr, Source: k.Source})
	}
	speeds := speedNumbers(e)
	for _, name := range slices.Sorted(maps.Keys(speeds)) {
		out.Coefficients = append(out.Coefficients, *coefficientOf(name, speeds[name]))
	}
	for _, p := range r.Points {
		out.Points = append(out.Points, report.CalibrationPoint(p))
	}
	return out
}
