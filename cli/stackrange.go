package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/job"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/stack"
)

// maxRangedPoints limits the points with a range over releases: each is planned by the rules of about ten releases.
const maxRangedPoints = 2

// A libraryRelease is a release of a library.
type libraryRelease struct{ library, version string }

// releasesInRange returns the releases by whose rules a plan's points are also judged, one library changed at a time,
// and the ranges of releases as text. If the flags name no stack, they are releases of all libraries that the case
// depends on; otherwise of libraries whose named release was not measured.
func (f *caseFlags) releasesInRange(libraries stack.Libraries) (all []libraryRelease, over []string) {
	unknown := libraries.Unknown()
	for _, name := range slices.Sorted(maps.Keys(libraries)) {
		versions := stack.ReleasesWithChanges(name)
		if versions == nil || f.stack.value != "" && !slices.Contains(unknown, name) {
			continue
		}
		over = append(over, fmt.Sprintf("%s %s to %s", name, versions[0], stack.Newest(name)))
		all = append(all, lists.Map(versions, func(v string) libraryRelease { return libraryRelease{name, v} })...)
	}
	return all, over
}

// addStackRanges judges a report's points by the rules of other releases.
func (o *planOptions) addStackRanges(ctx context.Context, here *job.Local, r *report.Report, jobs []job.Job,
	tell progress.Func,
) error {
	if len(r.Points) > maxRangedPoints {
		return nil
	}
	e := here.Evidence
	e.Trials, e.NoKernels = nil, true
	for _, j := range jobs {
		setup, err := step.NewFromReport(here.Models, j.Case, e)
		for i := range r.Points {
			if p := &r.Points[i]; err == nil && p.Estimate != nil && p.Device == step.SimName(*j.Target.GPU) {
				err = o.c.addStackRange(ctx, setup, *j.Target.GPU, p, tell)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addStackRange judges a point by the rules of other releases. Where flags name no stack, the point gets the range of
// runs that others report ([report.StackRange]); where they name an unmeasured release, its intervals widen to it.
func (f *caseFlags) addStackRange(ctx context.Context, setup *step.Setup, gpu device.GPU, p *report.Point,
	tell progress.Func,
) error {
	libraries := setup.Case().Stack
	releases, over := f.releasesInRange(libraries)
	if len(releases) == 0 {
		return nil
	}
	var reported *report.ReportedMargins
	if libraries.Unknown() == nil {
		a, b, err := planner.ReportedResiduals()
		if err != nil {
			return err
		}
		reported = &report.ReportedMargins{
			Allocated: [2]float64{a.Low, a.High}, Reserved: [2]float64{b.Low, b.High},
			Source: planner.ResidualSource(a, b),
		}
	}
	others, err := estimatesByRelease(ctx, setup, gpu, p, releases, tell)
	if err == nil {
		p.SetStackRange(over, others, reported, gpu.Memory)
	}
	return err
}

// reportedRange returns the range of runs that others report of a batch; nil where flags name a stack, or the case
// depends on none.
func (f *caseFlags) reportedRange(ctx context.Context, m models.Model, c models.Case, e step.Evidence, gpu device.GPU,
	batch int, tell progress.Func,
) (*report.StackRange, error) {
	if f.stack.value != "" || len(c.Stack) == 0 {
		return nil, nil
	}
	e.Trials, e.NoKernels = nil, true
	setup, err := step.New(m, c, e)
	if err != nil {
		return nil, err
	}
	p := report.Point{Batch: batch}
	if p.Estimate, err = estimate(ctx, setup, gpu, batch); err == nil {
		err = f.addStackRange(ctx, setup, gpu, &p, tell)
	}
	return p.StackRange, err
}

// estimatesByRelease returns the estimates of a point by the rules of other releases, in the training loop that is
// judged, without the releases that refuse the step. Releases whose steps allocate the same are judged once.
func estimatesByRelease(ctx context.Context, setup *step.Setup, gpu device.GPU, p *report.Point,
	releases []libraryRelease, tell progress.Func,
) (map[string]*report.Estimate, error) {
	c := setup.Case()
	c.Loop = cmp.Or(p.Estimate.Loop, c.Loop)
	c.Evaluate.IsOff = !setup.Evaluates() // what no verdict counts is not recorded
	setup = setup.WithCase(c)
	own, err := setup.AllocationDigest(ctx, gpu, p.Batch)
	if err != nil {
		return nil, err
	}
	known := map[uint64]func() (*report.Estimate, error){
		own: func() (*report.Estimate, error) { return p.Estimate, nil },
	}
	others, mu := map[string]*report.Estimate{}, sync.Mutex{}
	return others, progress.Each(ctx, tell, "releases", releases,
		func(ctx context.Context, _ int, r libraryRelease) error {
			c := setup.Case()
			c.Stack = maps.Clone(c.Stack)
			c.Stack[r.library] = r.version
			other := setup.WithCase(c)
			allocations, err := other.AllocationDigest(ctx, gpu, p.Batch)
			if step.IsRefused(err) {
				return nil
			} else if err != nil {
				return err
			}
			mu.Lock()
			judged := known[allocations]
			if judged == nil {
				judged = sync.OnceValues(func() (*report.Estimate, error) { return estimate(ctx, other, gpu, p.Batch) })
				known[allocations] = judged
			}
			mu.Unlock()
			if e, err := judged(); err == nil {
				mu.Lock()
				defer mu.Unlock()
				others[r.library+" "+r.version] = e
			} else if !step.IsRefused(err) {
				return err
			}
			return nil
		})
}

func estimate(ctx context.Context, s *step.Setup, gpu device.GPU, batch int) (*report.Estimate, error) {
	d, err := judge.JudgeBatch(ctx, s, gpu, batch)
	if err != nil {
		return nil, err
	}
	defer d.FreeRecordings()
	return d.Report(ctx)
}
