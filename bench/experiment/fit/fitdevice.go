package fit

import (
	"context"
	"fmt"
	"math"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/planner"
)

// measureChoices measures the recommended choices on the device, of each stage and of all stages together. A choice
// that does not fit, or is slower than another, loses its recommendation to the next. This repeats until every
// recommended choice was measured.
func (s *Search) measureChoices(ctx context.Context, f *report.Fit) error {
	f.Devices[0] = step.DeviceOn(s.Device)
	for i := range f.Choices {
		f.Choices[i].Device = s.Device.Name()
	}
	f.Warnings = append(f.Warnings, step.SharedGPUWarnings(s.Device)...)
	var neighbors step.WarnedProcesses
	measured := map[string]bool{}
	for {
		f.Warnings = append(f.Warnings, neighbors.Warnings(s.Device)...)
		c := nextToMeasure(f, measured)
		if c == nil {
			return nil
		}
		measured[c.Case.String()] = true
		if err := s.measureChoice(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", s.Device.Name(), err)
		}
		rankChoices(f, s.Model.Stages)
	}
}

// nextToMeasure returns a recommended choice that was not measured yet; nil if all were.
func nextToMeasure(f *report.Fit, measured map[string]bool) *report.Choice {
	overall, ok := f.Overall(f.Devices[0].Name)
	for i := range f.Choices {
		c := &f.Choices[i]
		recommended := c.Recommended || (ok && c.Fits() && c.SameConfiguration(overall))
		if recommended && !measured[c.Case.String()] {
			return c
		}
	}
	return nil
}

func (s *Search) measureChoice(ctx context.Context, c *report.Choice) error {
	setup, err := step.New(s.Model, c.Case.Case, s.Evidence)
	if err != nil {
		return err
	}
	return s.measure(ctx, setup, c)
}

// measure runs a choice on the device. If the run exceeds the budget, the batch is reduced to the largest that does
// not, with the same number of micro-batches.
func (s *Search) measure(ctx context.Context, setup *step.Setup, c *report.Choice) error {
	q, err := s.batchSearch(setup, s.GPUs[0])
	if err != nil {
		return err
	}
	defer q.judge.FreeRecordings()
	q.max = c.Batch
	on := setup.WithDevice(s.Device)
	runs := map[int]*report.Run{}
	need := func(batch int) (int64, error) {
		t := on.Trial(q.judge.GPU, batch)
		t.Replay = step.ReplayOptions{Device: s.Device.Name(), WarmUp: 1}
		r, err := on.Try(ctx, t)
		if err != nil {
			return 0, err
		}
		runs[batch] = r.Report()
		if runs[batch].HadRetries() {
			return math.MaxInt64, nil
		}
		return runs[batch].Device, nil
	}
	batch, err := q.search(&planner.BatchSearch{Start: planner.Start{Batch: c.Batch}, NeedIsSlow: true, Need: need})
	if whole := roundDown(batch, q.multiple); err == nil && whole != batch {
		batch = whole
		if runs[batch] == nil {
			_, err = need(batch)
		}
	}
	if err != nil {
		return err
	}
	if batch < c.Batch {
		c.Largest, c.LargestIsCapped = batch, false
	}
	c.Batch, c.EffectiveBatch, c.Run = batch, batch*c.Case.Accumulate, runs[batch]
	if batch == 0 {
		c.StepSeconds, c.SamplesPerSecond = 0, 0
		return nil
	}
	d, err := q.judgeSize(ctx, batch, judgedMicroBatches(c.Case.Accumulate))
	if err != nil {
		return err
	}
	if c.Estimate, err = d.Report(ctx); err != nil {
		return err
	}
	c.Estimate.Verdict = c.Run.VerdictGiven(c.Estimate.Verdict)
	c.Utilization = float64(c.Run.Device) / float64(q.judge.GPU.Memory)
	if c.Expandable, _, err = d.ExpandableNeed(ctx); err != nil {
		return err
	}
	if c.Run.Step != nil {
		c.StepSeconds, c.SamplesPerSecond = c.Run.Step.Seconds, c.Run.Step.SamplesPerSecond
	}
	return nil
}
