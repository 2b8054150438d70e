// Package sweep estimates a case at several batch sizes, and runs each of them on a device.
package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vprof/vprof/bench/experiment/claims"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

// Conditions are the limits of a sweep, and how each batch size is run.
type Conditions struct {
	// FindMax continues after the largest given batch size, up to the largest that fits.
	FindMax bool `json:"find_max,omitempty"`
	// WarmUp is the number of untimed replays and Repeat the number of timed ones. Verify writes the memory and reads
	// it back. All are as in [step.ReplayOptions].
	WarmUp int  `json:"warm_up,omitempty"`
	Repeat int  `json:"repeat,omitempty"`
	Verify bool `json:"verify,omitempty"`
}

// Options are the batch sizes of a sweep and how each is run.
type Options struct {
	// Batches are the batch sizes, in any order.
	Batches []int
	Conditions
	// Resumed is the report of an interrupted sweep to resume; nil for none. All its points are kept, even with batch
	// sizes that are not in Batches. A report with another case, GPU or settings is a [*ResumeError].
	Resumed *report.Report
}

// A ResumeError reports why a file cannot be used to resume this sweep.
type ResumeError struct{ reason string }

func (e *ResumeError) Error() string { return "the report cannot be continued: " + e.reason }

// Usage marks the error as bad input.
func (*ResumeError) Usage() bool { return true }

// Run estimates every batch size and runs each on the device, in ascending order. It stops at the first that does not
// fit, since no larger one would. A batch size that PyTorch refuses, as batch norm refuses one sample, does not stop
// the sweep. It is an error only if all are refused. each is called after each point with the report so far; its error
// stops the sweep. After an interrupt or a device failure, Run returns the points so far with the error.
func Run(ctx context.Context, s *step.Setup, d device.Device, o Options,
	each func(*report.Report) error,
) (*report.Report, error) {
	o.Batches = slices.Compact(slices.Sorted(slices.Values(o.Batches)))
	w := &sweeper{setup: s.WithDevice(d), device: d, options: o, each: each, report: s.Report(report.Sweep)}
	w.report.Devices = append(w.report.Devices, step.DeviceOn(d))
	w.report.Warnings = slices.Concat(s.Warnings(), step.Unsupported([]device.GPU{d.GPU()}, s.Case()),
		step.SharedGPUWarnings(d))
	if err := w.resume(); err != nil {
		return nil, err
	}
	w.report.Warnings = append(w.report.Warnings, w.neighbors.Warnings(d)...)
	if err := w.run(ctx); err != nil {
		return w.report, err
	}
	return w.report, nil
}

// A sweeper is the state of a sweep.
type sweeper struct {
	setup   *step.Setup
	device  device.Device
	options Options
	report  *report.Report
	each    func(*report.Report) error
	// described reports whether the report already has the coefficients and the model's element counts.
	described bool
	neighbors step.WarnedProcesses
}

