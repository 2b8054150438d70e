package judge

import (
	"context"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/replay"
)

// CheckPhase judges the training steps of a result, or the evaluation after them. The caller sets the check's name.
func (j *Judge) CheckPhase(ctx context.Context, s *step.Setup, r *step.Result, of func(*replay.Run) replay.PhaseUsage,
) (c report.Check, err error) {
	at := of(r.Run)
	if r.Measured != nil {
		return j.checkMeasured(r, at), nil
	}
	if err := s.AddSpread(ctx, r); err != nil {
		return c, err
	}
	e, err := j.Estimate(s, r, at.Usage)
	if err != nil {
		return c, err
	}
	c = report.Check{
		Simulated: true, Allocated: e.Allocated.Value, Reserved: e.Reserved.Value, Device: e.Device.Value,
		Need: j.Budget.Need(e), Fits: e.Device.Value-e.Paged.Value <= j.Budget.Memory,
		Reason: report.Reason(j.Budget.ReasonOf(e)), Source: e.Source,
	}
	c.Safe = c.Reason == ""
	return c, j.checkNestedReplay(ctx, &c, s, r, of)
}

// checkNestedReplay completes a check on a simulated GPU by a replay with the GPU's own memory size, if that size
// matters. If the replay runs out of memory, or succeeds only by freeing cached memory, the check fails.
func (j *Judge) checkNestedReplay(ctx context.Context, c *report.Check, s *step.Setup, r *step.Result,
	of func(*replay.Run) replay.PhaseUsage,
) error {
	if r.Device <= j.Budget.Memory {
		return nil
	}
	on := j.nestedResults[r]
	if on == nil {
		var err error
		how := step.ReplayOptions{
			StopAtLimit: true, OtherProcessBytes: j.OtherProcessBytes, TrainingOnly: r.WithoutEvaluation(),
		}
		if on, err = s.Try(ctx, r.ReplayTrial(how)); err != nil {
			return err
		}
		j.nestedResults[r] = on
	}
	switch at := of(on.Run); {
	case at.IsMissing:
		c.OOM, c.Fits, c.Safe, c.Reason = on.Report().OOM, false, false, report.Reason(planner.OutOfMemory)
	case !c.Fits:
		c.FreesCache, c.Safe, c.Reason = true, false, report.Reason(planner.FreesCache)
	}
	return nil
}

// checkMeasured returns the check of a point of a run on a device. It assumes that device bytes outside of segments are
// the same as at the peak.
func (j *Judge) checkMeasured(r *step.Result, at replay.PhaseUsage) report.Check {
	run := r.Measured.Run
	c := report.Check{
		Simulated: run.Simulated, Allocated: at.Allocated, Reserved: at.Reserved,
		Device: at.Reserved + run.Device - run.Reserved,
	}
	c.Need = c.Device
	if !c.Simulated { // the device held vprof's kernels; training holds PyTorch's libraries
		c.Need += max(0, j.GPU.Libraries-run.Kernels)
	}
	c.Fits = c.Need <= j.Budget.Memory
	if at.IsMissing {
		c.OOM, c.Fits = run.OOM, false
	}
	c.FreesCache = !at.IsMissing && run.Retries > 0 && at == r.Run.WholeUsage()
	ApplyMeasuredRun(j.Budget, &c)
	return c
}

// CheckEpochs returns the check of replayed epochs over samples of different lengths. The caller sets the check's name.
func (j *Judge) CheckEpochs(l *report.Lengths) report.Check {
	device, reserved := l.Worst.Device, l.Worst.Reserved.Bytes
	if l.MostDevice != nil {
		device, reserved = *l.MostDevice, max(l.Worst.Allocated.Bytes, l.Epochs.Most)
	}
	fits := l.Epochs.OutOfMemory == 0
	c := report.Check{
		Simulated: true, Allocated: l.Worst.Allocated.Bytes, Reserved: reserved, Device: device.Bytes,
		Need: j.Budget.Need(planner.Estimate{
			Device: planner.Interval{Value: device.Bytes, Low: device.Low, High: device.High},
		}),
		Fits: fits && device.Bytes <= j.Budget.Memory, FreesCache: fits && l.Epochs.Slow > 0, Lengths: l,
	}
	ApplyMeasuredRun(j.Budget, &c)
	return c
}

// ApplyEpochs adds replayed epochs to the check of their worst batch, which fails if an epoch does not complete.
func (j *Judge) ApplyEpochs(l *report.Lengths, p *report.Point) {
	p.Lengths = l
	c := j.CheckEpochs(l)
	worse := c.Reason == report.Reason(planner.OutOfMemory) && p.Estimate.Verdict != report.DoesNotFit
	if e := p.Estimate; c.Reason != "" && (e.Unsafe == "" || worse) {
		e.Unsafe, e.Decides = c.Reason, &report.Decision{
			What: "an epoch over these lengths", Batch: p.Batch, Need: c.Need,
			Limit: j.Budget.Limit(),
		}
	}
}

// ApplyMeasuredRun sets the verdict of a check from a complete run: out of memory, cached memory freed, or its device
// bytes compared with the budget.
func ApplyMeasuredRun(b planner.Budget, c *report.Check) {
	switch {
	case c.OutOfMemory():
		c.Reason = report.Reason(planner.OutOfMemory)
	case c.FreesCache:
		c.Reason = report.Reason(planner.FreesCache)
	default:
		c.Reason = report.Reason(b.Judge(c.Need))
	}
	c.Safe = c.Reason == ""
}
