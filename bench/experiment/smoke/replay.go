package smoke

import (
	"context"
	"math"

	"github.com/vprof/vprof/bench/experiment/epoch"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/replay"
)

// warnOfNeighbors warns of other processes that were seen on the device.
func (m *checks) warnOfNeighbors(r *step.Result) {
	m.smoke.Warnings = append(m.smoke.Warnings, m.neighbors.Warnings(m.test.Device, r.Measured.Neighbors...)...)
}

// measuredCheck returns a check on the device. Besides the segments, the device is taken to
// hold what it held besides them at the peak.
func (m *checks) measuredCheck(name, note string, t *step.Result, of replay.PhaseUsage) report.Check {
	c := report.Check{
		Name: name, Note: note, Simulated: t.Measured.Run.Simulated,
		Allocated: of.Allocated, Reserved: of.Reserved,
		Device: of.Reserved + t.Measured.Run.Device - t.Measured.Run.Reserved,
	}
	c.Need = c.Device
	if !c.Simulated { // the device held vprof's kernels; training holds PyTorch's libraries
		c.Need += max(0, m.test.GPU.Libraries-t.Measured.Run.Kernels)
	}
	if of.Missed {
		c.OOM, c.Reason = t.Measured.Run.OOM, report.Reason(planner.OutOfMemory)
		return c
	}
	c.Fits, c.Reason = c.Need <= m.judge.Budget.Memory, report.Reason(m.judge.Budget.Judge(c.Need))
	if t.Measured.Run.Retries > 0 && of == t.Run.Whole() {
		c.GivesBack, c.Reason = true, report.Reason(planner.GivesBack)
	}
	c.Safe = c.Reason == ""
	return c
}

// ended completes a check of a simulated GPU by a replay on the GPU itself, where its end matters: a run that is out of
// memory there, or gets through only by freeing cached memory, is not safe whatever the estimate is.
func (m *checks) ended(ctx context.Context, c *report.Check, s *step.Setup, r *step.Result, of moment) error {
	if r.Device <= m.judge.Budget.Memory {
		return nil
	}
	on := m.within[r]
	if on == nil {
		how := step.Replay{Within: true, Others: m.test.Others, Training: r.TrainsAlone()}
		var err error
		if on, err = s.Try(ctx, r.Again(how)); err != nil {
			return err
		}
		m.within[r] = on
	}
	switch at := of(on.Run); {
	case at.Missed:
		c.OOM, c.Fits, c.Safe, c.Reason = on.Report().OOM, false, false, report.Reason(planner.OutOfMemory)
	case !c.Fits:
		c.GivesBack, c.Safe, c.Reason = true, false, report.Reason(planner.GivesBack)
	}
	return nil
}

// components returns the parts of the training step's peak. They are simulated in any case,
// since a run on a device may end before the peak.
func (m *checks) components(ctx context.Context, l *judge.Loop) ([]report.Component, error) {
	if l.Steps.Measured == nil {
		return step.EstimateOf(l.Estimate).Components, nil
	}
	e, err := m.simulated(ctx, m.setup.Case())
	return step.EstimateOf(e).Components, err
}

// simulated returns an estimate of the training steps of a case.
func (m *checks) simulated(ctx context.Context, c models.Case) (e planner.Estimate, err error) {
	r, err := m.setup.Try(ctx, m.setup.For(c).Trial(m.test.GPU, c.Batch))
	if err != nil {
		return e, err
	}
	return m.judge.Estimate(m.setup, r, r.Run.Max)
}

// epochs checks whether training gets through epochs over samples of different lengths. All further checks then use the
// worst batch of these epochs. It does nothing if all samples are alike.
func (m *checks) epochs(ctx context.Context) error {
	m.whole = m.setup
	if m.test.Lengths == nil {
		return nil
	}
	c := m.setup.Case()
	l, need, err := m.replayEpochs(ctx, c.Batch, epoch.Options{})
	if err != nil {
		return err
	}
	device, reserved := l.Worst.Device, l.Worst.Reserved.Bytes
	if l.MostDevice != nil {
		device, reserved = *l.MostDevice, max(l.Worst.Allocated.Bytes, l.Epochs.Most)
	}
	m.epoch = &report.Check{
		Name: "epoch", Note: "samples of different lengths, one allocator", Simulated: true,
		Allocated: l.Worst.Allocated.Bytes, Reserved: reserved, Device: device.Bytes, Need: need,
		Fits:      l.Epochs.OutOfMemory == 0 && device.Bytes <= m.judge.Budget.Memory,
		GivesBack: l.Epochs.OutOfMemory == 0 && l.Epochs.Slow > 0, Lengths: l,
	}
	switch {
	case l.Epochs.OutOfMemory > 0:
		m.epoch.Reason = report.Reason(planner.OutOfMemory)
	case l.Epochs.Strained():
		m.epoch.Reason = report.Reason(planner.GivesBack)
	default:
		m.epoch.Reason = report.Reason(m.judge.Budget.Judge(need))
	}
	m.epoch.Safe = m.epoch.Reason == ""
	m.setup = m.setup.For(m.test.Lengths.Worst(m.test.Model, c, l))
	return nil
}

// replayEpochs replays epochs over the data set's lengths at a batch size. need is the number of bytes of the device
// that they take, which is compared with the limit of the budget.
func (m *checks) replayEpochs(ctx context.Context, batch int, o epoch.Options) (
	l *report.Lengths, need int64, err error,
) {
	o.Others, o.Progress = m.test.Others, m.test.Progress
	l, err = epoch.Run(ctx, m.whole, m.test.GPU, batch, m.test.Lengths, o)
	if err != nil {
		return nil, 0, err
	}
	d := l.Worst.Device
	if l.MostDevice != nil {
		d = *l.MostDevice
	}
	e := planner.Estimate{Device: planner.Interval{Value: d.Bytes, Low: d.Low, High: d.High}}
	return l, m.judge.Budget.Need(e), nil
}

// largestOfEpochs returns the largest batch up to one with which epochs get through within the limit; zero if none is.
// A quick look leads there, and all epochs must then agree.
func (m *checks) largestOfEpochs(ctx context.Context, to int) (int, error) {
	all := epoch.Options{Within: m.judge.Budget.Limit()}
	largest, err := judge.Largest(&planner.Search{
		From: 1, To: to, Begin: planner.Start{Batch: to, Near: true}, Limit: m.judge.Budget.Limit(), Runs: true,
		Need: func(batch int) (int64, error) { return m.needOfEpochs(ctx, batch, all.Quick()) },
	})
	for ; err == nil && largest > 0; largest-- {
		var need int64
		if need, err = m.needOfEpochs(ctx, largest, all); need <= m.judge.Budget.Limit() {
			break
		}
	}
	return largest, err
}

// needOfEpochs returns the number of bytes that must stay within the limit at a batch size for
// epochs: [math.MaxInt64] if one runs out of memory or gets through only by freeing cached memory.
func (m *checks) needOfEpochs(ctx context.Context, batch int, o epoch.Options) (int64, error) {
	l, need, err := m.epoch.Lengths, m.epoch.Need, error(nil)
	if batch != m.smoke.Batch {
		l, need, err = m.replayEpochs(ctx, batch, o)
	}
	if err == nil && l.Epochs.Strained() {
		need = math.MaxInt64
	}
	return need, err
}
