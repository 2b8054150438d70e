package experiment

import (
	"context"
	"errors"
	"fmt"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Setup is a complete case of a model with what its estimates go by. It does not
// change: recordings and replays are returned, and another case is another setup.
type Setup struct {
	model    models.Model
	c        models.Case
	conf     allocator.Config
	evidence Evidence
}

// Evidence is what estimates go by besides recordings.
type Evidence struct {
	// Residuals say how far estimates are from PyTorch.
	Residuals Residuals
	// Learned is what calibration has learned; nil for nothing, which leaves the
	// shipped defaults.
	Learned Learned
}

// Residuals finds how far estimates of a model are from PyTorch:
// [planner.Residuals], unless a test has its own.
type Residuals func(model string) (allocated, reserved planner.Residual, err error)

// Learned corrects coefficients of a model on a board by what calibration has
// learned; an error ends the experiment.
type Learned func(gpu device.GPU, model string, c *planner.Coefficients) error

// NewSetup completes a case of the model. The error is a [*models.CaseError] or an
// [*AllocConfError].
func NewSetup(m models.Model, c models.Case, e Evidence) (*Setup, error) {
	c, err := m.Complete(c)
	if err != nil {
		return nil, err
	}
	conf, err := allocator.ParseConfig(c.AllocConf)
	if err != nil {
		return nil, &AllocConfError{err}
	}
	return &Setup{model: m, c: c, conf: conf, evidence: e}, nil
}

// SetupOf is the setup whose work a report holds. The error is a
// [*models.UnknownModelError], a [*models.CaseError], an [*AllocConfError], or
// that of a source of models.
func SetupOf(r *models.Registry, c report.Case, e Evidence) (*Setup, error) {
	m, err := r.Of(c.Case, c.Description())
	if err != nil {
		return nil, err
	}
	return NewSetup(m, c.Case, e)
}

// Model is the name of the setup's model.
func (s *Setup) Model() string { return s.model.Name }

// accumulating is the setup with another number of micro-batches of a step.
func (s *Setup) accumulating(n int) *Setup {
	other := *s
	other.c.Accumulate = n
	return &other
}

// An AllocConfError says that PyTorch would refuse the allocator settings.
type AllocConfError struct{ Err error }

func (e *AllocConfError) Error() string { return e.Err.Error() }
func (e *AllocConfError) Unwrap() error { return e.Err }

// Usage marks the error as bad input.
func (*AllocConfError) Usage() bool { return true }

// boardOf is what a recording needs of a GPU.
func boardOf(gpu device.GPU) trace.Board {
	return trace.Board{
		Name: gpu.Name, Capability: int(gpu.Capability), SMs: gpu.SMs, ThreadsPerSM: gpu.ThreadsPerSM, Memory: gpu.Memory,
	}
}

// record records training steps of the case at a batch size, which replaces the
// case's own. The error is a [*models.CaseError] if the case is impossible, a
// [*RefusedError] if PyTorch would raise.
func (s *Setup) record(ctx context.Context, batch int, gpu device.GPU) (*models.Recording, error) {
	c := s.c
	c.Batch = batch
	return s.recording(ctx, c, gpu, models.Options{})
}

// recording records any case of the model.
func (s *Setup) recording(ctx context.Context, c models.Case, gpu device.GPU, o models.Options) (*models.Recording, error) {
	o.Context = ctx
	rec, err := s.model.Record(c, boardOf(gpu), o)
	var impossible *models.CaseError
	switch {
	case errors.As(err, &impossible), err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		return nil, &RefusedError{fmt.Errorf("%s: batch %d: %w", s.model.Name, c.Batch, err)}
	}
	return rec, nil
}

// unlimited is more memory than any step needs.
const unlimited = 1 << 46

// endless replays a program on a board that looks like gpu but whose memory never
// ends: an estimate must go on where the board does not.
func (s *Setup) endless(ctx context.Context, gpu device.GPU, p *program.Program) (*simulation, error) {
	conf := s.conf
	gpu.Memory = unlimited
	conf.MemoryFraction, conf.GarbageCollection = 1, 0
	return simulate(ctx, p, gpu, conf, 0)
}

// sample is what an endless replay of a recording says.
func (s *Setup) sample(ctx context.Context, gpu device.GPU, rec *models.Recording) (planner.Sample, error) {
	run, err := s.endless(ctx, gpu, rec.Program)
	if err != nil {
		return planner.Sample{}, err
	}
	return sampleOf(run, rec.Case.Batch), nil
}

func sampleOf(run *simulation, batch int) planner.Sample {
	return planner.Sample{
		Batch: batch, Classes: run.Peak.Allocated, Reserved: run.Max.Reserved,
		Segments: run.Stats.Segment[allocator.All].Current, PeakPhase: phaseName(run.Peak.Phase),
	}
}

// planner makes estimates on a board of samples at some batch sizes.
func (s *Setup) planner(gpu device.GPU, samples ...planner.Sample) (*planner.Planner, error) {
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
	c, err := s.coefficients(gpu)
	if err != nil {
		return nil, err
	}
	return &planner.Planner{
		Curve: curve, Coefficients: c,
		Memory: int64(float64(gpu.Memory) * s.conf.MemoryFraction),
	}, nil
}

// estimate is that of a sample on a board.
func (s *Setup) estimate(gpu device.GPU, sample planner.Sample) (planner.Estimate, error) {
	p, err := s.planner(gpu, sample)
	if err != nil {
		return planner.Estimate{}, err
	}
	return p.Estimate(sample.Batch)
}

// estimated records the case at a batch size and estimates what it needs on a
// board.
func (s *Setup) estimated(ctx context.Context, gpu device.GPU, batch int) (planner.Estimate, *models.Recording, error) {
	rec, err := s.record(ctx, batch, gpu)
	if err != nil {
		return planner.Estimate{}, nil, err
	}
	sample, err := s.sample(ctx, gpu, rec)
	if err != nil {
		return planner.Estimate{}, nil, err
	}
	e, err := s.estimate(gpu, sample)
	return e, rec, err
}

// coefficients are what estimates of the case on a board go by: the shipped
// ones, corrected by what was learned.
func (s *Setup) coefficients(gpu device.GPU) (planner.Coefficients, error) {
	allocated, reserved, err := s.evidence.Residuals(s.model.Name)
	if err != nil {
		return planner.Coefficients{}, err
	}
	c := planner.Coefficients{Context: planner.ContextOf(gpu), Allocated: allocated, Reserved: reserved}
	if s.evidence.Learned != nil {
		err = s.evidence.Learned(gpu, s.model.Name, &c)
	}
	return c, err
}

func phaseName(p program.Phase) string { return fmt.Sprintf("%d:%s", p.Step, p.Name) }

func simName(gpu device.GPU) string { return "sim:" + gpu.Name }

// streamed estimates what the device would show at a batch size if the data
// set came from the host; nil if it does.
func (s *Setup) streamed(ctx context.Context, gpu device.GPU, batch int) (*report.Interval, error) {
	if s.c.Dataset == 0 {
		return nil, nil
	}
	host := *s
	host.c.Dataset = 0
	e, _, err := host.estimated(ctx, gpu, batch)
	if err != nil {
		return nil, err
	}
	device := intervalOf(e.Device)
	return &device, nil
}

// Events records training steps of the case at a batch size, with the lines of
// the model that cause them.
func (s *Setup) Events(ctx context.Context, gpu device.GPU, batch, steps int) (*program.Program, error) {
	c := s.c
	c.Batch = batch
	rec, err := s.recording(ctx, c, gpu, models.Options{Steps: steps, Annotate: true})
	if err != nil {
		return nil, err
	}
	return rec.Program, nil
}
