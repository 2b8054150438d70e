// Package timing estimates how long training steps and epochs take on GPUs.
package timing

import (
	"cmp"
	"context"
	"math"
	"strings"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/calibrate"
	"github.com/vprof/vprof/profiler/planner/steptime"
)

// Stage is a training stage to time: its case and its number of epochs.
type Stage struct {
	Name   string
	Epochs float64
	Setup  *step.Setup
}

// Table is the input of a time estimate: stages, batch size and data set.
type Table struct {
	Stages []Stage
	// Batch is the batch size. Zero is the largest safe one on each GPU, within Budget, whose Memory is the GPU's.
	Batch  int
	Budget planner.Budget
	// Dataset is the number of samples of an epoch; zero is unknown.
	Dataset int64
	// Measured is a step that the user timed on the GPU; the zero value for none.
	Measured Measured
	// Progress receives the number of finished GPUs.
	Progress progress.Func
}

// Measured is the measured time of a step of the first stage at a batch size. It corrects the estimates for its GPU.
type Measured struct {
	Seconds float64
	Batch   int
}

// Correct returns the GPU's efficiency at which a setup's step takes the measured time; speed if none was measured.
func (m Measured) Correct(ctx context.Context, of *step.Setup, gpu device.GPU, speed steptime.Efficiency,
) (steptime.Efficiency, error) {
	if m.Seconds == 0 {
		return speed, nil
	}
	one, err := timeStep(ctx, judge.Default(of, gpu, 0), m.Batch, speed)
	if err != nil {
		return speed, err
	}
	if !one.load.IsKnown() {
		return speed, input.Errorf("--measured: the speed of %s is unknown, so a measured step cannot correct its "+
			"estimates; leave out --measured, or use a listed GPU", gpu.Name)
	}
	kernels := m.Seconds/max(1, one.load.Stretch) - one.load.Host
	if least := one.load.Roofline() / 2; kernels < least && !one.load.Compiled { // half, for what caches spare
		return speed, input.Errorf("--measured: %.3g s at batch %d is less than half of what %s takes at its peak "+
			"rates; check the time, batch size, precision and GPU", m.Seconds, m.Batch, gpu.Name)
	}
	speed, err = calibrate.FitSpeed([]calibrate.TimedStep{{Load: one.load, Seconds: kernels}}, speed)
	if err != nil {
		return speed, input.Errorf("--measured: the measured step cannot correct the estimates: %w", err)
	}
	return speed, nil
}

