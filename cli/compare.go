package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/compare"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
)

type compareOptions struct {
	app       *app
	tolerance string
	batch     int
	out       output
}

func newCompareCmd(a *app) *cobra.Command {
	o := &compareOptions{app: a, out: output{app: a}}
	cmd := &cobra.Command{
		Use:   "compare [LABEL=]A [LABEL=]B",
		Short: "Compare two runs, plans, references or PyTorch memory snapshots",
		Args:  argCount(2, 2, "name two files to compare"),
		RunE:  func(cmd *cobra.Command, args []string) error { return runCompare(cmd.Context(), o, args) },
	}
	cmd.Flags().StringVar(&o.tolerance, "tolerance", "5%",
		"exit with code 3 if a value differs by more than this `share`, like 2% or 0.02")
	cmd.Flags().IntVar(&o.batch, "batch", 0, "compare only steps of this batch `size`")
	return o.out.register(cmd)
}

func runCompare(ctx context.Context, o *compareOptions, args []string) error {
	tolerance, err := parseTolerance(o.tolerance)
	if err != nil {
		return usagef("--tolerance: %w", err)
	}
	if o.batch < 0 {
		return usagef("--batch: %d is not a batch size; the smallest is 1", o.batch)
	}
	if args[0] == "-" && args[1] == "-" {
		return usagef("only one of the two files can be - (standard input)")
	}
	var sides [2]*compare.ComparedFile
	for i, arg := range args {
		if sides[i], err = o.app.readSide(arg); err != nil {
			return err
		}
	}
	if sides[0].Label == sides[1].Label {
		sides[0].Label, sides[1].Label = "A", "B"
	}
	c, err := compare.Compare(sides[0], sides[1], tolerance, o.batch, o.app.stepPrice(ctx))
	if err != nil {
		return usageError{err}
	}
	c.Tool = vprofTool()
	if err := o.out.finish(c); err != nil {
		return err
	}
	if c.Over > 0 {
		return negativeVerdict{fmt.Errorf("%d of %d compared values differ by more than %s (--tolerance)",
			c.Over, len(c.Rows), o.tolerance)}
	}
	return nil
}

// stepPrice returns the simulated memory of a case.
func (a *app) stepPrice(ctx context.Context) compare.NeedFunc {
	return func(c models.Case, batch int, name string) (int64, error) {
		gpu, err := device.Lookup(name)
		if err != nil {
			return 0, err
		}
		m, err := a.models().Lookup(c.Model)
		if err == nil {
			m, c, err = a.models().Complete(m, c)
		}
		if err != nil {
			return 0, err
		}
		setup, err := step.New(m, c, step.Evidence{Residuals: a.residuals})
		if err != nil {
			return 0, err
		}
		result, err := setup.Try(ctx, setup.Trial(gpu, batch))
		if err != nil {
			return 0, err
		}
		defer result.Discard()
		e, err := setup.Estimate(gpu, result.Sample())
		if err != nil {
			return 0, err
		}
		return e.Device.Value, nil
	}
}

// readSide reads LABEL=FILE or FILE.
func (a *app) readSide(arg string) (*compare.ComparedFile, error) {
	label, path, labeled := strings.Cut(arg, "=")
	if !labeled {
		path = arg
		label = strings.TrimSuffix(filepath.Base(arg), filepath.Ext(arg))
	}
	defer input.BeginReading()()
	f, name, err := a.open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if path == "-" && !labeled {
		label = name
	}
	return compare.Read(f, name, label)
}

func parseTolerance(s string) (float64, error) {
	v, err := parseShare(strings.TrimSpace(s))
	if err == nil && !(v >= 0 && v <= 100) {
		err = fmt.Errorf("invalid %q: need a percentage from 0 to 100", s)
	}
	return v, err
}
