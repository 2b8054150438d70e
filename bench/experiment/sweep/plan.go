package sweep

import (
	"context"

	"github.com/vprof/vprof/bench/experiment/claims"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
)

// Plan estimates every batch size on a board. What is to be said of all boards of a
// plan together, as [step.Unsupported] does, its report does not have.
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
		point := report.Point{Batch: batch, Device: step.SimName(gpu), Estimate: step.EstimateOf(e), Claims: claims.Of(s, gpu, batch)}
		if err := settle(ctx, s, point.Estimate, gpu, rec); err != nil {
			return nil, err
		}
		if point.Streamed, err = s.Streamed(ctx, gpu, batch); err != nil {
			return nil, err
		}
		r.Points = append(r.Points, point)
	}
	return r, nil
}

// settle tries a tight fit: whether PyTorch can give back enough of its cache is
// what a replay on the board itself tells. One that runs out of memory does not
// fit, however wide the estimate's interval is.
func settle(ctx context.Context, s *step.Setup, e *report.Estimate, gpu device.GPU, rec *models.Recording) error {
	if e.Verdict != report.Tight {
		return nil
	}
	run, err := step.Simulate(ctx, rec.Program, gpu, s.Allocator(), 0)
	if err == nil && run.OOM != nil {
		e.Verdict = report.DoesNotFit
	}
	return err
}
