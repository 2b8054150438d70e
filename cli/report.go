package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/page"
	"github.com/vprof/vprof/bench/show/profile"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/recorded"
)

type reportOptions struct {
	app        *app
	to, path   string
	batch      int
	references []string
	step       bool
	sideBySide bool
	c          caseFlags
	target     gpuFlags
}

func newReportCmd(a *app) *cobra.Command {
	o := &reportOptions{app: a}
	cmd := &cobra.Command{
		Use:   "report RUN...",
		Short: "Show runs as an HTML page, as pictures, or in other tools",
		Args:  cobra.ArbitraryArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return runReport(cmd.Context(), o, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.to, "to", "", "output `format`: "+strings.Join(viewNames(), ", ")+
		" (default: by the suffix of --output, or page)")
	f.StringVarP(&o.path, "output", "o", "",
		"`file` to write; - is standard output (default: report.html for a page, plot.svg for a picture, else -)")
	f.IntVar(&o.batch, "batch", 0,
		"batch `size` of the step to show (default: the run's largest that fits, or the model's)")
	f.StringArrayVar(&o.references, "reference", nil, "also show records of PyTorch's peaks from `file` (repeatable)")
	f.BoolVar(&o.step, "step", true, "show a training step on the page; --step=false leaves it out")
	f.BoolVar(&o.sideBySide, "side-by-side", false, "show two runs of the same case side by side")
	completeFlag(cmd, "to", viewNames)
	o.c.register(cmd, a)
	o.c.registerAllocConf()
	o.target.register(cmd, "`GPU` to simulate (see vprof gpus)")
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
		return usagef("files with runs and --model with a case are both given; leave one out")
	case len(paths) == 0 && (!v.needsStep || o.c.model == ""):
		return usagef("report needs a run; create one with \"vprof sweep --export run.json\"")
	}
	write, err := v.make(ctx, o, paths)
	if err != nil {
		return err
	}
	path := cmp.Or(o.path, v.file)
	if path == "-" {
		return write(o.app.stdout)
	}
	if err = report.WriteFile(path, write); err == nil {
		fmt.Fprintf(o.app.stderr, "vprof: wrote %s (%s)\n", path, v.name)
	}
	return err
}

// writeFunc writes a file's content, and maker makes a writer from runs or from the case of the flags.
type (
	writeFunc = func(io.Writer) error
	viewFunc  = func(ctx context.Context, o *reportOptions, paths []string) (writeFunc, error)
)

// reportView is an output format of report.
type reportView struct {
	name string
	// suffixes are the file suffixes that select the format.
	suffixes []string
	// file is the default of --output.
	file string
	// needsStep reports whether the format shows one training step, which flags can describe instead of a file.
	needsStep bool
	make      viewFunc
}

func views() []reportView {
	return []reportView{
		{"page", []string{".html", ".htm"}, "report.html", false, pageView},
		{"batch", []string{".svg"}, "plot.svg", false, pictureView(page.Peaks)},
		{"breakdown", nil, "plot.svg", false, pictureView(page.Breakdown)},
		{"timeline", nil, "plot.svg", true, timelineView},
		{"pprof", []string{".gz", ".pb"}, "-", true, stepView((*profile.Profile).WritePprof)},
		{"memory-viz", []string{".pickle"}, "-", true, stepView((*profile.Profile).WriteMemoryViz)},
		{"perfetto", []string{".perfetto"}, "-", true, stepView((*profile.Profile).WritePerfetto)},
		{"program", []string{recorded.Suffix}, "-", true, stepView((*profile.Profile).WriteProgram)},
		{"csv", []string{".csv"}, "-", false, rowsView(report.CSV)},
		{"json", []string{".json"}, "-", false, rowsView(report.JSON)},
		{"jsonl", []string{".jsonl", ".ndjson"}, "-", false, rowsView(report.JSONL)},
		{"markdown", []string{".md", ".markdown"}, "-", false, rowsView(report.Markdown)},
	}
}

func viewNames() []string { return lists.Map(views(), func(v reportView) string { return v.name }) }

// view returns the format of --to, else of the output's suffix, else the HTML page.
func (o *reportOptions) view() (reportView, error) {
	all, suffix := views(), strings.ToLower(filepath.Ext(o.path))
	switch {
	case o.to != "":
		name := strings.ReplaceAll(strings.ToLower(o.to), "_", "-") // pytorch.org/memory_viz
		if f, err := report.ParseFormat(name); err == nil {
			name = string(f) // md is markdown
		}
		at := slices.IndexFunc(all, func(v reportView) bool { return v.name == name })
		if at < 0 {
			return reportView{}, usagef("--to: unknown format %q; use %s", o.to, strings.Join(viewNames(), ", "))
		}
		return all[at], nil
	case o.path == "" || o.path == "-":
		return all[0], nil
	}
	at := slices.IndexFunc(all, func(v reportView) bool { return slices.Contains(v.suffixes, suffix) })
	if at < 0 {
		return reportView{}, usagef("-o %s: the suffix is no known format; use .html or .svg, or name a format with "+
			"--to", o.path)
	}
	return all[at], nil
}

// rowsView writes every batch size of runs as rows for other programs.
func rowsView(f report.Format) viewFunc {
	return func(ctx context.Context, o *reportOptions, paths []string) (writeFunc, error) {
		runs, err := readRuns(ctx, o.app, paths)
		if err != nil {
			return nil, err
		}
		for _, r := range runs {
			if len(r.Points) == 0 {
				return nil, usagef("%s: the file holds no result for any batch size; name a result of vprof plan, "+
					"sweep or run", r.Case.Model)
			}
		}
		return func(w io.Writer) error { return report.Write(w, f, report.Sweeps(runs)) }, nil
	}
}

