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
		e, tried, err := s.Estimated(ctx, gpu, batch)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			if err := s.Describe(r, gpu, tried); err != nil {
				return nil, err
			}
		}
		point := report.Point{Batch: batch, Device: step.SimName(gpu)}
		if point.Estimate, err = s.Judge(ctx, e, tried, 0); err != nil {
			return nil, err
		}
		if err := complete(ctx, s, gpu, tried, &point); err != nil {
			return nil, err
		}
		if point.Estimate.Unsafe, err = s.Unsafe(ctx, gpu, e, 0); err != nil {
			return nil, err
		}
		r.Points = append(r.Points, point)
	}
	return r, nil
}

// complete adds to a point with an estimate what else a trial shows: claims of guides,
// answered convolutions, and what other settings would need.
func complete(ctx context.Context, s *step.Setup, gpu device.GPU, r *step.Result, p *report.Point) (err error) {
	p.Claims, p.Workspaces = claims.Of(s, gpu, p.Batch), step.WorkspacesOf(r.Facts)
	if p.Expandable, err = s.Expandable(ctx, p.Estimate, gpu, r); err != nil {
		return err
	}
	p.Streamed, err = s.Streamed(ctx, gpu, p.Batch)
	return err
}