// Run estimates every stage on every GPU.
func (t *Table) Run(ctx context.Context, gpus []device.GPU) (*report.Times, error) {
	first := t.Stages[0].Setup
	r := first.Report(report.Plan, gpus...)
	names := lists.Map(t.Stages, func(s Stage) string { return s.Name })
	r.Case.Stage = strings.Join(names, ", then ")
	out := &report.Times{
		Schema: report.TimesSchema, Case: r.Case, Devices: r.Devices, Dataset: t.Dataset,
		Rows: []report.TimeRow{},
	}
	found := make([]gpuTimes, len(gpus))
	order := step.OrderForSharing(gpus, func(int) models.CaseKey { return first.Case().Key() })
	err := progress.Each(ctx, t.Progress, "GPUs", order, func(ctx context.Context, _, i int) (err error) {
		found[i], err = t.timeGPU(ctx, gpus[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	trains := false
	for _, on := range found {
		out.Rows, trains = append(out.Rows, on.rows...), trains || on.trains
	}
	if !trains {
		return nil, found[len(found)-1].refused
	}
	e := found[0].speed
	for _, c := range append(e.Share[:], e.Launch, e.Dispatch, e.Module) {
		if c.Value > 0 {
			out.Coefficients = append(out.Coefficients, report.Coefficient(c))
		}
	}
	return out, nil
}

// gpuTimes are the table rows of a GPU. refused is the reason why the GPU refuses a stage, of several the last.
type gpuTimes struct {
	speed   steptime.Efficiency
	rows    []report.TimeRow
	trains  bool
	refused error
}

// timeGPU estimates the time of every stage on a GPU.
func (t *Table) timeGPU(ctx context.Context, gpu device.GPU) (out gpuTimes, err error) {
	first := t.Stages[0].Setup
	if out.speed, err = first.Evidence().Speed(gpu, first.Model().Name); err != nil {
		return out, err
	}
	if out.speed, err = t.Measured.Correct(ctx, first, gpu, out.speed); err != nil {
		return out, err
	}
	total, whole := steptime.Estimate{}, t.Dataset > 0
	for _, stage := range t.Stages {
		row, err := t.row(ctx, gpu, stage, out.speed)
		switch {
		case step.IsRefused(err):
			row.Batch, row.Refused, out.refused = 0, err.Error(), err
		case err != nil:
			return out, err
		default:
			out.trains = true
		}
		if row.Total != nil {
			total = total.Plus(steptime.Estimate(*row.Total))
		} else {
			whole = false
		}
		out.rows = append(out.rows, row)
	}
	if whole && len(t.Stages) > 1 {
		out.rows = append(out.rows,
			report.TimeRow{Device: step.SimName(gpu), Stage: "all", Total: new(report.Seconds(total))})
	}
	return out, nil
}

func (t *Table) row(ctx context.Context, gpu device.GPU, stage Stage,
	speed steptime.Efficiency,
) (report.TimeRow, error) {
	row := report.TimeRow{Device: step.SimName(gpu), Stage: stage.Name, Batch: t.Batch, Epochs: stage.Epochs}
	j, err := judge.New(stage.Setup, gpu, t.Budget, 0)
	if err != nil {
		return row, err
	}
	defer j.FreeRecordings()
	if row.Batch == 0 {
		begin := planner.Start{Batch: stage.Setup.Model().Default.Batch}
		if row.Batch, err = j.Largest(ctx, begin, planner.MaxSearchedBatch); err != nil || row.Batch == 0 {
			return row, err
		}
	}
	one, err := timeStep(ctx, j, row.Batch, speed)
	if err != nil {
		return row, err
	}
	e := one.judged
	row.Fits, row.Memory, row.Loop, row.Unsafe = e.Verdict == report.Fits, e.Device.Bytes, e.Loop, e.Unsafe
	row.Decides, row.Workspaces = e.Decides, one.workspaces
	if !one.load.IsKnown() {
		return row, nil
	}
	samples := float64(stage.Setup.Case().SamplesPerStep(row.Batch))
	row.Step, row.Roofline, row.Launches = new(report.Seconds(one.time)), one.load.Roofline(), one.load.Launches
	if one.load.Compiled {
		c := stage.Setup.Case()
		c.Batch = row.Batch
		row.EagerKernels = cmp.Or(stage.Setup.Model().NotRecordedReason(c), "recorded without kernels, by an older "+
			"vprof or with templates whose work is unknown: vprof capture --compile records it again")
	}
	row.HostBound = speed.HostBound(one.load)
	row.SamplesPerSecond = samples / row.Step.Seconds
	if t.Dataset > 0 {
		epoch := one.time.Times(math.Ceil(float64(t.Dataset) / samples))
		row.Epoch = new(report.Seconds(epoch))
		if stage.Epochs > 0 {
			row.Total = new(report.Seconds(epoch.Times(stage.Epochs)))
		}
	}
	return row, nil
}

// timedStep is a judged batch, and the estimated time of its step.
type timedStep struct {
	judged     *report.Estimate
	load       steptime.Load
	time       steptime.Estimate
	workspaces *report.Workspaces
}

func timeStep(ctx context.Context, j *judge.Judge, batch int, speed steptime.Efficiency) (out timedStep, err error) {
	d, err := j.JudgeBatch(ctx, batch)
	if err != nil {
		return out, err
	}
	defer d.FreeRecordings()
	if out.judged, err = d.Report(ctx); err != nil {
		return out, err
	}
	out.load, err = d.KernelLoad(ctx)
	out.time, out.workspaces = speed.Time(out.load), step.WorkspacesOf(d.Loops[0].Steps.Facts)
	return out, err
}