// resume adds the points of the earlier sweep, after checking that it has the same case, GPU and driver.
func (w *sweeper) resume() error {
	old := w.options.Resumed
	if old == nil {
		return nil
	}
	now := w.report
	d := now.Devices[0]
	was, ok := old.Find(d.Name)
	switch {
	case old.Kind != report.Sweep:
		return &ResumeError{"it is no sweep"}
	case old.Case.String() != now.Case.String():
		return &ResumeError{fmt.Sprintf("its case is %s, not %s", old.Case, now.Case)}
	case !old.Case.Same(now.Case):
		return &ResumeError{fmt.Sprintf("the configuration of %s has changed since", now.Case.Model)}
	case !ok:
		return &ResumeError{"it is not of " + d.Name}
	case was.GPU != d.GPU || was.Memory != d.Memory:
		return &ResumeError{fmt.Sprintf("its %s is %s with %s, not %s with %s",
			d.Name, was.Title, bytesize.Format(was.Memory), d.Title, bytesize.Format(d.Memory))}
	case was.Driver != d.Driver:
		return &ResumeError{fmt.Sprintf("its driver is %q, not %q", was.Driver, d.Driver)}
	case was.UUID != "" && d.UUID != "" && was.UUID != d.UUID:
		return &ResumeError{fmt.Sprintf("its %s is the GPU %s, not %s", d.Name, was.UUID, d.UUID)}
	}
	for _, p := range old.Points {
		if p.Run == nil || p.Device != d.Name {
			return &ResumeError{fmt.Sprintf("its batch %d on %s is no run on %s; it would be lost", p.Batch,
				p.Device, d.Name)}
		}
		if (!p.Run.Simulated || d.Driver != "") && p.Run.At.IsZero() {
			run := *p.Run
			run.At, p.Run = old.Started, &run
		}
		now.Points = append(now.Points, p)
	}
	slices.SortStableFunc(now.Points, func(a, b report.Point) int { return cmp.Compare(a.Batch, b.Batch) })
	if len(now.Points) > 0 {
		// Counts and coefficients are kept if all batch sizes are already in the report; else they are computed again.
		now.Parameters, now.Coefficients = old.Parameters, slices.Clone(old.Coefficients)
		now.Largest = old.Largest
	}
	now.Refused = slices.DeleteFunc(slices.Clone(old.Refused),
		func(r report.Refusal) bool { return slices.Contains(w.options.Batches, r.Batch) })
	for _, warning := range old.Warnings {
		now.Warn(warning)
	}
	return nil
}

// run runs all batch sizes.
func (w *sweeper) run(ctx context.Context) error {
	batches := w.options.Batches
	for i, batch := range batches {
		fits, err := w.try(ctx, batch, batches[i+1:])
		if step.IsRefused(err) && (i+1 < len(batches) || len(w.report.Points) > 0) {
			w.report.Refused = append(w.report.Refused, report.Refusal{Batch: batch, Reason: err.Error()})
			continue
		}
		if err != nil {
			return w.stop(ctx, err, batch, batches[i:])
		}
		if !fits {
			break
		}
	}
	if w.options.FindMax {
		return w.findMax(ctx)
	}
	return nil
}

// stop records in the report why the sweep stops early.
func (w *sweeper) stop(ctx context.Context, cause error, batch int, left []int) error {
	if save, ok := errors.AsType[saveError](cause); ok {
		return save.error
	}
	stopped := &report.Stopped{Batch: batch, Left: left, Reason: "interrupted"}
	if interrupted := ctx.Err(); interrupted != nil {
		// Later errors follow from the one that stopped the sweep.
		w.report.Stopped = stopped
		return errors.Join(interrupted, w.each(w.report))
	}
	if len(w.report.Points) > 0 {
		stopped.Reason = cause.Error()
		w.report.Stopped = stopped
		return errors.Join(cause, w.each(w.report))
	}
	return cause
}

// A saveError is an error returned by the each function, which saves the report.
type saveError struct{ error }

// try runs a batch size and adds its point, unless the report has it. If it does not fit, the sizes left do not run.
func (w *sweeper) try(ctx context.Context, batch int, left []int) (fits bool, err error) {
	at, done := slices.BinarySearchFunc(w.report.Points, batch, func(p report.Point, batch int) int {
		return cmp.Compare(p.Batch, batch)
	})
	if !done {
		point, err := w.point(ctx, batch)
		if err != nil {
			return false, err
		}
		w.report.Points = slices.Insert(w.report.Points, at, point)
	}
	fits = w.report.Points[at].Run.Fits
	if !fits {
		w.report.Stopped = report.StoppedByOOM(batch, left)
	}
	if err := w.each(w.report); err != nil {
		return false, saveError{err}
	}
	return fits, nil
}

