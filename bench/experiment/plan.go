package experiment

import (
	"context"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
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
		if err := s.settle(ctx, point.Estimate, gpu, rec); err != nil {
			return nil, err
		}
		if point.Streamed, err = s.streamed(ctx, gpu, batch); err != nil {
			return nil, err
		}
		r.Points = append(r.Points, point)
	}
	return r, nil
}

// settle tries a tight fit: whether PyTorch can give back enough of its cache is
// what a replay on the board itself tells. One that runs out of memory does not
// fit, however wide the estimate's interval is.
func (s *Setup) settle(ctx context.Context, e *report.Estimate, gpu device.GPU, rec *models.Recording) error {
	if e.Verdict != report.Tight {
		return nil
	}
	run, err := simulate(ctx, rec.Program, gpu, s.conf, 0)
	if err == nil && run.OOM != nil {
		e.Verdict = report.DoesNotFit
	}
	return err
}
