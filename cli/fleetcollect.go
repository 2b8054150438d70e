package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/calibration"
	"github.com/vprof/vprof/bench/fleet"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/profiler/planner/coefficients"
)

type fleetCollectOptions struct {
	app            *app
	dir, path      string
	calibrate      string
	allowSimulated bool
	show           matrixFlags
	out            output
}

func newFleetCollectCmd(a *app) *cobra.Command {
	o := &fleetCollectOptions{app: a, out: output{app: a}}
	cmd := &cobra.Command{
		Use:   "collect FLEET.YAML",
		Short: "Collect the results of a fleet's tasks",
		Args:  oneConfigArg,
		RunE:  func(cmd *cobra.Command, args []string) error { return runFleetCollect(cmd.Context(), o, args[0]) },
	}
	f := cmd.Flags()
	folderFlag(cmd, &o.dir)
	f.StringVarP(&o.path, "output", "o", "",
		"write all sweeps to a .jsonl or .json `file`, or to several files in a folder (a name that ends in /)")
	f.StringVar(&o.calibrate, "calibrate", "", "add the fitted coefficients of each GPU to the coefficients `file`")
	f.BoolVar(&o.allowSimulated, "allow-simulated", false,
		"also calibrate from simulated GPUs and drivers; the entries are marked")
	o.show.register(cmd)
	return o.out.register(cmd)
}

func runFleetCollect(ctx context.Context, o *fleetCollectOptions, path string) (err error) {
	f, err := openFleet(path, o.dir)
	if err != nil {
		return err
	}
	release, err := f.Lock(fmt.Sprintf("vprof fleet collect, process %d of %s", os.Getpid(), hostName()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	m := &report.Matrix{
		Schema: report.MatrixSchema, Name: f.Name, Tool: vprofTool(), Started: f.Created,
		Rows: []report.MatrixCell{},
	}
	collect := func(each func(*report.Report) error) error {
		return f.Results(func(b fleet.GPUTasks, r fleet.Result) error {
			cell := report.MatrixCell{
				Model: r.Case.Model, Case: r.Case.PrecisionAndCheckpointing(), GPU: b.GPU, Device: b.GPU,
				Refused: r.RefusedReason,
			}
			if r.Report != nil {
				cell = r.Report.Cell()
				warnDifferentGPU(m, b, cell)
				if err := each(r.Report); err != nil {
					return err
				}
			}
			m.Rows = append(m.Rows, cell)
			return nil
		})
	}
	var runs []calibration.ObservedRun
	each := func(r *report.Report) error {
		if o.calibrate != "" {
			runs = append(runs, calibration.ObservedRuns(r)...)
		}
		return nil
	}
	if err := o.write(collect, each); err != nil {
		return err
	}
	nameDistinctly(m)
	if err := o.show.apply(m); err != nil {
		return err
	}
	if err := o.out.finish(m); err != nil {
		return err
	}
	if o.calibrate != "" {
		return o.fit(ctx, runs)
	}
	return nil
}

// warnDifferentGPU adds a warning if a partition has another GPU than the fleet names.
func warnDifferentGPU(m *report.Matrix, b fleet.GPUTasks, c report.MatrixCell) {
	if c.GPU == b.GPU {
		return
	}
	m.Warnings = lists.Union(m.Warnings, report.Warning{
		What: fmt.Sprintf("partition %s should have %s, and has %s", b.Partition, b.GPU, c.Title),
		Hint: "the results are for the GPU that it has",
	})
}

// nameDistinctly gives measured GPUs unique names, as reports do.
func nameDistinctly(m *report.Matrix) {
	var all []*report.Report
	for _, c := range m.Rows {
		all = append(all, &report.Report{Devices: []report.Device{{
			Name: c.Device, GPU: c.GPU, Title: c.Title, Memory: c.Memory, UUID: c.UUID, Host: c.Host,
			Simulated: c.RunKind != "measured",
		}}})
	}
	report.NameDevices(all...)
	for i, r := range all {
		m.Rows[i].Device = r.Devices[0].Name
	}
}

// write reads all reports once and writes them to the named file, if any.
func (o *fleetCollectOptions) write(collect func(func(*report.Report) error) error,
	each func(*report.Report) error,
) error {
	if o.path == "" {
		return collect(each)
	}
	if os.IsPathSeparator(o.path[len(o.path)-1]) {
		pages := &report.Pages{Dir: o.path, Size: reportsPerPage}
		err := collect(func(r *report.Report) error { return errors.Join(each(r), pages.Write(r)) })
		return errors.Join(err, pages.Close(err))
	}
	format, err := report.FormatOf(o.path)
	if err != nil || format != report.JSON && format != report.JSONL {
		return usagef("--output: %s: use a name in .jsonl or .json, or a folder (%s/)", o.path, filepath.Base(o.path))
	}
	return report.WriteFile(o.path, func(w io.Writer) error {
		return collect(func(r *report.Report) error { return errors.Join(each(r), report.Write(w, format, r)) })
	})
}

// reportsPerPage is the size limit of a page of JSON Lines, in bytes: less than vprof's limit
// for a file, and small enough for an editor.
const reportsPerPage = 32 << 20

// fit fits each GPU's coefficients to all of its runs.
func (o *fleetCollectOptions) fit(ctx context.Context, runs []calibration.ObservedRun) error {
	now := o.app.now().UTC()
	for _, gpu := range calibration.SplitByProcess(runs) {
		if gpu[0].Simulated && !o.allowSimulated {
			return usagef("--calibrate: the runs on %s are simulated and show nothing of a real GPU; collect "+
				"measured runs, or use these nevertheless with --allow-simulated", gpu[0].GPU)
		}
		c := calibration.Calibration{
			Models: o.app.models(), Residuals: o.app.residuals, Runs: gpu, Pool: true, Tool: vprofTool(), Now: now,
			Inputs: []coefficients.Input{{
				File: cmp.Or(o.path, "fleet"), Kind: "report",
				Source: "vprof " + vprofTool().Version, Simulated: gpu[0].Simulated,
			}},
		}
		r, entry, err := c.Run(ctx)
		if err != nil {
			printable.Fprintf(o.app.stderr, "vprof: %s is not calibrated: %v\n", gpu[0].GPU, err)
			continue
		}
		if _, err := coefficients.Add(ctx, o.calibrate, r.Tool.Version, *entry); err != nil {
			return fmt.Errorf("--calibrate: %w", err)
		}
		printable.Fprintf(o.app.stderr, "vprof: %s: calibrated from %d runs on %s, median error %.2f %% before, %.2f "+
			"%% after\n", entry.Name, len(gpu), gpu[0].GPU, 100*r.Errors.Before.Median, 100*r.Errors.After.Median)
	}
	return nil
}
