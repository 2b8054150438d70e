package main

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/gobench"
	"github.com/vprof/vprof/bench/show/plots"
	"github.com/vprof/vprof/bench/show/profile"
	"github.com/vprof/vprof/models/recorded"
)

// writer writes a file's content.
type writer = func(io.Writer) error

// view is a form in which report shows runs.
type view struct {
	name string
	// suffixes of files that have this form unless --to says another.
	suffixes []string
	// file is where it goes unless --output says where.
	file string
	// ofStep says that it shows one training step, which flags can describe, too.
	ofStep bool
	make   func(ctx context.Context, o *reportOptions, paths []string) (writer, error)
}

var pictureSuffixes = []string{".svg", ".png"}

// views are the values of --to.
func views() []view {
	return []view{
		{"page", []string{".html", ".htm"}, "report.html", false, pageOf},
		{"batch", pictureSuffixes, "plot.svg", false, pictureOf(plots.Batch)},
		{"breakdown", nil, "plot.svg", false, pictureOf(plots.Breakdown)},
		{"timeline", nil, "plot.svg", true, timelineOf},
		{"pprof", []string{".gz", ".pb"}, "-", true, stepAs((*profile.Profile).WritePprof)},
		{"memory-viz", []string{".pickle"}, "-", true, stepAs((*profile.Profile).WriteMemoryViz)},
		{"perfetto", []string{".perfetto"}, "-", true, stepAs((*profile.Profile).WritePerfetto)},
		{"program", []string{recorded.Suffix}, "-", true, stepAs((*profile.Profile).WriteProgram)},
		{"gobench", []string{".txt"}, "-", false, rowsAs(gobench.Write)},
		{"csv", []string{".csv"}, "-", false, rowsAs(inFormat(report.CSV))},
		{"json", []string{".json"}, "-", false, rowsAs(inFormat(report.JSON))},
		{"jsonl", []string{".jsonl", ".ndjson"}, "-", false, rowsAs(inFormat(report.JSONL))},
		{"markdown", []string{".md", ".markdown"}, "-", false, rowsAs(inFormat(report.Markdown))},
	}
}

func viewNames() []string {
	var names []string
	for _, v := range views() {
		names = append(names, v.name)
	}
	return names
}

// view is the one that --to names, or the suffix of the output, or else the page.
func (o *reportOptions) view() (view, error) {
	all, suffix := views(), strings.ToLower(filepath.Ext(o.path))
	switch {
	case o.to != "":
		name := strings.ReplaceAll(strings.ToLower(o.to), "_", "-") // pytorch.org/memory_viz
		if f, err := report.ParseFormat(name); err == nil {
			name = string(f) // md is markdown
		}
		at := slices.IndexFunc(all, func(v view) bool { return v.name == name })
		if at < 0 {
			return view{}, usagef("--to: there is no form %q; use %s", o.to, strings.Join(viewNames(), ", "))
		}
		return all[at], nil
	case o.path == "" || o.path == "-":
		return all[0], nil
	}
	at := slices.IndexFunc(all, func(v view) bool { return slices.Contains(v.suffixes, suffix) })
	if at < 0 {
		return view{}, usagef("-o %s: the suffix names no form; use .html, .svg or .png, or say one with --to", o.path)
	}
	return all[at], nil
}

// rowsAs writes every batch size of runs as rows of what other programs read.
func rowsAs(write func(io.Writer, []*report.Report) error) func(context.Context, *reportOptions,
	[]string) (writer, error) {
	return func(ctx context.Context, o *reportOptions, paths []string) (writer, error) {
		runs, err := readRuns(ctx, o.app, paths)
		if err != nil {
			return nil, err
		}
		for _, r := range runs {
			if len(r.Points) == 0 {
				return nil, usagef("%s: the run has no batch size in it", r.Case.Model)
			}
		}
		return func(w io.Writer) error { return write(w, runs) }, nil
	}
}

func inFormat(f report.Format) func(io.Writer, []*report.Report) error {
	return func(w io.Writer, runs []*report.Report) error { return report.Write(w, f, report.Several(runs)) }
}

// stepAs writes what lies in the memory during one step.
func stepAs(write func(*profile.Profile, io.Writer) error) func(context.Context, *reportOptions,
	[]string) (writer, error) {
	return func(ctx context.Context, o *reportOptions, paths []string) (writer, error) {
		p, err := o.profile(ctx, paths)
		return func(w io.Writer) error { return write(p, w) }, err
	}
}

// pictureOf draws one run.
func pictureOf(draw func(*report.Report) (*plot.Plot, error)) func(context.Context, *reportOptions,
	[]string) (writer, error) {
	return func(ctx context.Context, o *reportOptions, paths []string) (writer, error) {
		run, err := o.oneRun(ctx, paths)
		if err != nil {
			return nil, err
		}
		return o.picture(draw(run))
	}
}

func timelineOf(ctx context.Context, o *reportOptions, paths []string) (writer, error) {
	p, err := o.profile(ctx, paths)
	if err != nil {
		return nil, err
	}
	return o.picture(plots.Timeline(p))
}

// picture writes a plot in the format of the output's suffix. A run that cannot be drawn is
// bad input.
func (o *reportOptions) picture(p *plot.Plot, err error) (writer, error) {
	if err != nil {
		return nil, usageError{err}
	}
	format := "svg"
	if o.path != "" && o.path != "-" {
		suffix := strings.ToLower(filepath.Ext(o.path))
		if !slices.Contains(pictureSuffixes, suffix) {
			return nil, usagef("-o %s: the suffix names no format of pictures; use .svg or .png", o.path)
		}
		format = suffix[1:]
	}
	return func(w io.Writer) error { return plots.Write(w, p, format) }, nil
}

// oneRun reads the one run that can be shown.
func (o *reportOptions) oneRun(ctx context.Context, paths []string) (*report.Report, error) {
	runs, err := readRuns(ctx, o.app, paths)
	if err == nil && len(runs) != 1 {
		err = usagef("this form shows one run; there are %d", len(runs))
	}
	if err != nil {
		return nil, err
	}
	return runs[0], nil
}

// profile is that of the one run, or of the case that the flags describe.
func (o *reportOptions) profile(ctx context.Context, paths []string) (*profile.Profile, error) {
	if len(paths) > 0 {
		run, err := o.oneRun(ctx, paths)
		if err != nil {
			return nil, err
		}
		return profileOf(ctx, o.app, run, o.batch)
	}
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
