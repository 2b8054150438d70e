package main

import (
	"context"
	"errors"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/job"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
)

// planRanks plans all ranks that differ.
func (o *planOptions) planRanks(ctx context.Context, here *job.Local, m models.Model, cases []report.Case,
	gpus []device.GPU, batches []int,
) error {
	switch {
	case len(cases) > 1:
		return usagef("--rank: a table of all ranks is of one release of PyTorch; --torch names %d", len(cases))
	case o.request != "":
		return usagef("--request asks for the memory of one rank, and --rank %s shows several", allRanks)
	case o.lengths.source != "":
		return usagef("--lengths: an epoch of samples is replayed for one rank; name it with --rank")
	}
	if part, err := o.part.open(); part || err != nil {
		if err == nil {
			err = usagef("--shard: a table of all ranks is made in one piece")
		}
		return err
	}
	if err := o.out.open(); err != nil {
		return err
	}
	started := o.app.now().UTC()
	ranks, err := rankPlans(ctx, here, m, cases[0], gpus, batches)
	if err != nil {
		return err
	}
	warnings := step.Unsupported(gpus, cases[0].Case)
	for _, r := range ranks {
		r.Plan.Warnings = append(r.Plan.Warnings, warnings...)
		o.app.stamp(r.Plan, started)
	}
	return o.out.finish(ranks)
}

// rankPlans finds the ranks of a case that differ, and plans each.
func rankPlans(ctx context.Context, here *job.Local, m models.Model, c report.Case, gpus []device.GPU,
	batches []int,
) (report.Ranks, error) {
	first := c.Case
	first.Batch = batches[0]
	found, err := m.DifferentRanks(first, step.BoardOf(gpus[0]), models.Options{Context: ctx})
	if err != nil {
		var impossible *models.CaseError
		if errors.As(err, &impossible) || errors.Is(err, context.Canceled) {
			return nil, err
		}
		return nil, usageError{err}
	}
	var out report.Ranks
	for _, r := range found {
		strategy := *c.Strategy
		strategy.Rank = &r.First
		one := c
		one.Strategy = &strategy
		plan, err := job.RunAll(ctx, here, job.Plan(one, gpus, batches), "boards", nil)
		if err != nil {
			return nil, err
		}
		out = append(out, report.RankPlan{RankRange: r, Plan: plan})
	}
	out.Sort()
	return out, nil
}

// ranksOf plans the ranks of a run's case that differ, at one of its batch sizes; none
// where one GPU trains, and where there are too many to compare.
func ranksOf(ctx context.Context, a *app, r *report.Report, batch int) (report.Ranks, error) {
	if r.Case.Strategy == nil || len(r.Points) == 0 {
		return nil, nil
	}
	if batch == 0 {
		batch = largestFit(r)
	}
	setup, gpu, err := a.again(r.Case, r.Devices[0])
	if err != nil {
		return nil, err
	}
	here := &job.Local{Models: a.models(), Evidence: step.Evidence{Residuals: a.residuals}}
	ranks, err := rankPlans(ctx, here, setup.Model(), r.Case, []device.GPU{gpu}, []int{batch})
	if errors.Is(err, context.Canceled) {
		return nil, err
	}
	if err != nil {
		return nil, nil //nolint:nilerr // the page says of the step what is wrong, and shows the rest
	}
	return ranks, nil
}