func (w *sweeper) point(ctx context.Context, batch int) (report.Point, error) {
	if err := ctx.Err(); err != nil {
		return report.Point{}, err
	}
	j := judge.Default(w.setup, w.gpu(), w.others())
	defer j.FreeRecordings()
	d, err := j.JudgeBatch(ctx, batch)
	if err != nil {
		return report.Point{}, err
	}
	e, err := w.estimate(ctx, d)
	if err != nil {
		return report.Point{}, err
	}
	o, loop := w.options, d.Loops[0]
	on, err := loop.Setup.Try(ctx, loop.Steps.ReplayTrial(step.ReplayOptions{
		Device: w.device.Name(), WarmUp: o.WarmUp, Repeat: o.Repeat, Verify: o.Verify, TrainingOnly: true,
	}))
	if err != nil {
		return report.Point{}, fmt.Errorf("batch %d: %w", batch, err)
	}
	m := on.Measured
	if m.TimesVaried {
		w.report.Warn(report.Warning{
			What: fmt.Sprintf("batch %d did not need the same memory in every run", batch),
			Hint: "what else uses the GPU may change; repeat it",
		})
	}
	w.report.Warnings = append(w.report.Warnings, w.neighbors.Warnings(w.device, m.Neighbors...)...)
	m.Run.Repeat = m.Timed
	if _, driven := w.device.(device.DriverReporter); driven {
		m.Run.WarmUp = o.WarmUp
	}
	point := report.Point{Batch: batch, Device: w.device.Name(), Estimate: e, Run: m.Run}
	return point, completePoint(ctx, w.setup, d, &point)
}

// estimate returns the estimate of a judgement, and describes its basis in the report.
func (w *sweeper) estimate(ctx context.Context, d *judge.Judgement) (*report.Estimate, error) {
	if !w.described {
		// Coefficients of a resumed report may be older than a calibration.
		w.described, w.report.Coefficients = true, []report.Coefficient{}
		if err := w.setup.Describe(w.report, w.gpu(), d.Loops[0].Steps); err != nil {
			return nil, err
		}
	}
	return d.Report(ctx)
}

// gpu returns the GPU with the context of the process that runs the step: vprof on a real device, else PyTorch.
func (w *sweeper) gpu() device.GPU {
	if _, driven := w.device.(device.DriverReporter); driven {
		return w.device.GPU().WithoutLibraries()
	}
	return w.device.GPU()
}

// others returns the device's bytes that the step cannot use: memory of other processes, and memory left free for them.
func (w *sweeper) others() int64 {
	var bytes int64
	if o, ok := w.device.(device.Observer); ok {
		bytes = o.Baseline().Others
	}
	if l, ok := w.device.(device.Limiter); ok {
		bytes += l.FreeLimit()
	}
	return bytes
}

// predictLargest returns the largest batch size whose estimate, including the memory of vprof's kernels, fits the GPU.
// The search begins at found.
func (w *sweeper) predictLargest(ctx context.Context, found int) (int, error) {
	o, driven := w.device.(device.Observer)
	if !driven || w.device.Simulated() {
		return 0, nil
	}
	j, err := judge.New(w.setup, w.gpu(), planner.Budget{Margin: 1}, w.others()+o.Baseline().Kernels)
	if err != nil {
		return 0, err
	}
	defer j.FreeRecordings()
	limit := j.Budget.Memory
	s := planner.BatchSearch{
		From: 1, To: maxBatch, Start: planner.Start{Batch: max(found, 1), IsNear: true}, Limit: limit, NeedIsSlow: true,
		Need: func(batch int) (int64, error) {
			d, err := j.Try(ctx, w.setup, batch)
			if step.IsRefused(err) {
				return 0, nil
			}
			if err != nil {
				return 0, err
			}
			e, err := d.Report(ctx)
			if err != nil {
				return 0, err
			}
			if e.Verdict == report.DoesNotFit {
				return max(e.Device.Bytes, limit+1), nil
			}
			return min(e.Device.Bytes, limit), nil
		},
	}
	return s.Largest()
}

// findMax finds the largest batch that runs, by bisection between one that runs and one that does not. It only reports
// batches that it has run.
func (w *sweeper) findMax(ctx context.Context) error {
	fits, fails := 0, maxBatch+1
	for _, p := range w.report.Points {
		if p.Run.Fits {
			fits = max(fits, p.Batch)
		} else {
			fails = min(fails, p.Batch)
		}
	}
	for fails-fits > 1 {
		next := fits + (fails-fits)/2
		if fails > maxBatch { // nothing has failed yet
			next = min(2*max(fits, 1), maxBatch)
		}
		ok, err := w.try(ctx, next, nil)
		if err != nil {
			if errors.As(err, new(*step.RefusedError)) && fits == 0 {
				fits = next // PyTorch would refuse it; what fits is larger, if anything
				continue
			}
			return w.stop(ctx, err, next, []int{next})
		}
		if ok {
			fits = next
		} else {
			fails = next
		}
	}
	w.report.Largest = w.largest()
	w.report.Stopped = nil
	predicted, err := w.predictLargest(ctx, w.report.Largest.Batch)
	if err != nil {
		return w.stop(ctx, err, w.report.Largest.Batch, nil)
	}
	w.report.Largest.Predicted = predicted
	return w.each(w.report)
}

