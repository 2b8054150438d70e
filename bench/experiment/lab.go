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

// A Lab does experiments with one case over batch sizes.
type Lab struct {
	model     models.Model
	c         models.Case
	conf      allocator.Config
	residuals Residuals
	learned   Learned
	counts    models.Counts
	progress  Progress
	// kept are recordings of batch sizes that are needed again.
	kept map[recordedFor]*models.Recording
}

// Residuals finds how far estimates of a model are from PyTorch:
// [planner.Residuals], unless a test has its own.
type Residuals func(model string) (allocated, reserved planner.Residual, err error)

// Learned corrects coefficients of a model on a board by what calibration has
// learned; an error ends the experiment.
type Learned func(gpu device.GPU, model string, c *planner.Coefficients) error

// Learn makes the lab's estimates use what calibration has learned. Nil is
// what they start with: the shipped defaults.
func (l *Lab) Learn(from Learned) { l.learned = from }

// Watch has somebody told how far Plan is.
func (l *Lab) Watch(p Progress) { l.progress = p }

// recordedFor is what recordings of a lab differ in.
type recordedFor struct {
	batch int
	board trace.Board
}

// NewLab makes a lab for a case of the model; its batch size does not matter.
// The error is a
// [*models.CaseError] or an [*AllocConfError].
func NewLab(m models.Model, c models.Case, residuals Residuals) (*Lab, error) {
	c, err := m.Complete(c)
	if err != nil {
		return nil, err
	}
	conf, err := allocator.ParseConfig(c.AllocConf)
	if err != nil {
		return nil, &AllocConfError{err}
	}
	return &Lab{model: m, c: c, conf: conf, residuals: residuals, kept: map[recordedFor]*models.Recording{}}, nil
}

// Model is the name of the lab's model.
func (l *Lab) Model() string { return l.model.Name }

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

// record records the case at a batch size. The error is a [*RefusedError].
func (l *Lab) record(ctx context.Context, batch int, board trace.Board) (*models.Recording, error) {
	key := recordedFor{batch, board}
	if rec := l.kept[key]; rec != nil {
		return rec, nil
	}
	c := l.c
	c.Batch = batch
	rec, err := l.recording(ctx, c, board, models.Options{})
	if err != nil {
		return nil, err
	}
	l.kept[key], l.counts = rec, rec.Counts
	return rec, nil
}

// recording records any case of the model. The error is a [*models.CaseError] if
// the case is impossible, a [*RefusedError] if PyTorch would raise.
func (l *Lab) recording(ctx context.Context, c models.Case, board trace.Board, o models.Options) (*models.Recording, error) {
	o.Context = ctx
	rec, err := l.model.Record(c, board, o)
	var impossible *models.CaseError
	switch {
	case errors.As(err, &impossible), err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		return nil, &RefusedError{fmt.Errorf("%s: batch %d: %w", l.model.Name, c.Batch, err)}
	}
	return rec, nil
}

// unlimited is more memory than any step needs.
const unlimited = 1 << 46

// endless replays the case at a batch size on a board that looks like gpu but
// whose memory never ends: an estimate must go on where the board does not.
func (l *Lab) endless(ctx context.Context, gpu device.GPU, batch int) (*simulation, error) {
	rec, err := l.record(ctx, batch, boardOf(gpu))
	if err != nil {
		return nil, err
	}
	return l.replayEndless(ctx, gpu, rec.Program)
}

// replayEndless replays a program as endless does.
func (l *Lab) replayEndless(ctx context.Context, gpu device.GPU, p *program.Program) (*simulation, error) {
	conf := l.conf
	gpu.Memory = unlimited
	conf.MemoryFraction, conf.GarbageCollection = 1, 0
	return simulate(ctx, p, gpu, conf, 0)
}

// sample is what an endless replay says of a batch size.
func (l *Lab) sample(ctx context.Context, gpu device.GPU, batch int) (planner.Sample, error) {
	run, err := l.endless(ctx, gpu, batch)
	if err != nil {
		return planner.Sample{}, err
	}
	return sampleOf(run, batch), nil
}

