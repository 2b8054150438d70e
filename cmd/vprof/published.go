package main

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/vprof/vprof/bench/job"
	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/progress"
)

// published plans what others have measured, and shows how far off that is.
func (o *accuracyOptions) published(ctx context.Context, rows []reference.Published, folder string) error {
	return o.out.work(o.quiet, func(step progress.Func) (report.Document, error) {
		all, err := o.app.publishedRows(ctx, rows, folder, step)
		return report.PublishedOf(all), err
	})
}

// publishedRows are figures beside their plans.
func (a *app) publishedRows(ctx context.Context, rows []reference.Published, folder string, step progress.Func) (
	all []report.PublishedRow, err error,
) {
	planned := map[string]*report.Estimate{}
	refused := map[string]string{"": ""}
	for i, p := range rows {
		step("figures", i, len(rows))
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		row := p.PublishedRow
		row.Refused = p.Missing
		if _, tried := planned[p.Command]; !tried && p.Command != "" {
			e, err := a.planned(ctx, p.Command, folder)
			if planned[p.Command] = e; err != nil {
				refused[p.Command] = err.Error()
			}
		}
		if e := planned[p.Command]; e != nil {
			of := map[string]*report.Interval{"allocated": &e.Allocated, "reserved": &e.Reserved, "device": &e.Device}
			row.Estimate = of[p.Kind]
		} else if p.Command != "" {
			row.Refused = refused[p.Command]
		}
		all = append(all, row)
	}
	return all, nil
}

// planned is the estimate of a plan on one board at one batch size, whose files are in a folder.
func (a *app) planned(ctx context.Context, command, folder string) (*report.Estimate, error) {
	words := strings.Fields(command)[1:]
	for i, w := range words {
		if file, ok := strings.CutPrefix(w, "hf:"); ok && !filepath.IsAbs(file) {
			words[i] = "hf:" + filepath.Join(folder, file)
		}
	}
	cmd, o := planCmd(a)
	if err := cmd.ParseFlags(words); err != nil {
		return nil, err
	}
	m, cases, own, err := o.cases()
	if err != nil {
		return nil, err
	}
	evidence, err := o.c.evidence(a)
	if err != nil {
		return nil, err
	}
	gpus, err := o.boards()
	if err != nil {
		return nil, err
	}
	batches, err := o.batch.sizes([]int{own})
	if err != nil {
		return nil, err
	}
	if len(cases)*len(gpus)*len(batches) != 1 {
		return nil, usagef("%s: a figure is of one release, board and batch size of %s", command, m.Name)
	}
	here := &job.Local{Models: a.models(), Evidence: evidence}
	r, err := here.Run(ctx, job.Plan(cases[0], o.c.ranks.linked(gpus), batches)[0], nil)
	if err != nil {
		return nil, err
	}
	return r.Points[0].Estimate, nil
}
