package step

import (
	"context"
	"errors"
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// BoardOf is what a recording needs to know of a GPU.
func BoardOf(gpu device.GPU) trace.Board {
	return trace.Board{
		Name: gpu.Name, Capability: int(gpu.Capability), SMs: gpu.SMs, ThreadsPerSM: gpu.ThreadsPerSM,
		Memory: gpu.Memory,
	}
}

// Record records training steps of the case at a batch size, which replaces the
// case's own. The error is a [*models.CaseError] if the case is impossible, a
// [*RefusedError] if PyTorch would raise.
func (s *Setup) Record(ctx context.Context, batch int, gpu device.GPU) (*models.Recording, error) {
	c := s.c
	c.Batch = batch
	return s.RecordCase(ctx, c, gpu, models.Options{})
}

// RecordCase records any case of the setup's model, as Record does.
func (s *Setup) RecordCase(ctx context.Context, c models.Case, gpu device.GPU,
	o models.Options,
) (*models.Recording, error) {
	o.Context = ctx
	rec, err := s.model.Record(c, BoardOf(gpu), o)
	var impossible *models.CaseError
	switch {
	case errors.As(err, &impossible), err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		return nil, &RefusedError{fmt.Errorf("%s: batch %d: %w", s.model.Name, c.Batch, err)}
	}
	return rec, nil
}

// Events records training steps of the case at a batch size, with the lines of
// the model that cause them.
func (s *Setup) Events(ctx context.Context, gpu device.GPU, batch, steps int) (*program.Program, error) {
	c := s.c
	c.Batch = batch
	rec, err := s.RecordCase(ctx, c, gpu, models.Options{Steps: steps, Annotate: true})
	if err != nil {
		return nil, err
	}
	return rec.Program, nil
}

// RecordedSteps is how many of the n micro-batches of a step are recorded. Two are enough:
// gradients exist from the second on, so that all later ones need the same memory, but for
// blocks that the allocator does not split, which are less than a thousandth.
func RecordedSteps(n int) int { return min(n, 2) }
