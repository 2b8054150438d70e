package smoke

import (
	"context"
	"math"

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

// try runs a trial.
func (m *checks) try(ctx context.Context, t step.Trial) (*replayed, error) {
	r, err := m.setup.Try(ctx, t)
	if err != nil {
		return nil, err
	}
	out := &replayed{Result: r}
	if r.Measured != nil {
		m.smoke.Warnings = append(m.smoke.Warnings, m.neighbors.Warnings(m.test.Device, r.Measured.Neighbors...)...)
		return out, nil
	}
	if r.Device > m.budget.Memory {
		how := t.Replay
		how.Within, how.Others = true, m.test.Others
		out.within, err = m.setup.Try(ctx, r.Again(how))
	}
	return out, err
}

// measuredCheck is a check on the device. Besides the segments, the device is taken to
// hold what it held besides them at the peak.
func (m *checks) measuredCheck(name, note string, t *replayed, of replay.PhaseUsage) report.Check {
	c := report.Check{
		Name: name, Note: note, Simulated: t.Measured.Run.Simulated,
		Allocated: of.Allocated, Reserved: of.Reserved, Device: of.Reserved + t.Measured.Run.Device - t.Measured.Run.Reserved,
	}
	c.Need = c.Device
	if of.Missed {
		c.OOM = t.Measured.Run.OOM
		return c
	}
	c.Safe, c.Fits = c.Need <= m.smoke.Limit, c.Device <= m.budget.Memory
	if t.Measured.Run.Retries > 0 && of == t.Run.Whole() {
		c.Safe, c.GivesBack = false, true
	}
	return c
}

// onBoard completes a check of a simulated board by the replay on the board itself:
// what runs out of memory there, or gets through only by giving back cached memory,
// does so whatever the estimate says.
func (t *replayed) onBoard(c *report.Check, of moment) {
	if t.within == nil {
		return
	}
	switch on := of(t.within.Run); {
	case on.Missed:
		c.OOM, c.Fits, c.Safe = t.within.Report().OOM, false, false
	case !c.Fits:
		c.GivesBack, c.Safe = true, false
	}
}

// need is the number of bytes of a run's peak that must stay within the budget's limit;
// [math.MaxInt64] if the run ran out of memory.
func (m *checks) need(t *replayed) (int64, error) {
	switch {
	case t.Run.OOM != nil || t.within != nil || t.Measured != nil && t.Measured.Run.Strained():
		return math.MaxInt64, nil
	case t.Measured != nil:
		return t.Device, nil
	}
	e, err := m.estimate(t.Result, t.Run.Max)
	return m.budget.Need(e), err
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
