package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vprof/vprof/bench/experiment/calibration"
	"github.com/vprof/vprof/bench/experiment/script"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/coefficients"
	"github.com/vprof/vprof/profiler/planner/steptime"
)

type calibrateOptions struct {
	app                    *app
	c                      caseFlags
	snapshotFlags          []string // of c: they say what snapshots are of
	runs                   []string
	gpu                    string
	batch                  batchFlag
	name, coefficientsFile string
	allowSimulated         bool
	pool, dryRun           bool
	force, host            bool
	python                 string
	out                    output
}

func newCalibrateCmd(a *app) *cobra.Command {
	o := &calibrateOptions{app: a, out: output{app: a}}
	cmd := &cobra.Command{
		Use:   "calibrate [BATCH=]RUN...",
		Short: "Fit the planner's coefficients to runs, to correct estimates",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.runs = args
			if o.host {
				return o.calibrateHost(cmd.Context())
			}
			if len(args) == 0 {
				return usagef("name the runs to learn from: results of vprof sweep or vprof run, or reference records")
			}
			return runCalibrate(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	o.c.isCalibrate = true
	o.c.register(cmd, a)
	f.VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "model" && flag.Name != "stack" {
			o.snapshotFlags = append(o.snapshotFlags, flag.Name)
			flag.Usage = "for snapshots: " + flag.Usage
		}
	})
	f.Lookup("model").Usage = "only runs of this model; for snapshots: `name` of the model (see vprof models)"
	f.StringVar(&o.gpu, "gpu", "", "only runs of this GPU; for snapshots: `name` of the GPU (see vprof gpus)")
	f.StringVarP(&o.coefficientsFile, "output", "o", "coefficients.yaml", "coefficients `file` to write to")
	f.StringVar(&o.name, "name", "", "`name` of the entry to write (default: the GPU and the stack)")
	f.Lookup("stack").Usage = "`releases` that made the runs, if the runs do not record them, like " +
		"torch=2.11.0,cuda=13.0,cudnn=9.19,driver=580, or a lock file or Python interpreter, as in vprof plan"
	f.BoolVar(&o.pool, "pool", false, "fit one set of coefficients to runs of several models")
	f.BoolVar(&o.allowSimulated, "allow-simulated", false,
		"also fit to runs on simulated GPUs; the entry is marked as simulated")
	f.BoolVar(&o.force, "force", false, "also fit to too few runs, or to runs that differ too much from their replay")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the result without writing the file")
	f.BoolVar(&o.host, "host", false, "measure how long PyTorch takes to launch kernels on this machine, "+
		"without a GPU or runs")
	f.StringVar(&o.python, "python", "", "with --host, Python `interpreter` that has PyTorch (default: python3)")
	o.batch.register(cmd, "all in the runs")
	o.out.register(cmd)
	completeFlag(cmd, "gpu", device.Names)
	cmd.AddCommand(newCoefficientsShowCmd(a), newCoefficientsDiffCmd(a))
	return cmd
}

func runCalibrate(ctx context.Context, o *calibrateOptions) error {
	runs, inputs, err := o.readObserved()
	if err != nil {
		return err
	}
	// Fail before the work if the file cannot be extended.
	if _, err := coefficients.Open(o.coefficientsFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--output: %w", err)
	}
	libraries := o.c.stack.libraries
	c := calibration.Calibration{
		Models: o.app.models(), Residuals: o.app.residuals, Runs: runs, Inputs: inputs,
		Name: o.name, Stack: coefficients.Stack{
			Torch: o.c.stack.torch, CUDA: libraries["cuda"], CUDNN: libraries["cudnn"], Driver: o.c.stack.driver,
		}, Pool: o.pool, Force: o.force, Tool: vprofTool(), Now: o.app.now().UTC(),
	}
	r, entry, err := c.Run(ctx)
	if err != nil {
		return err
	}
	if !o.dryRun {
		r.File = o.coefficientsFile
		if r.Backup, err = coefficients.Add(ctx, o.coefficientsFile, r.Tool.Version, *entry); err != nil {
			return fmt.Errorf("--output: %w", err)
		}
	}
	return o.out.finish(r)
}

