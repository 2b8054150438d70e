package fit

import (
	"cmp"
	"context"
	"math"

	"github.com/vprof/vprof/bench/experiment/epoch"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

// longest returns a case with the longest samples that there are, if they differ in length:
// what a batch size is searched for.
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

// survive replays epochs over the lengths of the data set with what is recommended, for each stage and for all of them
// together. Where one runs out of memory, the batch comes down to the largest that gets through, and what is then
// slower than another loses its recommendation, until every recommended choice gets through.
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

// throughEpochs brings the batch of a choice down to the largest with which epochs get through; zero if none does.
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
	e := epochSearch{
		search: s, batch: q, whole: whole, gpu: gpu, samples: (s.Effective + gpus - 1) / gpus,
		of: map[int]*report.Lengths{},
	}
	batch, steps, err := e.find(ctx, c.Batch)
	if err != nil {
		return err
	}
	c.Lengths = e.of[cmp.Or(batch, 1)]
	if c.Lengths == nil { // the one batch to try
		c.Lengths = e.of[c.Batch]
	}
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

// epochSearch is the search for the largest batch with which epochs get through.
type epochSearch struct {
	search *Search
	batch  *batchSearch
	whole  *step.Setup
	gpu    device.GPU
	// samples is the number of samples that an optimizer step should see; zero is any.
	samples int
	// of are the epochs by batch size.
	of map[int]*report.Lengths
}

// find returns the largest batch up to one that was found without epochs: a quick look
// leads there, all epochs must then agree. Both are zero if there is none.
func (e *epochSearch) find(ctx context.Context, to int) (batch, steps int, err error) {
	quick := epoch.Options{Others: e.search.Others}.Quick()
	begin := planner.Start{Batch: to, Near: true}
	largest, err := e.batch.search(&planner.Search{Begin: begin, Runs: true, Need: func(batch int) (int64, error) {
		_, steps, err := e.shared(ctx, batch)
		if err != nil {
			return 0, err
		}
		return e.need(ctx, batch, steps, quick)
	}})
	all := epoch.Options{Others: e.search.Others, Progress: e.search.Progress}
	for ; err == nil && largest > 0; largest = batch - 1 {
		if batch, steps, err = e.shared(ctx, largest); err != nil {
			break
		}
		var need int64
		if need, err = e.need(ctx, batch, steps, all); err == nil && need <= e.batch.judge.Budget.Limit() {
			return batch, steps, nil
		}
		if e.batch.given > 0 {
			break
		}
		if batch == 1 && raised(err) {
			err = nil // no batch that the model takes gets through
		}
	}
	return 0, 0, err
}

// need returns the number of bytes of the device that replayed epochs take at a batch size, or
// [math.MaxInt64] if the allocator ran out of memory or gave cached memory back in one.
func (e *epochSearch) need(ctx context.Context, batch, steps int, o epoch.Options) (int64, error) {
	l, err := epoch.Run(ctx, e.whole.Accumulating(steps), e.gpu, batch, e.search.Lengths, o)
	if err != nil {
		return 0, err
	}
	if e.of[batch] = l; l.Epochs.Strained() {
		return math.MaxInt64, nil
	}
	d := l.MostDevice
	return e.batch.judge.Budget.Need(planner.Estimate{
			Device: planner.Interval{Value: d.Bytes, Low: d.Low, High: d.High},
		}),
		nil
}

// shared returns the batch up to a size that shares out the samples of an optimizer step among
// micro-batches, and their number.
func (e *epochSearch) shared(ctx context.Context, largest int) (batch, steps int, err error) {
	if e.samples == 0 {
		return rounded(largest, e.batch.multiple), e.whole.Case().Accumulate, nil
	}
	return e.batch.share(ctx, e.samples, largest)
}
