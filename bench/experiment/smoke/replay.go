package smoke

import (
	"context"
	"math"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

// A replayed is a run of a smoke test: on the device if there is one, else simulated
// without a memory limit.
type replayed struct {
	*step.Simulation
	// measured is what the device came to; nil if the board is simulated.
	measured *report.Run
	// within is the replay on the simulated board itself, with its end; nil if the
	// one without limit needs less than there is.
	within *step.Simulation
}

// replay runs a program.
func (m *checks) replay(ctx context.Context, p *program.Program) (*replayed, error) {
	d := m.test.Device
	if d == nil {
		run, err := m.setup.ReplayUnlimited(ctx, m.gpu, p)
		if err != nil {
			return nil, err
		}
		out := &replayed{Simulation: run}
		if run.Device > m.budget.Memory {
			out.within, err = step.Simulate(ctx, p, m.gpu, m.setup.Allocator(), m.test.Others)
		}
		return out, err
	}
	conf := m.setup.Allocator()
	got, err := replay.Measure(ctx, d, p, replay.Conditions{Config: &conf})
	if err != nil {
		return nil, err
	}
	m.smoke.Warnings = append(m.smoke.Warnings, m.neighbors.Warnings(d, got.Neighbors...)...)
	run := step.Measured(got, d, 1)
	return &replayed{Simulation: &step.Simulation{Run: got.Run, Device: run.Device, GPU: d.GPU()}, measured: run}, nil
}

// measuredCheck is a check on the device. Besides the segments, the device is taken to
// hold what it held besides them at the peak.
func (m *checks) measuredCheck(name, note string, t *replayed, of replay.PhaseUsage) report.Check {
	c := report.Check{
		Name: name, Note: note, Simulated: t.measured.Simulated,
		Allocated: of.Allocated, Reserved: of.Reserved, Device: of.Reserved + t.measured.Device - t.measured.Reserved,
	}
	c.Need = c.Device
	if of.Missed {
		c.OOM = t.measured.OOM
		return c
	}
	c.Safe, c.Fits = c.Need <= m.smoke.Limit, c.Device <= m.budget.Memory
	if t.measured.Retries > 0 && of == t.Whole() {
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
	case t.OOM != nil || t.within != nil || t.measured != nil && t.measured.Strained():
		return math.MaxInt64, nil
	case t.measured != nil:
		return t.measured.Device, nil
	}
	e, err := m.estimate(t.Simulation, t.Max)
	return m.budget.Need(e), err
}

// components are the parts of the training step's peak. They are simulated in any case,
// since a run on a device may end before the peak.
func (m *checks) components(ctx context.Context, r *caseReplay) ([]report.Component, error) {
	if r.training.measured == nil {
		e, err := m.estimate(r.training.Simulation, r.training.Max)
		return step.EstimateOf(e).Components, err
	}
	e, err := m.simulated(ctx, m.setup.Case())
	return step.EstimateOf(e).Components, err
}

// simulated is an estimate of the training steps of a case.
func (m *checks) simulated(ctx context.Context, c models.Case) (e planner.Estimate, err error) {
	rec, err := m.setup.RecordCase(ctx, c, m.gpu, models.Options{})
	if err != nil {
		return e, err
	}
	run, err := m.setup.ReplayUnlimited(ctx, m.gpu, rec.Program)
	if err != nil {
		return e, err
	}
	return m.estimate(run, run.Max)
}
