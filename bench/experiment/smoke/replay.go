package smoke

import (
	"context"
	"math"

	"github.com/vprof/vprof/bench/experiment/epoch"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/replay"
)

// A replayed is a trial of a smoke test: on the device if there is one, else simulated
// without a memory limit.
type replayed struct {
	*step.Result
	// within is the replay on the simulated GPU itself, with its end; nil if the
	// one without limit needs less than there is.
	within *step.Result
}

// onBoard adds the replay on the simulated GPU itself where its end matters, of the training
// steps alone or with validation; of a device it takes down who else was seen on it.
func (m *checks) onGPU(ctx context.Context, r *step.Result, training bool) (*replayed, error) {
	out := &replayed{Result: r}
	if r.Measured != nil {
		m.smoke.Warnings = append(m.smoke.Warnings, m.neighbors.Warnings(m.test.Device, r.Measured.Neighbors...)...)
		return out, nil
	}
	if r.Device <= m.budget.Memory {
		return out, nil
	}
	var err error
	out.within, err = m.setup.Try(ctx, r.Again(step.Replay{Within: true, Others: m.test.Others, Training: training}))
	return out, err
}

// measuredCheck returns a check on the device. Besides the segments, the device is taken to
// hold what it held besides them at the peak.
func (m *checks) measuredCheck(name, note string, t *replayed, of replay.PhaseUsage) report.Check {
	c := report.Check{
		Name: name, Note: note, Simulated: t.Measured.Run.Simulated,
		Allocated: of.Allocated, Reserved: of.Reserved,
		Device: of.Reserved + t.Measured.Run.Device - t.Measured.Run.Reserved,
	}
	c.Need = c.Device
	if of.Missed {
		c.OOM, c.Reason = t.Measured.Run.OOM, report.Reason(planner.OutOfMemory)
		return c
	}
	c.Fits, c.Reason = c.Device <= m.budget.Memory, report.Reason(m.budget.Judge(c.Need))
	if t.Measured.Run.Retries > 0 && of == t.Run.Whole() {
		c.GivesBack, c.Reason = true, report.Reason(planner.GivesBack)
	}
	c.Safe = c.Reason == ""
	return c
}

// ended completes a check of a simulated GPU by the replay on the GPU itself:
// what runs out of memory there, or gets through only by giving back cached memory,
// does so whatever the estimate says.
func (t *replayed) ended(c *report.Check, of moment) {
	if t.within == nil {
		return
	}
	switch on := of(t.within.Run); {
	case on.Missed:
		c.OOM, c.Fits, c.Safe, c.Reason = t.within.Report().OOM, false, false, report.Reason(planner.OutOfMemory)
	case !c.Fits:
		c.GivesBack, c.Safe, c.Reason = true, false, report.Reason(planner.GivesBack)
	}
}

// components returns the parts of the training step's peak. They are simulated in any case,
// since a run on a device may end before the peak.
func (m *checks) components(ctx context.Context, r *caseReplay) ([]report.Component, error) {
	if r.training.Measured == nil {
		e, err := m.estimate(r.training.Result, r.training.Run.Max)
		return step.EstimateOf(e).Components, err
	}
	e, err := m.simulated(ctx, m.setup.Case())
	return step.EstimateOf(e).Components, err
}

// simulated returns an estimate of the training steps of a case.
func (m *checks) simulated(ctx context.Context, c models.Case) (e planner.Estimate, err error) {
	r, err := m.setup.Try(ctx, m.setup.For(c).Trial(m.gpu, c.Batch))
	if err != nil {
		return e, err
	}
	return m.estimate(r, r.Run.Max)
}

// epochs checks whether training gets through epochs over samples of different lengths. All
// further checks then use the worst batch of these epochs. It does nothing if all samples are
// alike.
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
		Fits:      l.Epochs.OutOfMemory == 0 && device.Bytes <= m.budget.Memory,
		GivesBack: l.Epochs.OutOfMemory == 0 && l.Epochs.Slow > 0, Lengths: l,
	}
	switch {
	case l.Epochs.OutOfMemory > 0:
		m.epoch.Reason = report.Reason(planner.OutOfMemory)
	case l.Epochs.Strained():
		m.epoch.Reason = report.Reason(planner.GivesBack)
	default:
		m.epoch.Reason = report.Reason(m.budget.Judge(need))
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
	l, err = epoch.Run(ctx, m.whole, m.gpu, batch, m.test.Lengths, o)
	if err != nil {
		return nil, 0, err
	}
	d := l.Worst.Device
	if l.MostDevice != nil {
		d = *l.MostDevice
	}
	return l, m.budget.Need(planner.Estimate{Device: planner.Interval{Value: d.Bytes, Low: d.Low, High: d.High}}), nil
}

// largestOfEpochs returns the largest batch up to one with which epochs get through within the limit; zero if none is.
// A quick look leads there, and all epochs must then agree.
func (m *checks) largestOfEpochs(ctx context.Context, to int) (int, error) {
	all := epoch.Options{Within: m.budget.Limit()}
	largest, err := step.Largest(&planner.Search{
		From: 1, To: to, Begin: planner.Start{Batch: to, Near: true}, Limit: m.budget.Limit(), Runs: true,
		Need: func(batch int) (int64, error) { return m.needOfEpochs(ctx, batch, all.Quick()) },
	})
	for ; err == nil && largest > 0; largest-- {
		var need int64
		if need, err = m.needOfEpochs(ctx, largest, all); need <= m.budget.Limit() {
			break
		}
	}
	return largest, err
}

// needOfEpochs returns the number of bytes that must stay within the limit at a batch size for
// epochs: [math.MaxInt64] if one runs out of memory or gets through only by giving back cached memory.
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
