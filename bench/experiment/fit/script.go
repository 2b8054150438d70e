package fit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/planner"
)

// Profiles returns recommendations for the parts of training that the script of the model's project tells apart, with
// the precision of its authors, within the budget of the search on its one GPU. The search or else the script gives the
// effective batch.
func Profiles(ctx context.Context, s Search, lookup func(string) (models.Model, error)) ([]report.Profile, error) {
	script := s.Model.Script
	s.Effective = cmp.Or(s.Effective, script.EffectiveBatch())
	parts := script.Parts()
	out := make([]report.Profile, len(parts))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range parts {
		g.Go(func() (err error) {
			s := s
			if s.Model, err = lookup(p.Model); err != nil {
				return err
			}
			c := s.inCommon(s.Model.Default)
			choice, refused, err := s.choice(ctx, s.GPUs[0], c, planner.Start{Batch: c.Batch})
			if err = errors.Join(refused, err); err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
			out[i] = report.Profile{Name: p.Name, Settings: p.Settings, Choice: choice}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return out, nil
}

// Script returns what the script of the model's project recommends for the one GPU of a search, part by part, each with
// what its batch needs in truth and the largest batch within the budget: by a recording with the authors' precision.
func Script(ctx context.Context, s Search, lookup func(string) (models.Model, error)) ([]report.GuideProfile, error) {
	script := s.Model.Script
	effective := cmp.Or(s.Effective, script.EffectiveBatch())
	var out []report.GuideProfile
	for _, p := range script.Parts() {
		advice := script.Recommend(p, s.GPUs[0].Memory, effective)
		g := report.GuideProfile{
			Profile: p.Name, Batch: advice.Batch, Accumulate: advice.Accumulate,
			EffectiveBatch: advice.Batch * advice.Accumulate,
			Utilization:    advice.Utilization,
		}
		for _, c := range advice.Components {
			g.Components = append(g.Components, report.Component(c))
			g.Total += c.Bytes
		}
		m, err := lookup(p.Model)
		if err != nil {
			return nil, err
		}
		if err := s.verify(ctx, m, &g); err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

// verify adds to what a script says what is true.
func (s *Search) verify(ctx context.Context, m models.Model, g *report.GuideProfile) error {
	c := s.inCommon(m.Default)
	c.Accumulate = step.RecordedSteps(g.Accumulate)
	setup, err := step.New(m, c, s.Evidence)
	if err != nil {
		return err
	}
	q, err := s.batchSearch(setup, s.GPUs[0])
	if err != nil {
		return err
	}
	defer q.judge.End()
	t, err := q.try(ctx, g.Batch, c.Accumulate)
	if err != nil {
		return err
	}
	g.True = step.EstimateOf(t.Loops[0].Estimate)
	g.TrueLargest, err = q.largest(ctx, c.Accumulate, q.max)
	return err
}

// inCommon returns a case with what all cases of the search have: allocator settings and the release of PyTorch.
func (s *Search) inCommon(c models.Case) models.Case {
	if len(s.Cases) > 0 {
		c.AllocConf, c.Torch = s.Cases[0].AllocConf, s.Cases[0].Torch
	}
	return c
}
