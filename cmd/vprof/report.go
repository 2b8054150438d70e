package main

import (
	"context"
	"errors"
	"slices"

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
	sideBySide bool
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

RUN is a file that sweep or plan wrote with --export run.json, - standard input. Of
a plan of all ranks (--rank all) the page is that of the one that needs most, with a
bar for each.
Several runs of one case, on several devices, make one page. Runs of two cases
are shown side by side on one scale, with what differs: A, the first, and B. So
are two runs of one case with --side-by-side. A run holds no timeline: the step
that it describes is recorded and simulated again, which always gives the same
one.`,
		Example: `  vprof sweep --model redimnet-b2 --export run.json
  vprof report run.json -o report.html

  # what does checkpointing change?
  vprof sweep --model redimnet-b2 --checkpointing --export less.json
  vprof report run.json less.json

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
	f.BoolVar(&o.sideBySide, "side-by-side", false, "show two runs side by side although they are of one case")
	return cmd
}

func runReport(ctx context.Context, o *reportOptions, paths []string) error {
	runs, err := readRuns(o.app, paths)
	if err != nil {
		return err
	}
	if len(paths) == 1 && report.OfRanks(runs) && !o.sideBySide { // the first needs most, and its page has a bar of all
		runs = runs[:1]
	}
	sides := byCase(runs)
	if o.sideBySide {
		if len(runs) != 2 {
			return usagef("--side-by-side shows two runs; these are %d", len(runs))
		}
		sides = [][]*report.Report{runs[:1], runs[1:]}
	}
	if len(sides) == 2 {
		return o.writePair(ctx, &page.Pair{A: &page.Page{Runs: sides[0]}, B: &page.Page{Runs: sides[1]}})
	}
	p := &page.Page{Runs: runs}
	if err := o.fill(ctx, p, p.Check(), o.batch); err != nil {
		return err
	}
	return writeFile(o.app, o.path, p.Write)
}

// byCase groups runs by what they are of, in the order of the first of each.
func byCase(runs []*report.Report) [][]*report.Report {
	var groups [][]*report.Report
	for _, r := range runs {
		i := slices.IndexFunc(groups, func(g []*report.Report) bool { return g[0].Case.Same(r.Case) })
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], r)
	}
	return groups
}

// writePair writes the page of two runs. Without a batch size of their own they show the
// steps of one that both have.
func (o *reportOptions) writePair(ctx context.Context, p *page.Pair) error {
	err, batch := p.Check(), o.batch
	if err == nil && batch == 0 {
		batch = p.Batch()
	}
	for _, side := range []*page.Page{p.A, p.B} {
		if err := o.fill(ctx, side, err, batch); err != nil {
			return err
		}
	}
	return writeFile(o.app, o.path, p.Write)
}

// fill adds references and a step of the batch size to a page, of which problem is what
// its Check found. Batch zero is the largest that fits.
func (o *reportOptions) fill(ctx context.Context, p *page.Page, problem error, batch int) error {
	var mixed *page.MixedError
	if errors.As(problem, &mixed) || errors.Is(problem, page.ErrEmpty) {
		return usageError{problem}
	}
	for _, path := range o.references {
		f, err := reference.Open(path)
		if err != nil {
			return usageError{err}
		}
		for _, r := range f.Records {
			if isOf(r, p.Runs[0].Case) {
				p.References = append(p.References, r)
			}
		}
	}
	if !o.step {
		return nil
	}
	var err error
	if p.Ranks, err = ranksOf(ctx, o.app, p.Runs[0], batch); err != nil {
		return err
	}
	p.Step, err = profileOf(ctx, o.app, p.Runs[0], batch)
	switch {
	case err != nil && (o.batch != 0 || errors.Is(err, context.Canceled)):
		return err
	case err != nil: // the rest of the page does not need it
		p.NoStep = "The step cannot be shown: " + err.Error() + "."
	}
	return nil
}

// isOf tells whether a record is of the case, whatever its batch size.
func isOf(r reference.Record, c report.Case) bool {
	k := r.Case
	k.Batch = 0
	return k.Key() == c.Key()
}
