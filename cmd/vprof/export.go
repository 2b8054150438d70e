package main

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/gobench"
	"github.com/vprof/vprof/bench/show/profile"
)

// profileWriters write what lies in the memory during one step.
var profileWriters = map[string]func(*profile.Profile, io.Writer) error{
	"pprof":      (*profile.Profile).WritePprof,
	"memory-viz": (*profile.Profile).WriteMemoryViz,
	"perfetto":   (*profile.Profile).WritePerfetto,
}

// exportFormats are the values of --to, those of profileWriters first.
var exportFormats = []string{"pprof", "memory-viz", "perfetto", "gobench", "csv", "json", "jsonl", "markdown"}

type exportOptions struct {
	app   *app
	to    string
	path  string
	batch int
	c     caseFlags
	board boardFlags
}

func newExportCmd(a *app) *cobra.Command {
	o := &exportOptions{app: a}
	cmd := &cobra.Command{
		Use:   "export --to FORMAT [RUN...]",
		Short: "Write runs for other tools: pprof, memory_viz, Perfetto, benchstat",
		Long: `Write runs for other tools. These show what lies in the memory during a step:

  pprof       live tensors at the peak by module and operator, for go tool pprof
  memory-viz  a snapshot as PyTorch pickles it, for pytorch.org/memory_viz
  perfetto    memory over the time of the kernels, for ui.perfetto.dev

and these every batch size of the runs:

  gobench     Go's benchmark format, for benchstat
  csv, json, jsonl, markdown

RUN is a file that sweep or plan wrote with --export run.json, - standard input.
It holds no timeline: the step that it describes is recorded and simulated
again, which always gives the same one. Without RUN, the flags say what is
trained, as in plan.`,
		Example: `  # which modules hold the memory?
  vprof export --to pprof --model redimnet-b2 --batch 16 -o peak.pb.gz
  go tool pprof -http : peak.pb.gz

  # the step of a sweep, for https://pytorch.org/memory_viz
  vprof export --to memory-viz run.json --batch 32 -o step.pickle

  # two sweeps side by side
  vprof export --to gobench run.json -o new.txt && benchstat old.txt new.txt`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return runExport(cmd.Context(), o, args) },
	}
	cmd.Flags().StringVar(&o.to, "to", "", "`format`: "+strings.Join(exportFormats, ", "))
	cmd.Flags().StringVarP(&o.path, "output", "o", "-", "`file` to write; - is standard output")
	cmd.Flags().IntVar(&o.batch, "batch", 0, "batch `size` to show (default: the largest of the run that fits, or the model's own)")
	o.c.writes = true
	o.c.register(cmd, a)
	o.c.registerAllocConf()
	o.board.register(cmd, "`board` to simulate (see vprof gpus)")
	complete(cmd, "to", func() []string { return exportFormats })
	return cmd
}

func runExport(ctx context.Context, o *exportOptions, runs []string) error {
	o.to = strings.ReplaceAll(o.to, "_", "-") // pytorch.org/memory_viz
	if f, err := report.ParseFormat(o.to); err == nil {
		o.to = string(f) // md is markdown
	}
	if !slices.Contains(exportFormats, o.to) {
		return usagef("--to: there is no format %q; use %s", o.to, strings.Join(exportFormats, ", "))
	}
	if o.c.flags.Changed("batch") && o.batch < 1 {
		return usagef("--batch: %d is not a batch size; the smallest is 1", o.batch)
	}
	if len(runs) > 0 && o.c.model != "" {
		return usagef("export takes runs or a case, not both: leave --model or the files out")
	}
	if write, ok := profileWriters[o.to]; ok {
		p, err := o.profile(ctx, runs)
		if err != nil {
			return err
		}
		return writeFile(o.app, o.path, func(w io.Writer) error { return write(p, w) })
	}
	if len(runs) == 0 {
		return usagef("--to %s needs a run; make one with \"vprof sweep --export run.json\"", o.to)
	}
	reports, err := readRuns(o.app, runs)
	if err != nil {
		return err
	}
	for _, r := range reports {
		if len(r.Points) == 0 {
			return usagef("%s: the run has no batch size in it", r.Case.Model)
		}
	}
	return writeFile(o.app, o.path, func(w io.Writer) error { return writeRuns(w, o.to, reports) })
}

// writeRuns writes runs as rows of what other programs read.
func writeRuns(w io.Writer, to string, runs []*report.Report) error {
	if to == "gobench" {
		return gobench.Write(w, runs)
	}
	return report.Write(w, report.Format(to), report.Several(runs))
}

// profile is that of the one run, or of the case that the flags describe.
func (o *exportOptions) profile(ctx context.Context, runs []string) (*profile.Profile, error) {
	if len(runs) == 0 {
		setup, c, err := o.c.setup(o.app)
		if err != nil {
			return nil, err
		}
		gpu, err := o.board.board()
		if err != nil {
			return nil, err
		}
		if o.batch == 0 {
			o.batch = c.Batch
		}
		return setup.Profile(ctx, gpu, o.batch)
	}
	reports, err := readRuns(o.app, runs)
	if err != nil {
		return nil, err
	}
	if len(reports) != 1 {
		return nil, usagef("--to %s shows a step of one run; there are %d", o.to, len(reports))
	}
	return profileOf(ctx, o.app, reports[0], o.batch)
}