func sampleOf(run *simulation, batch int) planner.Sample {
	return planner.Sample{
		Batch: batch, Classes: run.Peak.Allocated, Reserved: run.Max.Reserved,
		Segments: run.Stats.Segment[allocator.All].Current, PeakPhase: phaseName(run.Peak.Phase),
	}
}

// planner replays the case at each of the batch sizes.
func (l *Lab) planner(ctx context.Context, gpu device.GPU, batches []int) (*planner.Planner, error) {
	return l.plannerOver(gpu, batches, func(batch int) (planner.Sample, error) {
		return l.sample(ctx, gpu, batch)
	})
}

// plannerOver draws the curve through samples that the caller has.
func (l *Lab) plannerOver(gpu device.GPU, batches []int, sample func(batch int) (planner.Sample, error)) (*planner.Planner, error) {
	curve, err := planner.Draw(batches, sample)
	if err != nil {
		return nil, err
	}
	c, err := l.coefficients(gpu)
	if err != nil {
		return nil, err
	}
	return &planner.Planner{
		Curve: curve, Coefficients: c,
		Memory: int64(float64(gpu.Memory) * l.conf.MemoryFraction),
	}, nil
}

// coefficients are what estimates of the case on a board go by: the shipped
// ones, corrected by what was learned.
func (l *Lab) coefficients(gpu device.GPU) (planner.Coefficients, error) {
	allocated, reserved, err := l.residuals(l.model.Name)
	if err != nil {
		return planner.Coefficients{}, err
	}
	c := planner.Coefficients{Context: planner.ContextOf(gpu), Allocated: allocated, Reserved: reserved}
	if l.learned != nil {
		err = l.learned(gpu, l.model.Name, &c)
	}
	return c, err
}

func phaseName(p program.Phase) string { return fmt.Sprintf("%d:%s", p.Step, p.Name) }

// Plan estimates every batch size on every board.
func (l *Lab) Plan(ctx context.Context, gpus []device.GPU, batches []int) (*report.Report, error) {
	r := l.report(report.Plan, gpus...)
	r.Warnings = append(l.caveats(), unsupported(gpus)...)
	done := l.progress.counting("boards", len(gpus))
	for _, gpu := range gpus {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		for _, batch := range batches {
			point, err := l.point(ctx, r, gpu, batch)
			if err != nil {
				return nil, err
			}
			r.Points = append(r.Points, point)
		}
		done(1)
	}
	return r, nil
}

// point estimates a batch size on a board; the report gets what the estimate
// goes by.
func (l *Lab) point(ctx context.Context, r *report.Report, gpu device.GPU, batch int) (report.Point, error) {
	defer clear(l.kept) // recordings are large
	p, err := l.planner(ctx, gpu, []int{batch})
	if err != nil {
		return report.Point{}, err
	}
	l.describe(r, p)
	e, err := p.Estimate(batch)
	if err != nil {
		return report.Point{}, err
	}
	point := report.Point{Batch: batch, Device: simName(gpu), Estimate: estimateOf(e), Claims: l.claimed(gpu, batch)}
	point.Streamed, err = l.streamed(ctx, gpu, batch)
	return point, err
}

// streamed estimates what the device would show at a batch size if the data
// set came from the host; nil if it does.
func (l *Lab) streamed(ctx context.Context, gpu device.GPU, batch int) (*report.Interval, error) {
	if l.c.Dataset == 0 {
		return nil, nil
	}
	host := *l
	host.c.Dataset, host.kept = 0, map[recordedFor]*models.Recording{}
	p, err := host.planner(ctx, gpu, []int{batch})
	if err != nil {
		return nil, err
	}
	e, err := p.Estimate(batch)
	if err != nil {
		return nil, err
	}
	device := intervalOf(e.Device)
	return &device, nil
}

func simName(gpu device.GPU) string { return "sim:" + gpu.Name }

// Events records training steps of the case at a batch size, with the lines of
// the model that cause them.
func (l *Lab) Events(ctx context.Context, gpu device.GPU, batch, steps int) (*program.Program, error) {
	c := l.c
	c.Batch = batch
	rec, err := l.recording(ctx, c, boardOf(gpu), models.Options{Steps: steps, Annotate: true})
	if err != nil {
		return nil, err
	}
	return rec.Program, nil
}
