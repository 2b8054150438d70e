package main

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"gonum.org/v1/plot"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/plots"
)

// plotKinds are the values of --kind.
var plotKinds = []string{"batch", "timeline", "breakdown"}

type plotOptions struct {
	app        *app
	kind, path string
	batch      int
}

func newPlotCmd(a *app) *cobra.Command {
	o := &plotOptions{app: a}
	cmd := &cobra.Command{
		Use:   "plot RUN --kind KIND -o FILE",
		Short: "Draw a run as SVG or PNG, for papers and READMEs",
		Long: `Draw a run as SVG or PNG, by the suffix of the file:

  batch      the reserved peak over batch sizes, and where the board ends
  breakdown  what the memory is made of, a stacked bar for each batch size
  timeline   the memory over one training step, stacked by class

RUN is a file that sweep or plan wrote with --export run.json, - standard input.`,
		Example: `  vprof sweep --model redimnet-b2 --export run.json
  vprof plot run.json --kind batch -o peaks.svg
  vprof plot run.json --kind timeline --batch 16 -o step.png`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef(`plot needs one run; make one with "vprof sweep --export run.json"`)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runPlot(cmd.Context(), o, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&o.kind, "kind", "batch", "what to draw: "+strings.Join(plotKinds, ", "))
	f.StringVarP(&o.path, "output", "o", "plot.svg", "`file` to write, .svg or .png")
	f.IntVar(&o.batch, "batch", 0, "batch `size` of the timeline (default: the largest that fits)")
	complete(cmd, "kind", func() []string { return plotKinds })
	return cmd
}

func runPlot(ctx context.Context, o *plotOptions, path string) error {
	if !slices.Contains(plotKinds, o.kind) {
		return usagef("--kind: there is no kind %q; use %s", o.kind, strings.Join(plotKinds, ", "))
	}
	format := strings.ToLower(strings.TrimPrefix(filepath.Ext(o.path), "."))
	if format != "svg" && format != "png" {
		return usagef("-o %s: the suffix names no format; use .svg or .png", o.path)
	}
	runs, err := readRuns(o.app, []string{path})
	if err != nil {
		return err
	}
	if len(runs) != 1 {
		return usagef("plot draws one run; %s holds %d", path, len(runs))
	}
	p, err := o.draw(ctx, runs[0])
	if err != nil {
		return err
	}
	return writeFile(o.app, o.path, func(w io.Writer) error { return plots.Write(w, p, format) })
}

func (o *plotOptions) draw(ctx context.Context, r *report.Report) (*plot.Plot, error) {
	switch o.kind {
	case "batch":
		return usable(plots.Batch(r))
	case "breakdown":
		return usable(plots.Breakdown(r))
	}
	profile, err := profileOf(ctx, o.app, r, o.batch)
	if err != nil {
		return nil, err
	}
	return usable(plots.Timeline(profile))
}

// usable says that a run which cannot be drawn is bad input.
func usable(p *plot.Plot, err error) (*plot.Plot, error) {
	if err != nil {
		return nil, usageError{err}
	}
	return p, nil
}
