package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/replay"
)

// SmokeTest says what [Smoke] checks beyond the training step.
type SmokeTest struct {
	// Search has the model, one case whose batch counts, one board, and the
	// budget.
	Search
	// Validation is the batch size of validation; zero is that of training.
	Validation int
	// Longest are settings of the longest sample, nil if all are alike.
	Longest models.Settings
}

// Smoke replays the training step of a case and looks at the moments at which
// training runs out of memory: in the order of a training run, with those that
// only come after hours last. If not all are within the budget, it says which
// batch would be. A case that PyTorch would refuse is an error.
func Smoke(ctx context.Context, t SmokeTest) (*report.Smoke, error) {
	c := t.Cases[0]
	lab, err := NewLab(t.Model, c, t.AllocConf, t.Residuals)
	if err != nil {
		return nil, err
	}
	lab.Learn(t.Learned)
	q, err := t.quest(lab, t.GPUs[0])
	if err != nil {
		return nil, err
	}
	s := &report.Smoke{
		Schema: report.SmokeSchema, Case: lab.report(report.Plan).Case, Batch: lab.c.Batch, Device: deviceOf(q.gpu),
		Budget: report.Budget{Margin: t.Budget.Margin, Risk: t.Budget.Risk, Others: t.Others},
		Limit:  q.budget.Limit(), Safe: true,
	}
	m := &moments{test: t, quest: q, smoke: s}
	if err := m.training(ctx); err != nil {
		return nil, err
	}
	if err := m.later(ctx); err != nil {
		return nil, err
	}
	for _, check := range s.Checks {
		s.Safe = s.Safe && check.Safe
	}
	if s.Safe {
		return s, nil
	}
	s.LargestBatch, err = m.largest(ctx)
	return s, err
}

// moments collects the checks of a smoke test.
type moments struct {
	test  SmokeTest
	quest *quest
	smoke *report.Smoke
}

// add adds a check; context is what the device holds besides segments.
func (m *moments) add(name, note string, u replay.Usage, context int64) {
	c := report.Check{Name: name, Note: note, Simulated: true, Allocated: u.Allocated, Reserved: u.Reserved, Device: u.Reserved + context}
	c.Safe, c.Fits = c.Device <= m.smoke.Limit, c.Device <= m.quest.budget.Memory
	m.smoke.Checks = append(m.smoke.Checks, c)
}

// training are the moments of the first steps: the guides' three tests and the
// optimizer's first step.
func (m *moments) training(ctx context.Context) error {
	q, c := m.quest, m.quest.lab.c
	run, err := q.replay(ctx, c)
	if err != nil {
		return err
	}
	e, err := q.try(ctx, c.Batch)
	if err != nil {
		return err
	}
	context := e.Components[planner.Context]
	m.smoke.Components = estimateOf(e.Estimate).Components
	if u, ok := at(run, -1, "model"); ok {
		note := "weights and buffers on the device"
		if c.Dataset > 0 {
			note += ", and the data set"
		}
		m.add("model size", note, u.End, context)
	}
	m.add("forward", "the first, with the graph kept", peak(run, 0, "forward"), context)
	m.add("first optimizer step", "its state comes to life", peak(run, 0, "optimizer"), context)
	m.add("training step", fmt.Sprintf("the highest, in %s", phaseName(run.Peak.Phase)), run.Max, context)
	if c.Dataset > 0 {
		c := c
		c.Dataset = 0
		host, err := q.replay(ctx, c)
		if err != nil {
			return err
		}
		m.smoke.Streamed = host.Max.Reserved + context
	}
	if m.test.Device != nil {
		return m.measured(ctx, c)
	}
	return nil
}

// measured is the training step on a device.
func (m *moments) measured(ctx context.Context, c models.Case) error {
	lab := m.quest.lab
	rec, err := lab.record(c.Batch, boardOf(m.quest.gpu))
	if err != nil {
		return err
	}
	defer clear(lab.kept)
	got, err := replay.Measure(ctx, m.test.Device, rec.Program, replay.Conditions{Config: &lab.conf})
	if err != nil {
		return err
	}
	run := measured(got, m.test.Device, c.Batch*c.Accumulate)
	check := report.Check{
		Name: "training step on " + m.test.Device.Name(), Simulated: run.Simulated, Fits: run.Fits, OOM: run.OOM,
		Allocated: run.Allocated, Reserved: run.Reserved, Device: run.Device,
	}
	check.Safe = run.Fits && run.Device <= m.smoke.Limit
	m.smoke.Checks = append(m.smoke.Checks, check)
	return nil
}

