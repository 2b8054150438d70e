package accuracy

import (
	"context"
	"errors"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// Recorder is the [Replayer] for models of a registry on simulated GPUs.
type Recorder struct{ Models *models.Registry }

// Record records the steps of a case, for [Replayer].
func (r Recorder) Record(c models.Case, d models.Description, gpu device.GPU, steps int) (Replayable, error) {
	m, err := r.Models.ModelForCase(c, d)
	var rec *models.Recording
	if err == nil {
		rec, err = m.Record(c, step.RecorderGPU(gpu), models.Options{Steps: steps})
	}
	switch {
	case errors.As(err, new(*models.UnknownModelError)) || errors.As(err, new(*models.CaseError)):
		return nil, err
	case err != nil:
		return nil, &step.RefusedError{Err: err}
	}
	release, err := rec.Case.Release()
	if err != nil {
		return nil, err
	}
	return recorded{rec.Program, gpu, release.Allocator()}, nil
}

type recorded struct {
	p        *program.Program
	gpu      device.GPU
	settings allocator.Rules
}

// Replay replays the recorded steps, for [Replayable].
func (r recorded) Replay(ctx context.Context, allocConf string) (Outcome, error) {
	conf, err := r.settings.Parse(allocConf)
	if err != nil {
		return Outcome{}, input.Errorf("%w", err)
	}
	run, err := step.Simulate(ctx, r.p, r.gpu, conf, 0)
	if err != nil {
		return Outcome{}, err
	}
	o := Outcome{OOM: run.OOM != nil, Allocated: run.Max.Allocated, Reserved: run.Max.Reserved}
	for _, p := range run.Phases {
		o.Phases = append(o.Phases, reference.Phase{
			Step: p.Step, Name: p.Name, Allocated: p.End.Allocated, MaxAllocated: p.Max.Allocated,
			Reserved: p.End.Reserved, MaxReserved: p.Max.Reserved,
		})
	}
	return o, nil
}
