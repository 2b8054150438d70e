package experiment

import (
	"context"
	"math"
	"slices"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

// A smokeRun is a replay of a smoke test: on the device if there is one, else on a
// simulated board without limit.
type smokeRun struct {
	*simulation
	// measured is what the device came to; nil if the board is simulated.
	measured *report.Run
}

// replay runs a program.
func (m *smokeChecks) replay(ctx context.Context, p *program.Program) (*smokeRun, error) {
	d := m.test.Device
	if d == nil {
		run, err := m.setup.endless(ctx, m.gpu, p)
		return &smokeRun{simulation: run}, err
	}
	got, err := replay.Measure(ctx, d, p, replay.Conditions{Config: &m.setup.conf})
	if err != nil {
		return nil, err
	}
	m.smoke.Warnings = append(m.smoke.Warnings, m.neighbors.warnings(d, got.Neighbors...)...)
	run := measured(got, d, 1)
	return &smokeRun{&simulation{got.Run, run.Device, d.GPU()}, run}, nil
}

// A usageAt is the memory in use at a moment. It is missed if the run ran out of
// memory before; what is in use is then what was.
type usageAt struct {
	replay.Usage
	missed bool
}

// whole is the peak of the run.
func (t *smokeRun) whole() usageAt { return usageAt{t.Max, t.OOM != nil} }

// end is when the last phase of a step ends, or the last of a name; the zero
// moment if there is none.
func (t *smokeRun) end(step int, name string) usageAt {
	if t.missed(step, name) {
		return usageAt{t.Max, true}
	}
	for _, p := range slices.Backward(t.Phases) {
		if p.Step == step && (name == "" || p.Name == name) {
			return usageAt{p.End, false}
		}
	}
	return usageAt{}
}

// peak is the highest usage in the phases of a step that have a name; a step
// without such a phase counts whole.
func (t *smokeRun) peak(step int, name string) usageAt {
	if t.missed(step, name) {
		return usageAt{t.Max, true}
	}
	var u replay.Usage
	named := slices.ContainsFunc(t.Phases, func(p replay.Phase) bool { return p.Step == step && p.Name == name })
	for _, p := range t.Phases {
		if p.Step == step && (!named || p.Name == name) {
			u.Requested, u.Allocated = max(u.Requested, p.Max.Requested), max(u.Allocated, p.Max.Allocated)
			u.Active, u.Reserved = max(u.Active, p.Max.Active), max(u.Reserved, p.Max.Reserved)
		}
	}
	return usageAt{u, false}
}

// missed tells whether the run ended before a phase of a step did; before the
// step, if the phase has no name.
func (t *smokeRun) missed(step int, name string) bool {
	if t.OOM == nil || t.OOM.Phase.Step > step {
		return false
	}
	return name == "" || !slices.ContainsFunc(t.Phases, func(p replay.Phase) bool { return p.Step == step && p.Name == name })
}

// measuredCheck is the check of a moment on the device. Besides the segments
// the device holds then what it held besides them at the peak.
func (m *smokeChecks) measuredCheck(name, note string, t *smokeRun, of usageAt) report.Check {
	c := report.Check{
		Name: name, Note: note, Simulated: t.measured.Simulated,
		Allocated: of.Allocated, Reserved: of.Reserved, Device: of.Reserved + t.measured.Device - t.measured.Reserved,
	}
	c.Need = c.Device
	if of.missed {
		c.OOM = t.measured.OOM
		return c
	}
	c.Safe, c.Fits = c.Need <= m.smoke.Limit, c.Device <= m.budget.Memory
	return c
}

// need is what the budget asks the worst moment of a run to stay within.
func (m *smokeChecks) need(t *smokeRun) (int64, error) {
	switch {
	case t.OOM != nil:
		return math.MaxInt64, nil
	case t.measured != nil:
		return t.measured.Device, nil
	}
	e, err := m.estimate(t.simulation, t.Max)
	return m.budget.Need(e), err
}

// components are what the training step is made of at its peak. A device may
// not get there, so they are simulated in any case.
func (m *smokeChecks) components(ctx context.Context, r *caseReplay) ([]report.Component, error) {
	if r.training.measured == nil {
		e, err := m.estimate(r.training.simulation, r.training.Max)
		return estimateOf(e).Components, err
	}
	e, err := m.simulated(ctx, m.setup.c)
	return estimateOf(e).Components, err
}

// simulated is an estimate of the training steps of a case.
func (m *smokeChecks) simulated(ctx context.Context, c models.Case) (e planner.Estimate, err error) {
	rec, err := m.setup.recording(ctx, c, m.gpu, models.Options{})
	if err != nil {
		return e, err
	}
	run, err := m.setup.endless(ctx, m.gpu, rec.Program)
	if err != nil {
		return e, err
	}
	return m.estimate(run, run.Max)
}
