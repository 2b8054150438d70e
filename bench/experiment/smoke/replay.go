package smoke

import (
	"context"

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
	// within is the replay on the simulated board itself, with its end; nil if the
	// one without limit needs less than there is.
	within *step.Result
}

// onBoard adds the replay on the simulated board itself where its end matters, of the training
// steps alone or with validation; of a device it takes down who else was seen on it.
func (m *checks) onBoard(ctx context.Context, r *step.Result, training bool) (*replayed, error) {
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

// measuredCheck is a check on the device. Besides the segments, the device is taken to
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

// ended completes a check of a simulated board by the replay on the board itself:
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

// components are the parts of the training step's peak. They are simulated in any case,
// since a run on a device may end before the peak.
func (m *checks) components(ctx context.Context, r *caseReplay) ([]report.Component, error) {
	if r.training.Measured == nil {
		e, err := m.estimate(r.training.Result, r.training.Run.Max)
		return step.EstimateOf(e).Components, err
	}
	e, err := m.simulated(ctx, m.setup.Case())
	return step.EstimateOf(e).Components, err
}

// simulated is an estimate of the training steps of a case.
func (m *checks) simulated(ctx context.Context, c models.Case) (e planner.Estimate, err error) {
	r, err := m.setup.Try(ctx, m.setup.For(c).Trial(m.gpu, c.Batch))
	if err != nil {
		return e, err
	}
	return m.estimate(r, r.Run.Max)
}
