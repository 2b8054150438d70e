package experiment

import (
	"context"
	"fmt"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/profile"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
)

// Profile records the case at a batch size and replays it with everything
// kept. The error is a [*RefusedError] if PyTorch would refuse the step.
func (l *Lab) Profile(ctx context.Context, gpu device.GPU, batch int) (*profile.Profile, error) {
	rec, err := l.record(ctx, batch, boardOf(gpu))
	if err != nil {
		return nil, err
	}
	p, err := profile.Of(ctx, rec.Program, gpu, l.conf)
	if err != nil {
		return nil, fmt.Errorf("batch %d: %w", batch, err)
	}
	p.Case, p.Batch = l.report(report.Sweep).Case, batch
	return p, nil
}

// LabOf makes the lab whose work a report holds. The error is a
// [*models.UnknownModelError], a [*models.CaseError], an [*AllocConfError], or
// that of a source of models.
func LabOf(r *models.Registry, c report.Case, residuals Residuals) (*Lab, error) {
	m, err := r.Of(c.Case, c.Description())
	if err != nil {
		return nil, err
	}
	return NewLab(m, c.Case, residuals)
}

// GPUOf is the board of a report's device: the catalog's, with the memory that
// the device had. The error is a [*device.UnknownGPUError].
func GPUOf(d report.Device) (device.GPU, error) {
	gpu, err := device.Lookup(d.GPU)
	if err != nil {
		return gpu, err
	}
	gpu.Memory, gpu.Context = d.Memory, d.Context
	return gpu, nil
}
