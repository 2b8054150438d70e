package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/page"
)

type reportOptions struct {
	app        *app
	path       string
	batch      int
	references []string
	step       bool
}

func newReportCmd(a *app) *cobra.Command {
	o := &reportOptions{app: a}
	cmd := &cobra.Command{
		Use:   "report RUN...",
		Short: "Show runs as one HTML page that opens offline",
		Long: `Show runs as one HTML page that needs no network: a verdict, the peak of every
batch size beside its estimate, what the memory is made of, the timeline of one
training step, the largest tensors, a flame view by module, and the allocator's
memory with its holes.

RUN is a file that sweep or plan wrote with --export run.json, - standard input.
Several runs must be of the same case; they may be of several devices. A run
holds no timeline: the step that it describes is recorded and simulated again,
which always gives the same one.`,
		Example: `  vprof sweep --model redimnet-b2 --export run.json
  vprof report run.json -o report.html

  # with what PyTorch itself needed
  vprof report run.json --reference records.jsonl`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef(`report needs a run; make one with "vprof sweep --export run.json"`)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runReport(cmd.Context(), o, args) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.path, "output", "o", "report.html", "`file` to write; - is standard output")
	f.IntVar(&o.batch, "batch", 0, "batch `size` of the step to show (default: the largest that fits)")
	f.StringArrayVar(&o.references, "reference", nil, "also show records of PyTorch in `file` (repeatable)")
	f.BoolVar(&o.step, "step", true, "show a training step; --step=false leaves it out")
	return cmd
}

func runReport(ctx context.Context, o *reportOptions, paths []string) error {
	runs, err := readRuns(o.app, paths)
	if err != nil {
		return err
	}
	p := &page.Page{Runs: runs}
	var mixed *page.MixedError
	if err := p.Check(); errors.As(err, &mixed) || errors.Is(err, page.ErrEmpty) {
		return usageError{err}
	}
	for _, path := range o.references {
		f, err := reference.Open(path)
		if err != nil {
			return usageError{err}
		}
		for _, r := range f.Records {
			if isOf(r, runs[0].Case) {
				p.References = append(p.References, r)
			}
		}
	}
	if o.step {
		p.Step, err = profileOf(ctx, o.app, runs[0], o.batch)
		switch {
		case err != nil && (o.batch != 0 || errors.Is(err, context.Canceled)):
			return err
		case err != nil: // the rest of the page does not need it
			p.NoStep = "The step cannot be shown: " + err.Error() + "."
		}
	}
	return writeFile(o.app, o.path, p.Write)
}

// isOf tells whether a record is of the case, whatever its batch size.
func isOf(r reference.Record, c report.Case) bool {
	k := r.Case
	k.Batch = 0
	return k.Key() == c.Key()
}
