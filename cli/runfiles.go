package cli

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/sweep"
	"github.com/vprof/vprof/bench/observe/snapshot"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/profile"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/profiler/device"
)

// A runFile is a file of runs that was read; "-" is standard input.
type runFile struct {
	data []byte
	name string
}

func readFiles(a *app, paths []string) ([]runFile, error) {
	files := make([]runFile, len(paths))
	for i, path := range paths {
		data, name, err := a.readAll(path)
		if err != nil {
			return nil, usageError{err}
		}
		files[i] = runFile{data, name}
	}
	return files, nil
}

func readRuns(ctx context.Context, a *app, paths []string) ([]*report.Report, error) {
	files, err := readFiles(a, paths)
	if err != nil {
		return nil, err
	}
	return runsIn(ctx, a, files)
}

// runsIn returns the reports of files that sweep and plan wrote, and plans the cases of files that fit and smoke wrote.
func runsIn(ctx context.Context, a *app, files []runFile) ([]*report.Report, error) {
	var all []*report.Report
	for _, f := range files {
		reports, err := runsOf(ctx, a, f.data, f.name)
		if err != nil {
			return nil, err
		}
		all = append(all, reports...)
	}
	report.NameDevices(all...)
	return all, nil
}

func runsOf(ctx context.Context, a *app, data []byte, name string) ([]*report.Report, error) {
	// A snapshot is no run, but people have both.
	if snapshot.IsSnapshot(data[:min(len(data), 16)]) {
		return nil, input.FileErrorf(name, "it is a memory snapshot of PyTorch, or another binary file, not a result "+
			"of vprof; use \"vprof diagnose %s\" for a snapshot, or make a result with \"vprof sweep --export "+
			"run.json\"", name)
	}
	tried, err := report.ReadTried(name, data)
	if err != nil {
		return nil, err
	}
	if len(tried) == 0 {
		reports, err := report.Read(name, bytes.NewReader(data))
		if err != nil {
			return nil, usageError{err}
		}
		return reports, nil
	}
	var all []*report.Report
	for _, t := range tried {
		r, err := planAgain(ctx, a, t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, r)
	}
	return all, nil
}

func (a *app) setupOf(c report.Case, d report.Device) (*step.Setup, device.GPU, error) {
	gpu, err := step.GPUOf(d)
	if err != nil {
		return nil, gpu, err
	}
	setup, err := step.NewFromReport(a.models(), c, step.Evidence{Residuals: a.residuals})
	return setup, gpu, err
}

func planAgain(ctx context.Context, a *app, t report.TriedCase) (*report.Report, error) {
	setup, gpu, err := a.setupOf(t.Case, t.Device)
	if err != nil {
		return nil, err
	}
	r, err := sweep.Plan(ctx, setup, gpu, []int{t.Batch})
	if err != nil {
		return nil, err
	}
	r.Tool, r.Started = vprofTool(), a.now().UTC()
	return r, nil
}

// profileOf makes the profile of a report's case on its first device. A run file holds no timeline: recording and
// replaying its case again gives the same one. Batch zero is the largest that ran and fits, or else the smallest.
func profileOf(ctx context.Context, a *app, r *report.Report, batch int) (*profile.Profile, error) {
	if len(r.Points) == 0 {
		return nil, usagef("%s: the file holds no result for any batch size; name a result of vprof plan, sweep or run",
			r.Case.Model)
	}
	if batch == 0 {
		batch = largestFit(r)
	}
	at := slices.IndexFunc(r.Points, func(p report.Point) bool { return p.Batch == batch })
	if at < 0 {
		return nil, usagef("--batch: the run has no batch size %d; choose one of %v", batch, r.Batches())
	}
	d, _ := r.Find(r.Points[at].Device)
	setup, gpu, err := a.setupOf(r.Case, d)
	if err != nil {
		return nil, err
	}
	p, err := setup.Profile(ctx, gpu, batch)
	if err == nil {
		p.Tool = vprofTool()
	}
	return p, err
}

// largestFit returns the largest batch size that fits the first device, else the largest that may, else the smallest.
func largestFit(r *report.Report) int {
	for _, verdict := range []report.Verdict{report.Fits, report.Tight, report.Slow} {
		best := 0
		for _, p := range r.Points {
			if p.Device == r.Points[0].Device && p.Verdict() == verdict {
				best = max(best, p.Batch)
			}
		}
		if best > 0 {
			return best
		}
	}
	return r.Batches()[0]
}
