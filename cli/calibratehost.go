package cli

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/vprof/vprof/bench/experiment/script"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/coefficients"
	"github.com/vprof/vprof/profiler/planner/steptime"
)

// What a step of ResNet-50 under bf16 autocast with AdamW takes where the host limits it, on the machine of the table
// of kernel parameters (bench/reference/data/h100/steps.jsonl, PyTorch 2.11), and what the driver takes of that, in
// seconds. The stubs have no driver. Its part is an assumption: 555 launches of 2.5 µs, between 1 and 4.
const (
	referenceStep = 24.21e-3
	driverStep    = 1.39e-3
	driverError   = 0.42e-3
)

// calibrateHost measures what this machine's host takes to launch kernels, and keeps it in the coefficients file.
func (o *calibrateOptions) calibrateHost(ctx context.Context) error {
	if len(o.runs) > 0 {
		return usagef("--host: this machine is measured, and no runs are read; leave out %s", o.runs[0])
	}
	gpu, err := device.Lookup("h100")
	if err != nil {
		return err
	}
	stubs, err := unpackStubs()
	if err != nil {
		return err
	}
	torch, seconds, err := script.HostSteps(ctx, script.Command{GPU: gpu, Stubs: stubs},
		cmp.Or(o.python, "python3"))
	if err != nil {
		return err
	}
	n := len(seconds)
	median := seconds[(n-1)/2]
	spread := (seconds[n*3/4] - seconds[n/4]) / 1.35 // of a normal distribution by its quartiles
	host := coefficients.Number{
		Value: (median + driverStep) / referenceStep, StdErr: math.Hypot(spread, driverError) / referenceStep,
		Source: fmt.Sprintf("ResNet-50 on this machine: %.1f ms of processor time a step, median of %d, and %.1f ms "+
			"of the driver by assumption; %.1f ms on the H100's", 1e3*median, n, 1e3*driverStep, 1e3*referenceStep),
	}
	r := &report.Calibration{
		Schema: report.CalibrationSchema, Tool: tool(), Started: o.app.now().UTC(),
		Entry: "host", Stack: "torch-" + torch, Models: []string{"ResNet-50"}, Points: []report.CalibrationPoint{},
	}
	factor := planner.Coefficient{Name: "host", Value: host.Value, StdErr: host.StdErr, Source: host.Source}
	speed := steptime.Assumed().OnHost(factor)
	for _, c := range []planner.Coefficient{factor, speed.Dispatch, speed.Module} {
		r.Coefficients = append(r.Coefficients, report.Coefficient(c))
	}
	if !o.dryRun {
		r.File = o.file
		if r.Backup, err = coefficients.SetHost(ctx, o.file, r.Tool.Version, host); err != nil {
			return fmt.Errorf("--output: %w", err)
		}
	}
	return o.out.finish(r)
}
