package step

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/profile"
	"github.com/vprof/vprof/profiler/device"
)

// Profile records the case at a batch size and replays it with everything
// kept. The error is a [*RefusedError] if PyTorch would refuse the step.
func (s *Setup) Profile(ctx context.Context, gpu device.GPU, batch int) (*profile.Profile, error) {
	rec, err := s.Record(ctx, batch, gpu)
	if err != nil {
		return nil, err
	}
	p, err := profile.Of(ctx, rec.Program, gpu, s.conf)
	if err != nil {
		return nil, fmt.Errorf("batch %d: %w", batch, err)
	}
	p.Case, p.Batch = s.Report(report.Sweep).Case, batch
	return p, nil
}

// GPUOf is the board of a report's device: the catalog's, or, where it is not there, what the
// driver said of it, with the memory that the device had. The error is a
// [*device.UnknownGPUError] if neither is known.
func GPUOf(d report.Device) (device.GPU, error) {
	gpu, err := device.Lookup(d.GPU)
	if err != nil && d.SMs == 0 {
		return gpu, err
	}
	if err != nil {
		capability, err := strconv.ParseFloat(d.Capability, 64)
		if err != nil {
			return gpu, fmt.Errorf("device %s: compute capability %q is no number", d.Name, d.Capability)
		}
		gpu = device.GPU{
			Name: d.GPU, Product: d.Title, Generation: "compute capability " + d.Capability,
			Capability: device.Capability(math.Round(10 * capability)),
			SMs:        d.SMs, ThreadsPerSM: d.ThreadsPerSM, BoostMHz: d.MHz, Source: "the driver",
			ContextSource: "measured when the device was opened",
		}
	}
	gpu.Memory, gpu.Context = d.Memory, d.Context
	return gpu, nil
}
