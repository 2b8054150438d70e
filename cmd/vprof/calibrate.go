package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner/coefficients"
)

type calibrateOptions struct {
	app            *app
	runs           []string
	model, gpu     string
	batch          batchFlag
	stack          string
	name, file     string
	allowSimulated bool
	pool, dryRun   bool
	out            output
}

func newCalibrateCmd(a *app) *cobra.Command {
	o := &calibrateOptions{app: a, out: output{app: a}}
	cmd := &cobra.Command{
		Use:   "calibrate RUN...",
		Short: "Learn from runs what no recording shows, and correct estimates by it",
		Long: `Fit the planner's coefficients to runs: reports of vprof sweep on a real GPU, and
reference records of PyTorch (- is standard input). All runs must be of one GPU,
one software stack and one model.

What is fitted are bytes that do not depend on the batch (the CUDA context,
libraries' workspaces), shares of what a step takes (slacks), and what the driver
adds to each segment. Two batch sizes that are a factor of four apart are enough
for most; what the runs cannot tell is refused, with the batch size to add.

The coefficients go into a YAML file, with their errors and where they come from.
Entries of other GPUs and stacks in it are kept, and so is a copy of the file as
it was (FILE.backup). plan, sweep, fit and smoke use the file with --coefficients,
or if vprof.yaml in the project names it:

  coefficients: coefficients.yaml`,
		Example: `  # on the GPU
  vprof calibrate sweep-8.json sweep-32.json

  # would it help?
  vprof calibrate b2.json --dry-run`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("name the runs to learn from: reports of vprof sweep, or reference records")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.runs = args
			return runCalibrate(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "output", "o", "coefficients.yaml", "coefficients `file` to write to")
	f.StringVar(&o.name, "name", "", "`name` of the entry (default: the GPU and the stack)")
	f.StringVar(&o.model, "model", "", "only runs of this `model`")
	f.StringVar(&o.gpu, "gpu", "", "only runs of this `board`")
	f.StringVar(&o.stack, "stack", "", "what ran, if the runs do not say: a `list` like torch=2.11.0,cuda=13.0,cudnn=9.19,driver=580")
	f.BoolVar(&o.pool, "pool", false, "fit one set of coefficients to runs of several models")
	f.BoolVar(&o.allowSimulated, "allow-simulated", false, "learn from simulated devices and drivers, too; the entry says so")
	f.BoolVar(&o.dryRun, "dry-run", false, "write nothing")
	o.batch.register(cmd, "all in the runs")
	o.out.register(cmd)
	complete(cmd, "model", func() []string { return a.models().Names() })
	complete(cmd, "gpu", device.Names)
	return cmd
}

func runCalibrate(ctx context.Context, o *calibrateOptions) error {
	stack, err := parseStack(o.stack)
	if err != nil {
		return err
	}
	runs, inputs, err := o.read()
	if err != nil {
		return err
	}
	// A file that cannot be added to must be known before the work.
	if _, err := coefficients.Open(o.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--output: %w", err)
	}
	if err := o.out.open(); err != nil {
		return err
	}
	c := bench.Calibration{
		Models: o.app.models(), Residuals: o.app.residuals, Runs: runs, Inputs: inputs,
		Name: o.name, Stack: stack, Pool: o.pool, Tool: tool(), Now: o.app.now().UTC(),
	}
	r, entry, err := c.Run(ctx)
	if err != nil {
		return err
	}
	if !o.dryRun {
		r.File = o.file
		if r.Backup, err = coefficients.Add(ctx, o.file, r.Tool.Version, *entry); err != nil {
			return fmt.Errorf("--output: %w", err)
		}
	}
	return o.out.finish(r)
}

// read reads the runs that the flags choose.
func (o *calibrateOptions) read() ([]bench.Observed, []coefficients.Input, error) {
	wanted, err := o.wanted()
	if err != nil {
		return nil, nil, err
	}
	var runs []bench.Observed
	var inputs []coefficients.Input
	for _, path := range o.runs {
		all, in, err := o.app.readObserved(path)
		if err != nil {
			return nil, nil, err
		}
		all = slices.DeleteFunc(all, func(r bench.Observed) bool { return !wanted(r) })
		if len(all) == 0 {
			return nil, nil, usagef("%s: no run is left to learn from (batches %v, of which the flags leave none)", path, in.Batches)
		}
		if all[0].Simulated && !o.allowSimulated {
			return nil, nil, usagef("%s: %s is simulated, so there is nothing to learn of a real GPU; --allow-simulated learns from it nevertheless", path, in.Source)
		}
		in.Batches = nil
		for _, r := range all {
			if !slices.Contains(in.Batches, r.Case.Batch) {
				in.Batches = append(in.Batches, r.Case.Batch)
			}
		}
		slices.Sort(in.Batches)
		runs, inputs = append(runs, all...), append(inputs, in)
	}
	return runs, inputs, nil
}

// wanted tells which runs the flags choose.
func (o *calibrateOptions) wanted() (func(bench.Observed) bool, error) {
	batches, err := o.batch.sizes(nil)
	if err != nil {
		return nil, err
	}
	board := ""
	if o.gpu != "" {
		gpu, err := device.Lookup(o.gpu)
		if err != nil {
			return nil, err
		}
		board = gpu.Name
	}
	return func(r bench.Observed) bool {
		return (len(batches) == 0 || slices.Contains(batches, r.Case.Batch)) &&
			(o.model == "" || r.Case.Model == o.model) && (board == "" || r.GPU == board)
	}, nil
}

// readObserved reads the runs of a file, or of standard input for "-".
func (a *app) readObserved(path string) ([]bench.Observed, coefficients.Input, error) {
	from, name := a.stdin, "stdin"
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, coefficients.Input{}, usageError{err}
		}
		defer f.Close()
		from, name = io.Reader(f), path
	}
	return bench.ReadObserved(from, name)
}

// parseStack reads what --stack says.
func parseStack(list string) (coefficients.Stack, error) {
	var s coefficients.Stack
	if list == "" {
		return s, nil
	}
	fields := map[string]*string{"torch": &s.Torch, "cuda": &s.CUDA, "cudnn": &s.CUDNN, "driver": &s.Driver}
	for pair := range strings.SplitSeq(list, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		field := fields[key]
		if !ok || field == nil || value == "" {
			return s, usagef("--stack: %q is not one of torch=, cuda=, cudnn=, driver= with a version", pair)
		}
		*field = value
	}
	return s, nil
}
