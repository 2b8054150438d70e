package step

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"time"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/profile"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/sim"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
	"github.com/vprof/vprof/profiler/trace"
)

// RecorderGPU returns those properties of a GPU on which a recording depends.
func RecorderGPU(gpu device.GPU) trace.GPU {
	return trace.GPU{
		Name: gpu.Name, Capability: int(gpu.Capability), SMs: gpu.SMs, ThreadsPerSM: gpu.ThreadsPerSM,
		Memory: gpu.Memory,
	}
}

// Record records training steps of the case at the given batch size. The error is a [*models.CaseError] if the case is
// impossible, and a [*RefusedError] if PyTorch would raise an error.
func (s *Setup) Record(ctx context.Context, batch int, gpu device.GPU) (*models.Recording, error) {
	c := s.c
	c.Batch = batch
	return s.RecordCase(ctx, c, gpu, models.Options{})
}

// RecordCase records any case of the setup's model, with errors as in Record, or [trace.ErrCeiling] above a memory cap.
func (s *Setup) RecordCase(ctx context.Context, c models.Case, gpu device.GPU,
	o models.Options,
) (*models.Recording, error) {
	if runtime.GOOS == "js" { // JavaScript's messages, as a cancellation, arrive only while every goroutine waits
		time.Sleep(time.Millisecond)
	}
	o.Context, o.NoKernels = ctx, s.evidence.NoKernels
	rec, err := s.model.RecordComplete(c, RecorderGPU(gpu), o)
	switch {
	case errors.As(err, new(*models.CaseError)), errors.Is(err, trace.ErrCeiling), err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		return nil, &RefusedError{fmt.Errorf("%s: batch %d: %w", s.model.Name, c.Batch, err)}
	}
	return rec, nil
}

// Events records training steps of the case at a batch size, with the source line of the model for each event.
func (s *Setup) Events(ctx context.Context, gpu device.GPU, batch, steps int) (*program.Program, error) {
	c := s.c
	c.Batch = batch
	rec, err := s.RecordCase(ctx, c, gpu, models.Options{Steps: steps, Annotate: true})
	if err != nil {
		return nil, err
	}
	return rec.Program, nil
}

// StepsToRecord returns the number of micro-batches to record for a step with n of them, for values that are only
// interpolated or compared; verdicts record more. Gradients exist from the second micro-batch on, so all later ones
// allocate the same bytes within a thousandth. Reserved bytes may differ by several percent.
func StepsToRecord(n int) int { return min(n, 2) }

// Simulation is a replay on a simulated GPU.
type Simulation struct {
	*replay.Run
	// Device is the peak of used GPU memory without other processes, in bytes.
	Device int64
}

// Simulate replays a program on a simulated GPU on which other processes use some memory.
func Simulate(ctx context.Context, p *program.Program, gpu device.GPU, conf allocator.Config,
	others int64,
) (*Simulation, error) {
	simulated, err := sim.New(gpu, others)
	if err != nil {
		return nil, err
	}
	defer simulated.Close()
	run, err := replay.Replay(ctx, p, replay.Options{Config: &conf, Source: simulated})
	if err != nil {
		return nil, err
	}
	return &Simulation{run, simulated.Peak() - others}, nil
}

// Profile records the case at a batch size and replays it with its full timeline. The error is a [*RefusedError] if
// PyTorch would refuse the step.
func (s *Setup) Profile(ctx context.Context, gpu device.GPU, batch int) (*profile.Profile, error) {
	rec, err := s.Record(ctx, batch, gpu)
	if err != nil {
		return nil, err
	}
	p, err := profile.NewProfile(ctx, rec.Program, gpu, s.conf)
	if err != nil {
		return nil, fmt.Errorf("batch %d: %w", batch, err)
	}
	p.Case, p.Batch = s.Report(report.Sweep).Case, batch
	return p, nil
}

// GPUOf returns the GPU of a report's device: the catalog's or, if the catalog lacks it, a GPU with the properties and
// memory that the driver reported. The error is a [*device.UnknownGPUError] if there is neither.
func GPUOf(d report.Device) (device.GPU, error) {
	gpu, err := device.Lookup(d.GPU)
	if err != nil && d.SMs == 0 {
		return gpu, err
	}
	if err != nil {
		capability, err := strconv.ParseFloat(d.Capability, 64)
		if err != nil {
			return gpu, fmt.Errorf("device %s: invalid compute capability %q: need a number like 8.9",
				d.Name, d.Capability)
		}
		gpu = device.GPU{
			Name: d.GPU, Product: d.Title, Generation: "compute capability " + d.Capability,
			Capability: device.Capability(math.Round(10 * capability)),
			SMs:        d.SMs, ThreadsPerSM: d.ThreadsPerSM, BoostMHz: d.MHz, Source: "the driver",
			ContextSource: "measured when the device was opened",
		}
	}
	gpu.Memory, gpu.Context = d.Memory, d.Context
	if d.IsBare() {
		gpu.Context += gpu.Libraries
	}
	return gpu, nil
}
