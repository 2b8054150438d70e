package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/observe/snapshot"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/profile"
	"github.com/vprof/vprof/internal/input"
)

// readRuns reads the reports of files that sweep and plan wrote; "-" is
// standard input.
func readRuns(a *app, paths []string) ([]*report.Report, error) {
	defer a.reads()()
	var all []*report.Report
	for _, path := range paths {
		reports, err := readRun(a, path)
		if err != nil {
			return nil, usageError{err}
		}
		all = append(all, reports...)
	}
	report.Apart(all...)
	return all, nil
}

func readRun(a *app, path string) ([]*report.Report, error) {
	if path == "-" {
		return report.Read("standard input", a.stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// A snapshot is no run, but people have both.
	head := make([]byte, 16)
	n, err := f.ReadAt(head, 0)
	if err == nil || errors.Is(err, io.EOF) {
		if snapshot.Is(head[:n]) || isGzip(head[:n]) {
			return nil, &input.FormatError{
				File: path,
				Reason: "a memory snapshot of PyTorch, or another binary file, and no run of vprof; \"vprof diagnose " +
					path + "\" says what is in a snapshot, https://docs.pytorch.org/memory_viz draws it, and " +
					"\"vprof sweep --export run.json\" makes a run",
			}
		}
	}
	return report.Read(path, f)
}

// profileOf makes the profile of a report's case on its first device. A run
// file holds no timeline: recording and replaying its case again gives the
// same one. Batch zero is the largest that ran and fits, or else the smallest.
func profileOf(ctx context.Context, a *app, r *report.Report, batch int) (*profile.Profile, error) {
	if len(r.Points) == 0 {
		return nil, usagef("%s: the run has no batch size in it", r.Case.Model)
	}
	if batch == 0 {
		batch = largestFit(r)
	}
	at := slices.IndexFunc(r.Points, func(p report.Point) bool { return p.Batch == batch })
	if at < 0 {
		return nil, usagef("--batch: the run has no batch size %d; it has %v", batch, r.Batches())
	}
	d, _ := r.Find(r.Points[at].Device)
	gpu, err := step.GPUOf(d)
	if err != nil {
		return nil, err
	}
	setup, err := step.Of(a.models(), r.Case, step.Evidence{Residuals: a.residuals})
	if err != nil {
		return nil, err
	}
	p, err := setup.Profile(ctx, gpu, batch)
	if err != nil {
		return nil, err
	}
	v := thisVersion()
	p.Tool = report.Tool{Version: v.Version, Commit: v.Commit}
	return p, nil
}

// largestFit is the largest batch size that fits the first device, or else one
// that may fit, or else the smallest.
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

// writeFile writes what a function makes into a file, whole or not at all, or to
// standard output for "-" and "".
func writeFile(a *app, path string, write func(io.Writer) error) error {
	if path == "" || path == "-" {
		return write(a.stdout)
	}
	return report.WriteFile(path, write)
}
