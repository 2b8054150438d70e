package fit

import (
	"cmp"
	"context"

	"github.com/vprof/vprof/bench/experiment/epoch"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
)

// longestCase returns the case for which the batch size is searched: with the longest samples if lengths differ.
func (s *Search) longestCase(c models.Case) (models.Case, error) {
	if s.Lengths == nil {
		return c, nil
	}
	k := c
	k.Batch = cmp.Or(s.Batch, 2) // of one sample alone there is no padding
	k, err := s.Lengths.Longest(s.Model, k)
	k.Batch = c.Batch
	return k, err
}

// checkEpochs replays epochs over the data set's lengths for the recommended choices, of each stage and of all stages
// together. If an epoch runs out of memory, the batch is reduced to the largest that completes the epochs. A choice
// that becomes slower than another loses its recommendation, until all recommended ones complete.
func (s *Search) checkEpochs(ctx context.Context, f *report.Fit) error {
	gpus := s.simulatedGPUs()
	replayed := map[string]bool{}
	for {
		c := nextToMeasure(f, replayed)
		if c == nil {
			return nil
		}
		if err := s.simulateEpochs(ctx, gpus[c.Device], c); err != nil {
			return err
		}
		replayed[c.Case.String()] = true
		rankChoices(f, s.Model.Stages)
	}
}

// simulateEpochs reduces the batch of a choice to the largest that completes the epochs; zero if none does.
func (s *Search) simulateEpochs(ctx context.Context, gpu device.GPU, c *report.Choice) error {
	whole, q, err := s.searchOf(gpu, c.Case.Case)
	if err != nil {
		return err
	}
	defer q.judge.FreeRecordings()
	q.max = c.Batch
	gpus := s.batchesOf(c.Case.Case)
	e := epoch.Search{
		Setup: whole, Judge: q.judge, Lengths: s.Lengths, SingleEpoch: q.fixedBatch > 0,
		Results: map[int]*report.Lengths{},
		Options: epoch.Options{OtherProcessBytes: s.Others, Progress: s.Progress},
		SplitBatch: func(ctx context.Context, largest int) (batch, steps int, err error) {
			if s.Effective == 0 {
				return roundDown(largest, q.multiple), whole.Case().Accumulate, nil
			}
			return q.splitEffective(ctx, (s.Effective+gpus-1)/gpus, largest)
		},
	}
	batch, steps, err := e.Largest(ctx, c.Batch)
	if err != nil {
		return err
	}
	// If no batch is safe, the report has the lengths of the smallest batch, or of the fixed one.
	c.Lengths = cmp.Or(e.Results[cmp.Or(batch, 1)], e.Results[c.Batch])
	if batch == c.Batch {
		return nil
	}
	c.Largest, c.LargestIsCapped, c.Batch, c.EffectiveBatch = batch, false, batch, 0
	if batch == 0 {
		c.StepSeconds, c.SamplesPerSecond = 0, 0
		return nil
	}
	c.EffectiveBatch = batch * steps * gpus
	c.Case.Accumulate = steps
	return q.describe(ctx, c, c.Batch, steps)
}
