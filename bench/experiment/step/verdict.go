package step

import (
	"context"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/planner"
)

// Judge is the estimate of a trial as reports show it, with the verdict that every command
// gives: where the estimate's interval reaches beyond the board, a replay on the board
// itself decides, of which others hold some bytes. One that runs out of memory does not
// fit, however wide the interval is, and one that has to give cached memory back is slow.
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