// stepView writes the contents of memory during one step.
func stepView(write func(*profile.Profile, io.Writer) error) viewFunc {
	return func(ctx context.Context, o *reportOptions, paths []string) (writeFunc, error) {
		p, err := o.profile(ctx, paths)
		return func(w io.Writer) error { return write(p, w) }, err
	}
}

func pictureView(draw func(*report.Report) (*page.Picture, error)) viewFunc {
	return func(ctx context.Context, o *reportOptions, paths []string) (writeFunc, error) {
		run, err := o.readOneRun(ctx, paths)
		if err != nil {
			return nil, err
		}
		return o.picture(draw(run))
	}
}

func timelineView(ctx context.Context, o *reportOptions, paths []string) (writeFunc, error) {
	p, err := o.profile(ctx, paths)
	if err != nil {
		return nil, err
	}
	return o.picture(page.Timeline(p))
}

// picture returns the writer of a picture. A run that cannot be drawn and a file not named as SVG are bad input.
func (o *reportOptions) picture(p *page.Picture, err error) (writeFunc, error) {
	switch {
	case err != nil:
		return nil, usageError{err}
	case o.path != "" && o.path != "-" && !strings.EqualFold(filepath.Ext(o.path), ".svg"):
		return nil, usagef("-o %s: pictures are SVG; use .svg", o.path)
	}
	return p.Write, nil
}

func (o *reportOptions) readOneRun(ctx context.Context, paths []string) (*report.Report, error) {
	runs, err := readRuns(ctx, o.app, paths)
	if err == nil && len(runs) != 1 {
		err = usagef("this format shows one run, and %d are given; choose one with --batch, or name one file",
			len(runs))
	}
	if err != nil {
		return nil, err
	}
	return runs[0], nil
}

// profile returns the profile of the single run, or of the flags' case.
func (o *reportOptions) profile(ctx context.Context, paths []string) (*profile.Profile, error) {
	if len(paths) > 0 {
		run, err := o.readOneRun(ctx, paths)
		if err != nil {
			return nil, err
		}
		return profileOf(ctx, o.app, run, o.batch)
	}
	setup, c, err := o.c.newSetup(o.app)
	if err != nil {
		return nil, err
	}
	gpu, err := o.target.oneGPU()
	if err != nil {
		return nil, err
	}
	return setup.Profile(ctx, gpu, cmp.Or(o.batch, c.Batch))
}

// pageView returns a writer of the HTML page of runs.
func pageView(ctx context.Context, o *reportOptions, paths []string) (writeFunc, error) {
	files, err := readFiles(o.app, paths)
	if err != nil {
		return nil, err
	}
	if len(files) == 1 && o.batch == 0 && !o.sideBySide {
		if fit := report.ReadFit(files[0].data); fit != nil {
			return (&page.Fit{Fit: fit}).Write, nil
		}
	}
	runs, err := runsIn(ctx, o.app, files)
	if err != nil {
		return nil, err
	}
	// the first needs most, and its page has a bar of all
	if len(paths) == 1 && report.AreRanks(runs) && !o.sideBySide {
		runs = runs[:1]
	}
	sides := groupByCase(runs)
	if o.sideBySide {
		if len(runs) != 2 {
			return nil, usagef("--side-by-side needs two runs, and %d are given; name two files", len(runs))
		}
		sides = [][]*report.Report{runs[:1], runs[1:]}
	}
	if len(sides) == 2 {
		p := &page.Pair{A: &page.Page{Runs: sides[0]}, B: &page.Page{Runs: sides[1]}}
		return p.Write, o.fillPair(ctx, p)
	}
	p := &page.Page{Runs: runs}
	return p.Write, o.fillPage(ctx, p, p.Check(), o.batch)
}

func groupByCase(runs []*report.Report) [][]*report.Report {
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

// fillPair adds the steps of two runs, by default at a batch size that both have.
func (o *reportOptions) fillPair(ctx context.Context, p *page.Pair) error {
	err, batch := p.Check(), o.batch
	if err == nil && batch == 0 {
		batch = p.Batch()
	}
	for _, side := range []*page.Page{p.A, p.B} {
		if err := o.fillPage(ctx, side, err, batch); err != nil {
			return err
		}
	}
	return nil
}

// fillPage adds references and a step of the batch size to a page; batch zero is the largest that fits. problem is the
// result of the page's Check.
func (o *reportOptions) fillPage(ctx context.Context, p *page.Page, problem error, batch int) error {
	if errors.As(problem, new(*page.MixedError)) || errors.Is(problem, page.ErrEmpty) {
		return usageError{problem}
	}
	for _, path := range o.references {
		f, err := reference.Open(path)
		if err != nil {
			return usageError{err}
		}
		for _, r := range f.Records {
			k := r.Case
			k.Batch = 0 // any
			if k.Key() == p.Runs[0].Case.Key() {
				p.References = append(p.References, r)
			}
		}
	}
	if !o.step || p.Runs[0].Script != nil { // a command's steps are in its tables
		return nil
	}
	var err error
	if p.Ranks, err = planDifferingRanks(ctx, o.app, p.Runs[0], batch); err != nil {
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
