package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

type reportOptions struct {
	app        *app
	to, path   string
	batch      int
	references []string
	step       bool
	sideBySide bool
	c          caseFlags
	board      boardFlags
}

func newReportCmd(a *app) *cobra.Command {
	o := &reportOptions{app: a}
	cmd := &cobra.Command{
		Use:   "report RUN...",
		Short: "Show runs as a page, as pictures, or in other tools",
		Args:  cobra.ArbitraryArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return runReport(cmd.Context(), o, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.to, "to", "", "`form`: "+strings.Join(viewNames(), ", ")+
		" (default: by the suffix of --output, or page)")
	f.StringVar(&o.to, "kind", "", "what plot called --to")
	hide(f, "kind")
	f.StringVarP(&o.path, "output", "o", "",
		"`file` to write; - is standard output (default: report.html for a page, plot.svg for a picture, and "+
			"otherwise -)")
	f.IntVar(&o.batch, "batch", 0,
		"batch `size` of the step to show (default: the largest of the run that fits, or the model's own)")
	f.StringArrayVar(&o.references, "reference", nil, "also show records of PyTorch in `file` (repeatable)")
	f.BoolVar(&o.step, "step", true, "show a training step on the page; --step=false leaves it out")
	f.BoolVar(&o.sideBySide, "side-by-side", false, "show two runs side by side although they are of one case")
	complete(cmd, "to", viewNames)
	o.c.writes = true
	o.c.register(cmd, a)
	o.c.registerAllocConf()
	o.board.register(cmd, "`board` to simulate (see vprof gpus)")
	return cmd
}

func runReport(ctx context.Context, o *reportOptions, paths []string) error {
	v, err := o.view()
	if err != nil {
		return err
	}
	if o.c.flags.Changed("batch") && o.batch < 1 {
		return usagef("--batch: %d is not a batch size; the smallest is 1", o.batch)
	}
	switch {
	case len(paths) > 0 && o.c.model != "":
		return usagef("report takes runs or a case, not both: leave --model or the files out")
	case len(paths) == 0 && (!v.ofStep || o.c.model == ""):
		return usagef("report needs a run; make one with \"vprof sweep --export run.json\"")
	}
	write, err := v.make(ctx, o, paths)
	if err != nil {
		return err
	}
	path := o.path
	if path == "" {
		path = v.file
	}
	if err := writeFile(o.app, path, write); err != nil {
		return err
	}
	if path != "-" {
		fmt.Fprintf(o.app.stderr, "vprof: wrote %s (%s)\n", path, v.name)
	}
	return nil
}
