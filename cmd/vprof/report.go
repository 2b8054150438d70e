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

const reportHelp = `Show runs as one HTML page that needs no network: a verdict, the peak of every
batch size beside its estimate, what the memory is made of, the timeline of one
training step, the largest tensors, a flame view by module, and the allocator's
memory with its holes.

--to, or the suffix of the output, chooses another form:

  page        the HTML page
  batch       SVG or PNG: the reserved peak over batch sizes, and the board's end
  breakdown   SVG or PNG: what the memory is made of, a bar for each batch size
  timeline    SVG or PNG: the memory over one training step, stacked by class
  pprof       live tensors at the peak by module and operator, for go tool pprof
  memory-viz  a snapshot as PyTorch pickles it, for pytorch.org/memory_viz
  perfetto    memory over the time of the kernels, for ui.perfetto.dev
  program     the steps as a recorded run, which --model run.vprof reads
  gobench     Go's benchmark format, for benchstat
  csv, json, jsonl, markdown

RUN is a file that sweep or plan wrote with --export run.json, - standard input.
It holds no timeline: the step that it describes is recorded and simulated again,
which always gives the same one. Without RUN, the flags say what is trained, as in
plan, for the forms that show one step.

Several runs of one case, on several devices, make one page. Runs of two cases are
shown side by side on one scale, with what differs: A, the first, and B. So are two
runs of one case with --side-by-side. Of a plan of all ranks (--rank all) the page is
that of the one that needs most, with a bar for each.`

func newReportCmd(a *app) *cobra.Command {
	o := &reportOptions{app: a}
	cmd := &cobra.Command{
		Use:   "report RUN...",
		Short: "Show runs as a page, as pictures, or in other tools",
		Long:  reportHelp,
		Example: `  vprof sweep --model redimnet-b2 --export run.json
  vprof report run.json -o report.html
  vprof report run.json -o peaks.svg

  # what does checkpointing change?
  vprof sweep --model redimnet-b2 --checkpointing --export less.json
  vprof report run.json less.json

  # with what PyTorch itself needed
  vprof report run.json --reference records.jsonl

  # which modules hold the memory?
  vprof report --to pprof --model redimnet-b2 --batch 16 -o peak.pb.gz
  go tool pprof -http : peak.pb.gz

  # the step of a sweep, for https://pytorch.org/memory_viz
  vprof report run.json --to memory-viz --batch 32 -o step.pickle`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return runReport(cmd.Context(), o, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.to, "to", "", "`form`: "+strings.Join(viewNames(), ", ")+" (default: by the suffix of --output, or page)")
	f.StringVar(&o.to, "kind", "", "what plot called --to")
	hide(f, "kind")
	f.StringVarP(&o.path, "output", "o", "", "`file` to write; - is standard output (default: report.html for a page, plot.svg for a picture, and otherwise -)")
	f.IntVar(&o.batch, "batch", 0, "batch `size` of the step to show (default: the largest of the run that fits, or the model's own)")
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
