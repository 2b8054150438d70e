package main

import (
	"context"
	"errors"
	"slices"

	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/page"
)

// pageOf makes the HTML page of runs.
func pageOf(ctx context.Context, o *reportOptions, paths []string) (writer, error) {
	runs, err := readRuns(ctx, o.app, paths)
	if err != nil {
		return nil, err
	}
	if len(paths) == 1 && report.OfRanks(runs) && !o.sideBySide { // the first needs most, and its page has a bar of all
		runs = runs[:1]
	}
	sides := byCase(runs)
	if o.sideBySide {
		if len(runs) != 2 {
			return nil, usagef("--side-by-side shows two runs; these are %d", len(runs))
		}
		sides = [][]*report.Report{runs[:1], runs[1:]}
	}
	if len(sides) == 2 {
		p := &page.Pair{A: &page.Page{Runs: sides[0]}, B: &page.Page{Runs: sides[1]}}
		return p.Write, o.fillPair(ctx, p)
	}
	p := &page.Page{Runs: runs}
	return p.Write, o.fill(ctx, p, p.Check(), o.batch)
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

// fillPair adds the steps of two runs. Without a batch size of their own they show those
// of one that both have.
func (o *reportOptions) fillPair(ctx context.Context, p *page.Pair) error {
	err, batch := p.Check(), o.batch
	if err == nil && batch == 0 {
		batch = p.Batch()
	}
	for _, side := range []*page.Page{p.A, p.B} {
		if err := o.fill(ctx, side, err, batch); err != nil {
			return err
		}
	}
	return nil
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

// isOf reports whether a record is of the case, whatever its batch size.
func isOf(r reference.Record, c report.Case) bool {
	k := r.Case
	k.Batch = 0
	return k.Key() == c.Key()
}
