package step

import (
	"context"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/planner"
)

// Judge is the estimate of a trial as reports show it, with the verdict that every command
// gives. Where the board's memory lies within the estimate's interval, a replay on the board
// decides, of which other processes hold some bytes: the case does not fit if the replay runs
// out of memory, however wide the interval is, and is slow if the replay has to give cached
// memory back.
func (s *Setup) Judge(ctx context.Context, e planner.Estimate, r *Result, others int64) (*report.Estimate, error) {
	out := EstimateOf(e)
	if out.Verdict != report.Tight {
		return out, nil
	}
	on, err := s.Try(ctx, r.Again(Replay{Within: true, Others: others}))
	if err != nil {
		return nil, err
	}
	out.Verdict = on.Report().Judge(out.Verdict)
	return out, nil
}
