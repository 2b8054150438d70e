package sweep

import (
	"context"

	"github.com/vprof/vprof/bench/experiment/claims"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/device"
)

// Plan estimates every batch size on a board. Warnings that depend on all boards of a
// plan, as those of [step.Unsupported] do, are left to the caller.
func Plan(ctx context.Context, s *step.Setup, gpu device.GPU, batches []int) (*report.Report, error) {
	r := s.Report(report.Plan, gpu)
	r.Warnings = s.Warnings()
	for i, batch := range batches {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		e, rec, err := s.Estimated(ctx, gpu, batch)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			if err := s.Describe(r, gpu, rec); err != nil {
				return nil, err
			}
		}
		point := report.Point{Batch: batch, Device: step.SimName(gpu), Claims: claims.Of(s, gpu, batch), Workspaces: step.WorkspacesOf(rec)}
		if point.Estimate, err = s.Judge(ctx, e, gpu, rec.Program, 0); err != nil {
			return nil, err
		}
		if point.Expandable, err = s.Expandable(ctx, point.Estimate, gpu, rec); err != nil {
			return nil, err
		}
		if point.Streamed, err = s.Streamed(ctx, gpu, batch); err != nil {
			return nil, err
		}
		r.Points = append(r.Points, point)
	}
	return r, nil
}
