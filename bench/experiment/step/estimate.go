package step

import (
	"context"
	"errors"
	"fmt"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

// Sample replays a recording without a memory limit, for an estimate.
func (s *Setup) Sample(ctx context.Context, gpu device.GPU, rec *models.Recording) (planner.Sample, error) {
	run, err := s.ReplayUnlimited(ctx, gpu, rec.Program)
	if err != nil {
		return planner.Sample{}, err
	}
	sample := SampleOf(run, rec.Case.Batch)
	sample.Managed = rec.Facts.Managed
	return sample, nil
}

// SampleOf is the peak of a run at a batch size, as the planner takes it.
func SampleOf(run *Simulation, batch int) planner.Sample {
	return planner.Sample{
		Batch: batch, Classes: run.Peak.Allocated, Reserved: run.Max.Reserved,
		Segments: run.Stats.Segment[allocator.All].Current, PeakPhase: PhaseName(run.Peak.Phase),
	}
}

// Planner makes estimates on a board, by interpolation between samples at some batch
// sizes.
func (s *Setup) Planner(gpu device.GPU, samples ...planner.Sample) (*planner.Planner, error) {
	known := map[int]planner.Sample{}
	var batches []int
	for _, sample := range samples {
		known[sample.Batch] = sample
		batches = append(batches, sample.Batch)
	}
	curve, err := planner.Draw(batches, func(batch int) (planner.Sample, error) { return known[batch], nil })
	if err != nil {
		return nil, err
	}
	c, err := s.Coefficients(gpu)
	if err != nil {
		return nil, err
	}
	return &planner.Planner{
		Curve: curve, Coefficients: c,
		Memory: int64(float64(gpu.Memory) * s.conf.MemoryFraction),
	}, nil
}

// Estimate is what a sample needs on a board, with its interval.
func (s *Setup) Estimate(gpu device.GPU, sample planner.Sample) (planner.Estimate, error) {
	p, err := s.Planner(gpu, sample)
	if err != nil {
		return planner.Estimate{}, err
	}
	return p.Estimate(sample.Batch)
}

// Estimated records the case at a batch size and estimates what it needs on a
// board.
func (s *Setup) Estimated(ctx context.Context, gpu device.GPU, batch int) (planner.Estimate, *models.Recording, error) {
	rec, err := s.Record(ctx, batch, gpu)
	if err != nil {
		return planner.Estimate{}, nil, err
	}
	sample, err := s.Sample(ctx, gpu, rec)
	if err != nil {
		return planner.Estimate{}, nil, err
	}
	e, err := s.Estimate(gpu, sample)
	return e, rec, err
}

// Coefficients are the planner's coefficients for the case on a board.
func (s *Setup) Coefficients(gpu device.GPU) (planner.Coefficients, error) {
	c, err := s.evidence.Coefficients(gpu, planner.Subject{Model: s.model.Name, Release: s.c.ReleaseName()})
	if r := s.c.Strategy; r != nil {
		c.Communication = planner.CommunicationOf(gpu, r.Communicators())
	}
	return c, err
}

// Streamed estimates what the device would show at a batch size if the data
// set came from the host; nil if it does.
func (s *Setup) Streamed(ctx context.Context, gpu device.GPU, batch int) (*report.Interval, error) {
	if s.c.Dataset == 0 {
		return nil, nil
	}
	host := *s
	host.c.Dataset = 0
	e, _, err := host.Estimated(ctx, gpu, batch)
	if err != nil {
		return nil, err
	}
	device := IntervalOf(e.Device)
	return &device, nil
}

// What expandable segments must spare of the device bytes to be worth saying.
const (
	sparedBytes = 256 << 20
	sparedShare = 0.05
)

// Expandable estimates what the device would show with expandable segments; nil if
// they are on already, or would spare little of an estimate.
func (s *Setup) Expandable(ctx context.Context, e *report.Estimate, gpu device.GPU, rec *models.Recording) (*report.Interval, error) {
	worth := max(sparedBytes, int64(sparedShare*float64(e.Device.Bytes)))
	if s.conf.Expandable || e.Reserved.Bytes-e.Allocated.Bytes < worth {
		return nil, nil
	}
	other := *s
	other.conf.Expandable = true
	sample, err := other.Sample(ctx, gpu, rec)
	if err != nil {
		return nil, err
	}
	then, err := other.Estimate(gpu, sample)
	if err != nil || e.Device.Bytes-then.Device.Value < worth {
		return nil, err
	}
	device := IntervalOf(then.Device)
	return &device, nil
}

// SteadyStep is the step of a recording whose work is that of all further
// ones: the first makes the optimizer's state besides.
const SteadyStep = 1

// LargestBatch is the largest batch size up to a maximum whose need, in bytes, is
// within a limit; zero if none is. The search begins at one size and goes from one,
// or from two if PyTorch refuses one, as batch norm does.
func LargestBatch(begin planner.Start, to int, limit int64, need func(int) (int64, error)) (int, error) {
	largest, err := planner.Largest(1, begin, to, limit, need)
	var refused *RefusedError
	if errors.As(err, &refused) && to > 1 {
		return planner.Largest(2, begin, to, limit, need)
	}
	return largest, err
}

// Budget completes a budget for a board: the memory that it is of is the board's, as
// far as the allocator settings let the process have it, less what others hold. The
// error says that nothing is left.
func (s *Setup) Budget(b planner.Budget, gpu device.GPU, others int64) (planner.Budget, error) {
	b.Memory = int64(float64(gpu.Memory)*s.conf.MemoryFraction) - others
	if err := b.Check(); err != nil {
		return b, fmt.Errorf("%s: %w", gpu.Name, err)
	}
	return b, nil
}
