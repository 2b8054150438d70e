package cli

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/job"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
)

// mostRanged is the largest number of points whose range over releases is computed: each is planned by the rules of
// about ten releases.
const mostRanged = 2

// ranged plans a report's points by the rules of other releases of the libraries that they depend on, each changed
// alone. Where the flags name no stack, points get the range ([report.StackRange]). Where they name a release that was
// not measured, intervals are widened to the range.
func (o *planOptions) ranged(ctx context.Context, here *job.Local, r *report.Report, jobs []job.Job,
	tell progress.Func,
) error {
	unknown := r.Case.Stack.Unknown()
	if len(r.Points) == 0 || len(r.Points) > mostRanged || o.c.stack.value != "" && unknown == nil {
		return nil
	}
	known := map[string][]report.Point{} // by what the steps allocate
	var over []string
	others := map[string][]report.Point{}
	for _, name := range slices.Sorted(maps.Keys(r.Case.Stack)) {
		releases := stack.Rulings(name)
		if releases == nil || o.c.stack.value != "" && !slices.Contains(unknown, name) {
			continue
		}
		if over == nil {
			base, err := o.allocations(ctx, here, jobs)
			if err != nil {
				return err
			}
			known[base] = r.Points
		}
		over = append(over, fmt.Sprintf("%s %s to %s", name, releases[0], stack.Newest(name)))
		for i, release := range releases {
			tell("releases of "+name, i, len(releases))
			points, err := o.pointsBy(ctx, here, known, jobs, name, release)
			if err != nil {
				return err
			}
			others[name+" "+release] = points
		}
	}
	for i := range r.Points {
		r.Points[i].Range(over, others, unknown != nil)
	}
	return nil
}

// pointsBy plans jobs by the rules of a release of a library, or takes the points of a release whose step allocates
// alike from the known ones, which it adds to.
func (o *planOptions) pointsBy(
	ctx context.Context, here *job.Local, known map[string][]report.Point, jobs []job.Job, name, release string,
) ([]report.Point, error) {
	again := slices.Clone(jobs)
	for i := range again {
		again[i].Case.Stack = maps.Clone(again[i].Case.Stack)
		again[i].Case.Stack[name] = release
	}
	allocations, err := o.allocations(ctx, here, again)
	if err != nil {
		return nil, err
	}
	if points, planned := known[allocations]; planned && allocations != "" {
		return points, nil
	}
	r, err := job.RunAll(ctx, here, again, nil)
	if err != nil {
		return nil, err
	}
	known[allocations] = r.Points
	return r.Points, nil
}

// allocations returns a digest of what the steps of jobs allocate and free: releases with one digest need one plan. It
// is empty where PyTorch refuses a step.
func (o *planOptions) allocations(ctx context.Context, here *job.Local, jobs []job.Job) (string, error) {
	digest := fnv.New64a()
	for _, j := range jobs {
		j.Case.Accumulate = 1 // all micro-batches are alike
		setup, err := step.Of(here.Models, j.Case, here.Evidence)
		if err != nil {
			return "", err
		}
		for _, batch := range j.Batches {
			recording, err := setup.Record(ctx, batch, *j.Target.GPU)
			if step.Refused(err) {
				return "", nil
			}
			if err != nil {
				return "", err
			}
			p := recording.Program
			for _, in := range p.Instructions {
				if in.Kind == program.Alloc || in.Kind == program.Free {
					b := p.Buffers[in.Arg]
					fmt.Fprintln(digest, in.Kind, in.Arg, b.Bytes, b.Stream)
				}
			}
		}
	}
	return fmt.Sprint(digest.Sum64()), nil
}