func (o *calibrateOptions) readObserved() ([]calibration.ObservedRun, []coefficients.Input, error) {
	wanted, err := o.runFilter()
	if err != nil {
		return nil, nil, err
	}
	if err := o.checkSnapshotFlags(); err != nil {
		return nil, nil, err
	}
	var runs []calibration.ObservedRun
	var inputs []coefficients.Input
	for _, arg := range o.runs {
		all, in, err := o.readRun(arg)
		if err != nil {
			return nil, nil, err
		}
		all = slices.DeleteFunc(all, func(r calibration.ObservedRun) bool { return !wanted(r) })
		if len(all) == 0 {
			return nil, nil, usagef("%s: no run in this file matches --batch (its batch sizes are %v)", arg, in.Batches)
		}
		if all[0].Simulated && !o.allowSimulated {
			return nil, nil, usagef("%s: the result is of %s, a simulated GPU, and shows nothing of a real one; name "+
				"a measured result, or use this one nevertheless with --allow-simulated", arg, in.Source)
		}
		in.Batches = nil
		for _, r := range all {
			in.Batches = lists.Union(in.Batches, r.Case.Batch)
		}
		slices.Sort(in.Batches)
		runs, inputs = append(runs, all...), append(inputs, in)
	}
	return runs, inputs, nil
}

// batchAndFile splits BATCH=FILE; without a batch it returns zero. File names may contain =.
func batchAndFile(arg string) (batch int, path string) {
	before, after, ok := strings.Cut(arg, "=")
	n, err := strconv.Atoi(before)
	if !ok || err != nil {
		return 0, arg
	}
	return n, after
}

// checkSnapshotFlags refuses flags that describe a case if the runs have their own.
func (o *calibrateOptions) checkSnapshotFlags() error {
	if slices.ContainsFunc(o.runs, func(arg string) bool { n, _ := batchAndFile(arg); return n != 0 }) {
		return nil
	}
	return refuseFlags(o.c.flags, "--%s describes the case of a memory snapshot, but reports and records name their "+
		"own case; leave it out", o.snapshotFlags...)
}

// runFilter returns a predicate for the runs that the flags select.
func (o *calibrateOptions) runFilter() (func(calibration.ObservedRun) bool, error) {
	batches, err := o.batch.sizes(nil)
	if err != nil {
		return nil, err
	}
	if o.gpu != "" {
		gpu, err := device.Lookup(o.gpu)
		if err != nil {
			return nil, err
		}
		o.gpu = gpu.Name
	}
	return func(r calibration.ObservedRun) bool {
		return (len(batches) == 0 || slices.Contains(batches, r.Case.Batch)) &&
			(o.c.model == "" || r.Case.Model == o.c.model) && (o.gpu == "" || r.GPU == o.gpu)
	}, nil
}

// readRun reads the runs of a file, or of standard input for "-".
func (o *calibrateOptions) readRun(arg string) ([]calibration.ObservedRun, coefficients.Input, error) {
	batch, path := batchAndFile(arg)
	defer input.BeginReading()()
	from, name, err := o.app.open(path)
	if err != nil {
		return nil, coefficients.Input{}, err
	}
	defer from.Close()
	if batch == 0 {
		return calibration.ReadObserved(from, name)
	}
	m, c, err := o.c.resolve(o.app)
	if err == nil {
		c.Batch = batch
		c, err = m.Complete(c)
	}
	if err != nil {
		return nil, coefficients.Input{}, err
	}
	return calibration.ReadDescribedRuns(from, name, c, o.gpu)
}

func newCoefficientsShowCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [FILE]",
		Short: "Show every coefficient of a file with its error and source",
		Args:  argCount(0, 1, "name one: a coefficients file"),
	}
	return (&output{app: a}).showDocument(cmd, func(args []string) (report.Document, error) {
		f, err := a.openCoefficients(args)
		if err != nil {
			return nil, err
		}
		return calibration.ShowCoefficients(f), nil
	})
}

func newCoefficientsDiffCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff OLD [NEW]",
		Short: "Compare two files, coefficient by coefficient",
		Args:  argCount(1, 2, "name one or two coefficients files"),
	}
	return (&output{app: a}).showDocument(cmd, func(args []string) (report.Document, error) {
		old, err := a.openCoefficients(args[:1])
		if err != nil {
			return nil, err
		}
		now, err := a.openCoefficients(args[1:])
		if err != nil {
			return nil, err
		}
		return calibration.DiffCoefficients(old, now), nil
	})
}

// openCoefficients reads the named file, or else the project's.
func (a *app) openCoefficients(args []string) (*coefficients.File, error) {
	if len(args) == 0 {
		set, err := findSettings()
		if err != nil {
			return nil, err
		}
		f, _, err := (&coefficientFlag{set[coefficientsFlag].Value}).load()
		if f == nil && err == nil {
			err = usagef("name a coefficients file: neither this folder nor one above it has a %s that names one",
				projectFile)
		}
		return f, err
	}
	f, err := coefficients.Open(args[0])
	if errors.As(err, new(*fs.PathError)) {
		err = usageError{err}
	}
	return f, err
}

// The time in seconds that a step of ResNet-50 under bf16 autocast with AdamW takes if the host limits it, on the
// machine of the table of kernel parameters (bench/reference/data/h100/steps.jsonl, PyTorch 2.11), and the driver's
// part of that time. The stubs have no driver. Its part is an assumption: 555 launches of 2.5 µs, between 1 and 4.
const (
	referenceStepSeconds = 24.21e-3
	driverStepSeconds    = 1.39e-3
	driverError          = 0.42e-3
)

// calibrateHost measures how long this machine takes to launch kernels, and stores it in the coefficients file.
func (o *calibrateOptions) calibrateHost(ctx context.Context) error {
	if len(o.runs) > 0 {
		return usagef("--host measures the CPU of this machine and reads no files; leave out %s", o.runs[0])
	}
	gpu, err := device.Lookup("h100")
	if err != nil {
		return err
	}
	stubs, err := unpackStubLibraries()
	if err != nil {
		return err
	}
	torch, seconds, err := script.HostSteps(ctx, script.Command{GPU: gpu, Stubs: stubs}, cmp.Or(o.python, "python3"))
	if err != nil {
		return err
	}
	n := len(seconds)
	median := seconds[(n-1)/2]
	spread := (seconds[n*3/4] - seconds[n/4]) / 1.35 // of a normal distribution by its quartiles
	host := coefficients.Number{
		Value: (median + driverStepSeconds) / referenceStepSeconds, StdErr: math.Hypot(spread,
			driverError) / referenceStepSeconds,
		Source: fmt.Sprintf("ResNet-50 on this machine: %.1f ms of processor time a step, median of %d, and %.1f ms "+
			"of the driver by assumption; %.1f ms on the H100's", 1e3*median, n, 1e3*driverStepSeconds,
			1e3*referenceStepSeconds),
	}
	r := &report.Calibration{
		Schema: report.CalibrationSchema, Tool: vprofTool(), Started: o.app.now().UTC(),
		Entry: "host", Stack: "torch-" + torch, Models: []string{"ResNet-50"}, Points: []report.CalibrationPoint{},
	}
	factor := planner.Coefficient{Name: "host", Value: host.Value, StdErr: host.StdErr, Source: host.Source}
	speed := steptime.DefaultEfficiency().WithHostTime(factor)
	for _, c := range []planner.Coefficient{factor, speed.Dispatch, speed.Module} {
		r.Coefficients = append(r.Coefficients, report.Coefficient(c))
	}
	if !o.dryRun {
		r.File = o.coefficientsFile
		if r.Backup, err = coefficients.SetHost(ctx, o.coefficientsFile, r.Tool.Version, host); err != nil {
			return fmt.Errorf("--output: %w", err)
		}
	}
	return o.out.finish(r)
}
