package smoke

import (
	"context"

	"github.com/vprof/vprof/bench/experiment/epoch"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/planner"
)

// components returns the breakdown of the training step's peak, always simulated: a device run may end before it.
func (m *checks) components(ctx context.Context, l *judge.Loop) ([]report.Component, error) {
	if l.Steps.Measured == nil {
		return step.EstimateOf(l.Estimate).Components, nil
	}
	e, err := m.estimateCase(ctx, m.setup.Case())
	return step.EstimateOf(e).Components, err
}

// estimateCase returns an estimate of the training steps of a case.
func (m *checks) estimateCase(ctx context.Context, c models.Case) (e planner.Estimate, err error) {
	r, err := m.setup.Try(ctx, m.setup.WithCase(c).Trial(m.test.GPU, c.Batch))
	if err != nil {
		return e, err
	}
	return m.judge.Estimate(m.setup, r, r.Run.Max)
}

// checkEpochs checks whether epochs over samples of different lengths complete. All further checks then use the worst
// batch of these epochs. It does nothing if all samples have the same length.
func (m *checks) checkEpochs(ctx context.Context) error {
	m.wholeSetup = m.setup
	if m.test.Lengths == nil {
		return nil
	}
	c := m.setup.Case()
	l, err := epoch.Run(ctx, m.wholeSetup, m.test.GPU, c.Batch, m.test.Lengths,
		epoch.Options{OtherProcessBytes: m.test.Others, Progress: m.test.Progress})
	if err != nil {
		return err
	}
	m.epoch = new(m.judge.CheckEpochs(l))
	m.epoch.Name, m.epoch.Note = "epoch", "samples of different lengths, one allocator"
	m.setup = m.setup.WithCase(m.test.Lengths.WorstCase(m.test.Model, c, l))
	return nil
}

// largestOfEpochs returns the largest batch, up to a limit, whose epochs stay within the budget; zero if there is none.
func (m *checks) largestOfEpochs(ctx context.Context, to int) (int, error) {
	s := epoch.Search{
		Setup: m.wholeSetup, Judge: m.judge, Lengths: m.test.Lengths,
		Options: epoch.Options{
			OtherProcessBytes: m.test.Others, MemoryLimit: m.judge.Budget.Limit(),
			Progress: m.test.Progress,
		},
		Results: map[int]*report.Lengths{m.smoke.Batch: m.epoch.Lengths},
	}
	largest, _, err := s.Largest(ctx, to)
	return largest, err
}
