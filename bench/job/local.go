package job

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/vprof/vprof/bench/experiment/epoch"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/sweep"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/sim"
)

// Executor runs jobs.
type Executor interface {
	// Run runs a job. After each point of a sweep, each is called with the report so far; its error ends the job. After
	// an interrupt or a device failure, Run returns the points so far with the error.
	Run(ctx context.Context, j Job, each func(*report.Report) error) (*report.Report, error)
}

// Local runs jobs in this process.
type Local struct {
	Models *models.Registry
	// Evidence is the input of estimates, apart from a job's own coefficients.
	Evidence step.Evidence
	// Open opens a GPU of this machine by name for one job, which closes it; nil if jobs only simulate GPUs.
	Open func(name string) (device.Device, error)
	// Progress receives the progress of replayed epochs.
	Progress progress.Func
	// Resumed is the unfinished report of an earlier sweep of the job; nil for none.
	Resumed *report.Report
}

// Run runs a job on this machine, for [Executor].
func (l *Local) Run(ctx context.Context, j Job, each func(*report.Report) error) (*report.Report, error) {
	if err := j.check(); err != nil {
		return nil, err
	}
	evidence := l.Evidence
	evidence.Calibrated = j.Calibrated
	setup, err := step.NewFromReport(l.Models, j.Case, evidence)
	if err != nil {
		return nil, err
	}
	setup = setup.WithParts(j.CurriculumParts)
	if j.Kind == report.Plan {
		return l.plan(ctx, setup, j)
	}
	d, err := l.open(j.Target)
	if err != nil {
		return nil, err
	}
	r, err := sweep.Run(ctx, setup, d, sweep.Options{Batches: j.Batches, Conditions: j.Conditions, Resumed: l.Resumed},
		each)
	return r, errors.Join(err, d.Close())
}

// plan estimates the batch sizes. If samples differ in length, each batch size is estimated at the worst batch of
// epochs over them, and must complete these epochs.
func (l *Local) plan(ctx context.Context, s *step.Setup, j Job) (*report.Report, error) {
	if j.Lengths == nil {
		return sweep.Plan(ctx, s, *j.Target.GPU, j.Batches)
	}
	plans := make([]*report.Report, len(j.Batches))
	for i, batch := range j.Batches {
		c := s.Case()
		c.Batch = batch
		over, err := epoch.Run(ctx, s, *j.Target.GPU, batch, j.Lengths, epoch.Options{Progress: l.Progress})
		if err != nil {
			return nil, err
		}
		worst := s.WithCase(j.Lengths.WorstCase(s.Model(), c, over))
		if plans[i], err = sweep.Plan(ctx, worst, *j.Target.GPU, []int{batch}); err != nil {
			return nil, err
		}
		plans[i].Case = s.Report(report.Plan).Case
		judge.Default(s, *j.Target.GPU, 0).ApplyEpochs(over, &plans[i].Points[0])
	}
	return report.Merge(plans...)
}

func (l *Local) open(t Target) (device.Device, error) {
	if t.Device != "" {
		return l.Open(t.Device)
	}
	return sim.New(*t.GPU, 0)
}

// RunAll runs jobs for different GPUs one after another and merges their reports. progress receives the number of
// finished jobs. It is an error if PyTorch refuses the case on all GPUs.
func RunAll(ctx context.Context, e Executor, jobs []Job, progress progress.Func) (*report.Report, error) {
	reports := make([]*report.Report, 0, len(jobs))
	var refused error
	done := progress.Counter("GPUs", len(jobs))
	for _, j := range jobs {
		r, err := e.Run(ctx, j, func(*report.Report) error { return nil })
		switch {
		case step.IsRefused(err) && r != nil:
			refused = err
		case err != nil:
			return nil, err
		}
		reports = append(reports, r)
		done(1)
	}
	// The merged report has the description of the first report.
	slices.SortStableFunc(reports, func(a, b *report.Report) int {
		return cmp.Compare(min(len(b.Points), 1), min(len(a.Points), 1))
	})
	if len(reports[0].Points) == 0 && refused != nil {
		return nil, refused
	}
	return report.Merge(reports...)
}
