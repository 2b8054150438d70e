package step

import (
	"context"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

// SteadyStep is the step of a recording whose work is that of all further ones: the first
// makes the optimizer's state besides.
const SteadyStep = steadyStep

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

// Report converts the simulation for a report.
func (s *Simulation) Report() *report.Run {
	out := reportOf(s.Run, s.GPU.Memory-s.GPU.Context)
	out.Simulated, out.Device = true, s.Device
	return out
}

// Measured converts a measurement for a report; a step trains a number of samples.
func Measured(m *replay.Measurement, d device.Device, samples int) *report.Run {
	return measured(m, d, samples)
}

// ReplayUnlimited replays a program on a simulated board that is like gpu but has
// more memory than any step needs, since an estimate must go on where the board's
// memory ends.
func (s *Setup) ReplayUnlimited(ctx context.Context, gpu device.GPU, p *program.Program) (*Simulation, error) {
	conf := s.conf
	gpu.Memory = unlimited
	conf.MemoryFraction, conf.GarbageCollection = 1, 0
	return Simulate(ctx, p, gpu, conf, 0)
}

// Expandable is as [Setup.IfExpandable], of a recording.
func (s *Setup) Expandable(ctx context.Context, e *report.Estimate, gpu device.GPU, rec *models.Recording) (*report.Interval, error) {
	t := s.Trial(gpu, rec.Case.Batch)
	t.recording = rec
	return s.IfExpandable(ctx, e, gpu, &Result{trial: t})
}
