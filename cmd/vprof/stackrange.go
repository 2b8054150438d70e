package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/vprof/vprof/bench/job"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/stack"
)

// mostRanged is the largest number of points whose range over releases is computed: each is planned by the rules of
// about ten releases.
const mostRanged = 2

// ranged plans a report's points by the rules of other releases of the libraries that they depend on, each changed
// alone. Where the flags name no stack, points get the range ([report.StackRange]). Where they name a release that was
// not measured, intervals are widened to the range.
func (o *planOptions) ranged(ctx context.Context, here *job.Local, r *report.Report, jobs []job.Job) error {
	unknown := r.Case.Stack.Unknown()
	if len(r.Points) == 0 || len(r.Points) > mostRanged || o.c.stack.value != "" && unknown == nil {
		return nil
	}
	var over []string
	others := map[string][]report.Point{}
	for _, name := range slices.Sorted(maps.Keys(r.Case.Stack)) {
		releases := stack.Rulings(name)
		if releases == nil || o.c.stack.value != "" && !slices.Contains(unknown, name) {
			continue
		}
		over = append(over, fmt.Sprintf("%s %s to %s", name, releases[0], stack.Newest(name)))
		for _, release := range releases {
			again := slices.Clone(jobs)
			for i := range again {
				again[i].Case.Stack = maps.Clone(again[i].Case.Stack)
				again[i].Case.Stack[name] = release
			}
			other, err := job.RunAll(ctx, here, again, nil)
			if err != nil {
				return err
			}
			others[name+" "+release] = other.Points
		}
	}
	for i := range r.Points {
		r.Points[i].Range(over, others, unknown != nil)
	}
	return nil
}
