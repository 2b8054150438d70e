package epoch

import (
	"context"
	"errors"
	"maps"
	"math"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/planner"
)

// Search finds the largest batch with which epochs over samples of different lengths do not run out of memory.
type Search struct {
	// Setup is the case with samples of the greatest length. Judge holds the GPU and the budget.
	Setup   *step.Setup
	Judge   *judge.Judge
	Lengths *Lengths
	Options Options
	// SingleEpoch reports whether only one batch size is tried.
	SingleEpoch bool
	// SplitBatch returns the largest batch up to a size, and its number of micro-batches. If it is nil, the batch is
	// that size, with the case's number of micro-batches.
	SplitBatch func(ctx context.Context, largest int) (batch, steps int, err error)
	// Results are the results by batch size. Those from before the search cover all epochs.
	Results map[int]*report.Lengths
}

// Largest returns the largest batch up to a given size, and its number of micro-batches; zeros if there is none. A few
// epochs find a candidate, which all epochs must confirm.
func (s *Search) Largest(ctx context.Context, to int) (batch, steps int, err error) {
	limit := s.Judge.Budget.Limit()
	replayed := maps.Clone(s.Results)
	look := func(batch, steps int, o Options) (int64, error) {
		l, err := replayed[batch], error(nil)
		if l == nil {
			l, err = Run(ctx, s.Setup.WithAccumulation(steps), s.Judge.GPU, batch, s.Lengths, o)
		}
		if err != nil {
			return 0, err
		}
		s.Results[batch] = l
		if l.Epochs.RanShortOfMemory() {
			return math.MaxInt64, nil
		}
		return s.Judge.CheckEpochs(l).Need, nil
	}
	largest := to
	if !s.SingleEpoch {
		largest, err = judge.Largest(&planner.BatchSearch{
			From: 1, To: to, Start: planner.Start{Batch: to, IsNear: true}, Limit: limit, NeedIsSlow: true,
			Need: func(size int) (int64, error) {
				_, steps, err := s.splitBatch(ctx, size)
				if err != nil {
					return 0, err
				}
				return look(size, steps, s.Options.ForSearch())
			},
		})
	}
	for ; err == nil && largest > 0; largest = batch - 1 {
		if batch, steps, err = s.splitBatch(ctx, largest); err != nil {
			break
		}
		need, failed := look(batch, steps, s.Options)
		switch {
		case failed == nil && need <= limit:
			return batch, steps, nil
		case batch == 1 && errors.As(failed, new(*step.RefusedError)): // no batch that the model takes gets through
			return 0, 0, nil
		case failed != nil || s.SingleEpoch:
			return 0, 0, failed
		}
	}
	return 0, 0, err
}

// splitBatch returns the largest batch up to a size, and its number of micro-batches.
func (s *Search) splitBatch(ctx context.Context, largest int) (batch, steps int, err error) {
	if s.SplitBatch == nil {
		return largest, s.Setup.Case().Accumulate, nil
	}
	return s.SplitBatch(ctx, largest)
}
