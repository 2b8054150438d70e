package fit

import (
	"context"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/models"
)

// AnyStrategy is the strategy of a search that goes through several.
const AnyStrategy = "auto"

// StrategiesFor are the strategies that a search of a case goes through. Parameters in
// half precision are for cases without autocast, which they take the place of.
func StrategiesFor(c models.Case) []string {
	all := []string{"ddp:bucket_view=true", "zero1:bucket_view=true", "fsdp2", "fsdp2:reshard=false"}
	if c.AMP == models.NoAutocast && c.Weights == models.FP32 {
		all = append(all, "fsdp2:mp=bf16", "fsdp2:mp=bf16,reshard=false")
	}
	return all
}

// batchesOf is how many batches the GPUs that train a case see at a time.
func (s *Search) batchesOf(c models.Case) int { return max(1, s.Parallel.GPUs, c.Batches()) }

// surveys reports whether configurations are read off lines, and what is recommended
// is confirmed.
func (s *Search) surveys() bool { return len(s.GPUs) > 1 || s.Ranks.Strategy == AnyStrategy }

// leastGPUs is the smallest power of two of GPUs, or the number of the search, on which
// a configuration fits with one sample; zero if none does.
func (s *Search) leastGPUs(ctx context.Context) (int, error) {
	for n := 1; ; n = min(2*n, s.Ranks.GPUs) {
		for _, c := range s.Cases {
			if n == 1 {
				c.GPUs, c.Strategy = 0, nil
			} else {
				c.GPUs = n
			}
			c.Accumulate = step.RecordedSteps(c.Accumulate)
			fits, err := s.fitsOne(ctx, c)
			if err != nil || fits {
				return n, err
			}
		}
		if n == s.Ranks.GPUs {
			return 0, nil
		}
	}
}

// fitsOne reports whether one sample of a case fits. What PyTorch refuses does not.
func (s *Search) fitsOne(ctx context.Context, c models.Case) (bool, error) {
	setup, err := step.New(s.Model, c, s.Evidence)
	if err == nil {
		var q *batchSearch
		if q, err = s.batchSearch(setup, s.GPUs[0]); err != nil {
			return false, err
		}
		defer q.end()
		t, tried := q.try(ctx, 1, c.Accumulate)
		if err = tried; err == nil {
			return q.budget.Need(t.Estimate) <= q.budget.Limit(), nil
		}
	}
	if step.Refused(err) {
		return false, nil
	}
	return false, err
}