// largest returns the result of findMax: the largest batch size that fits, and the smallest that does not.
func (w *sweeper) largest() *report.Largest {
	out := &report.Largest{}
	for _, p := range w.report.Points {
		if p.Run.Fits {
			out.Batch = p.Batch
		} else if out.FirstFailing == 0 {
			out.FirstFailing = p.Batch
		}
	}
	return out
}

// Plan estimates every batch size on a GPU. Warnings that concern all GPUs of a plan, such as [step.Unsupported], are
// left to the caller. If all batch sizes are refused, the report comes with the error of the last one.
func Plan(ctx context.Context, s *step.Setup, gpu device.GPU, batches []int) (*report.Report, error) {
	go claims.ClaimsFor(s, gpu, 1) // reads the guides while the steps are recorded
	r := s.Report(report.Plan, gpu)
	r.Warnings = s.Warnings(batches...)
	all := make([]plannedPoint, len(batches))
	err := progress.Each(ctx, nil, "batches", batches, func(ctx context.Context, i, batch int) (err error) {
		all[i], err = planBatch(ctx, s, gpu, batch)
		return err
	})
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	var refused error
	for i, p := range all {
		switch {
		case p.refused != nil:
			refused = p.refused
			r.Refused = append(r.Refused,
				report.Refusal{Batch: batches[i], Device: step.SimName(gpu), Reason: refused.Error()})
		case p.steps != nil: // else the plan was interrupted before
			if len(r.Points) == 0 {
				if err := s.Describe(r, gpu, p.steps); err != nil {
					return nil, err
				}
			}
			r.Points = append(r.Points, p.point)
		}
	}
	if err := ctx.Err(); err != nil || len(r.Points) > 0 {
		return r, err
	}
	return r, refused
}

// plannedPoint is a planned batch size: its point with the judged steps, or the reason why it is refused.
type plannedPoint struct {
	point   report.Point
	steps   *step.Result
	refused error
}

func planBatch(ctx context.Context, s *step.Setup, gpu device.GPU, batch int) (p plannedPoint, err error) {
	j := judge.Default(s, gpu, 0)
	defer j.FreeRecordings()
	p.point = report.Point{Batch: batch, Device: step.SimName(gpu)}
	d, err := j.JudgeBatch(ctx, batch)
	if err == nil {
		p.steps = d.Loops[0].Steps
		p.point.Estimate, err = d.Report(ctx)
	}
	if err == nil {
		err = completePoint(ctx, s, d, &p.point)
	}
	switch {
	case step.IsRefused(err):
		return plannedPoint{refused: err}, nil
	case err != nil:
		return plannedPoint{}, err
	}
	return p, nil
}

// completePoint adds everything but the estimate to a point of a judged batch: the guides' values, counts of
// convolutions by source, and the needs with other settings.
func completePoint(ctx context.Context, s *step.Setup, d *judge.Judgement, p *report.Point) (err error) {
	r := d.Loops[0].Steps
	p.Claims, p.Workspaces, p.Buffers = claims.ClaimsFor(s, d.GPU(), p.Batch), step.WorkspacesOf(r.Facts), r.Buffers
	p.Tuned = r.Tuned
	if last := r.LastStep(); len(r.Buffers) > 0 && last != r.Run.Max.Allocated {
		p.LastStep = last
	}
	if p.Expandable, p.ExpandableUnsafe, err = d.ExpandableNeed(ctx); err != nil {
		return err
	}
	if p.Spill, err = d.Spill(ctx); err != nil {
		return err
	}
	p.Streamed, err = d.StreamedNeed(ctx)
	return err
}
