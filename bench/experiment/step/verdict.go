package step

import (
	"context"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
)

// Judge is an estimate as reports show it, with the verdict that every command gives:
// where the estimate's interval reaches beyond the board, a replay on the board itself
// decides, of which others hold some bytes. One that runs out of memory does not fit,
// however wide the interval is, and one that has to give cached memory back is slow.
func (s *Setup) Judge(ctx context.Context, e planner.Estimate, gpu device.GPU, p *program.Program, others int64) (*report.Estimate, error) {
	out := EstimateOf(e)
	if out.Verdict != report.Tight {
		return out, nil
	}
	run, err := Simulate(ctx, p, gpu, s.conf, others)
	if err != nil {
		return nil, err
	}
	out.Verdict = run.Report().Judge(out.Verdict)
	return out, nil
}