// later are the moments that come after hours: validation, saving, the next
// stage, the longest sample.
func (m *moments) later(ctx context.Context) error {
	q, c := m.quest, m.quest.lab.c
	e, err := q.try(ctx, c.Batch)
	if err != nil {
		return err
	}
	context := e.Components[planner.Context]
	k := c
	if m.test.Validation > 0 {
		k.Batch = m.test.Validation
	}
	run, err := q.replay(ctx, k)
	if err != nil {
		return fmt.Errorf("validation: %w", err)
	}
	u := peak(run, 1, "forward")
	m.add(fmt.Sprintf("validation, batch %d", k.Batch), "at most: a forward pass that keeps its graph", u, context)
	if end, ok := at(run, 1, ""); ok {
		m.add("checkpoint save", "copies to the host; the device holds what it held", end.End, context)
	}
	for _, stage := range m.test.Model.Stages {
		if stage == c.Stage {
			continue
		}
		k := c
		k.Stage = stage
		run, err := q.replay(ctx, k)
		if err != nil {
			return fmt.Errorf("stage %s: %w", stage, err)
		}
		m.add("stage "+stage, "if training goes on to it with this batch", run.Max, context)
	}
	if len(m.test.Longest) == 0 {
		return nil
	}
	k = c
	k.Settings = models.Settings{}
	for name, v := range c.Settings {
		k.Settings[name] = v
	}
	for name, v := range m.test.Longest {
		k.Settings[name] = v
	}
	if k, err = m.test.Model.Complete(k); err != nil {
		return err
	}
	if run, err = q.replay(ctx, k); err != nil {
		return fmt.Errorf("longest sample: %w", err)
	}
	m.add("longest sample", "a batch of nothing else", run.Max, context)
	return nil
}

// largest is the batch with which every check would be within the limit. Those
// that depend on the batch grow with it, so the worst of them decides.
func (m *moments) largest(ctx context.Context) (int, error) {
	q, begin := m.quest, m.quest.lab.c
	context := q.tried[trialOf{begin.Batch, begin.Accumulate}].Components[planner.Context]
	stages := slices.Concat([]string{begin.Stage}, m.test.Model.Stages)
	batch, err := largestBatch(begin.Batch, begin.Batch, q.budget.Limit(), func(batch int) (int64, error) {
		var worst int64
		for i, stage := range stages {
			if i > 0 && stage == begin.Stage {
				continue
			}
			k := begin
			k.Stage, k.Batch = stage, batch
			run, err := q.replay(ctx, k)
			if err != nil {
				return 0, err
			}
			worst = max(worst, run.Max.Reserved)
		}
		return worst + context, nil
	})
	return batch, err
}

// replay replays another case of the quest's model on a board without limit.
func (q *quest) replay(ctx context.Context, c models.Case) (*replay.Run, error) {
	lab := *q.lab
	lab.c, lab.kept = c, map[recordedFor]*models.Recording{}
	run, err := lab.endless(ctx, q.gpu, c.Batch)
	if err != nil {
		return nil, err
	}
	return run.Run, nil
}

// at is the last phase of a step, or the one of a name.
func at(run *replay.Run, step int, name string) (replay.Phase, bool) {
	for _, p := range slices.Backward(run.Phases) {
		if p.Step == step && (name == "" || p.Name == name) {
			return p, true
		}
	}
	return replay.Phase{}, false
}

// peak is the highest usage in the phases of a step up to the last of a name;
// a step without such a phase counts whole.
func peak(run *replay.Run, step int, name string) replay.Usage {
	var u replay.Usage
	_, named := at(run, step, name)
	for _, p := range run.Phases {
		if p.Step == step && (!named || p.Name == name) {
			u.Requested, u.Allocated = max(u.Requested, p.Max.Requested), max(u.Allocated, p.Max.Allocated)
			u.Active, u.Reserved = max(u.Active, p.Max.Active), max(u.Reserved, p.Max.Reserved)
		}
	}
	return u
}
