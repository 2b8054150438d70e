package experiment

import (
	"context"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/device"
)

// Plan estimates every batch size on a board. What is to be said of all boards of a
// plan together, as [Unsupported] does, its report does not have.
func (s *Setup) Plan(ctx context.Context, gpu device.GPU, batches []int) (*report.Report, error) {
	r := s.report(report.Plan, gpu)
	r.Warnings = s.caveats()
	for _, batch := range batches {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		e, rec, err := s.estimated(ctx, gpu, batch)
		if err != nil {
			return nil, err
		}
		if err := s.describe(r, gpu, rec); err != nil {
			return nil, err
		}
		point := report.Point{Batch: batch, Device: simName(gpu), Estimate: estimateOf(e), Claims: s.claimed(gpu, batch)}
		if point.Streamed, err = s.streamed(ctx, gpu, batch); err != nil {
			return nil, err
		}
		r.Points = append(r.Points, point)
	}
	return r, nil
}
