package fit

import (
	"cmp"
	"context"

	"github.com/vprof/vprof/bench/experiment/epoch"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
)

// longest returns the case for which a batch size is searched: with the longest samples, if they differ in length.
func (s *Search) longest(c models.Case) (models.Case, error) {
	if s.Lengths == nil {
		return c, nil
	}
	k := c
	k.Batch = cmp.Or(s.Batch, 2) // of one sample alone there is no padding
	k, err := s.Lengths.Longest(s.Model, k)
	k.Batch = c.Batch
	return k, err
}

// survive replays epochs over the data set's lengths with the recommended choices, for each stage and for all of them
// together. If an epoch runs out of memory, the batch is reduced to the largest that completes the epochs. A choice
// that is then slower than another loses its recommendation, until every recommended choice completes them.
func (s *Search) survive(ctx context.Context, f *report.Fit) error {
	gpus := s.gpus()
	replayed := map[string]bool{}
	for {
		c := next(f, replayed)
		if c == nil {
			return nil
		}
		if err := s.throughEpochs(ctx, gpus[c.Device], c); err != nil {
			return err
		}
		replayed[c.Case.String()] = true
		rank(f, s.Model.Stages)
	}
}

// throughEpochs reduces the batch of a choice to the largest that completes the epochs; zero if none does.
func (s *Search) throughEpochs(ctx context.Context, gpu device.GPU, c *report.Choice) error {
	whole, err := step.New(s.Model, c.Case.Case, s.Evidence)
	if err != nil {
		return err
	}
	k, err := s.longest(whole.Case())
	if err != nil {
		return err
	}
	q, err := s.batchSearch(whole.For(k), gpu)
	if err != nil {
		return err
	}
	defer q.judge.End()
	q.max = c.Batch
	gpus := s.batchesOf(c.Case.Case)
	e := epoch.Search{
		Setup: whole, Judge: q.judge, Lengths: s.Lengths, Once: q.given > 0, Seen: map[int]*report.Lengths{},
		Options: epoch.Options{Others: s.Others, Progress: s.Progress},
		Share: func(ctx context.Context, largest int) (batch, steps int, err error) {
			if s.Effective == 0 {
				return rounded(largest, q.multiple), whole.Case().Accumulate, nil
			}
			return q.share(ctx, (s.Effective+gpus-1)/gpus, largest)
		},
	}
	batch, steps, err := e.Largest(ctx, c.Batch)
	if err != nil {
		return err
	}
	c.Lengths = cmp.Or(e.Seen[cmp.Or(batch, 1)], e.Seen[c.Batch]) // of the smallest, or the one to try, if none is safe
	if batch == c.Batch {
		return nil
	}
	c.Largest, c.Capped, c.Batch, c.EffectiveBatch = batch, false, batch, 0
	if batch == 0 {
		c.StepSeconds, c.SamplesPerSecond = 0, 0
		return nil
	}
	c.EffectiveBatch = batch * steps * gpus
	c.Case.Accumulate = steps
	return q.describe(ctx, c, c.Batch, steps)
}
