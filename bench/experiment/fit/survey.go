package fit

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/steptime"
)

// A survey estimates every case on every GPU from few recordings. It records three batch sizes of each case and
// interpolates linearly. GPUs with the same compute capability differ only in the workspace of some kernels, so one
// recording serves all of them; different capabilities mostly share one, too. On a single GPU the survey records the
// batch sizes that a search for the largest tries first. A survey selects candidates; each recommended choice is
// replayed by itself.
type survey struct {
	search *Search
	// choices are the results, ordered by GPU.
	choices  []report.Choice
	refusals []error
}

// fillChoices fills in all choices. Libraries select kernels by compute capability, and PyTorch refuses some cases by
// it, so GPUs are grouped by it.
func (v *survey) fillChoices(ctx context.Context) error {
	kinds := step.GroupGPUs(v.search.GPUs)
	done := v.search.Progress.Counter("configurations", len(kinds)*len(v.search.Cases))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, alike := range v.groupSimilar() {
		g.Go(func() error {
			defer func() {
				for range len(kinds) * len(alike) {
					done(1)
				}
			}()
			return v.fillConfigurations(ctx, kinds, alike)
		})
	}
	return g.Wait()
}

// groupSimilar groups the indices of the cases. A case without autocast follows the bf16 case that is otherwise equal,
// since their steps may be equal.
func (v *survey) groupSimilar() [][]int {
	cases := v.search.Cases
	all := lists.Groups(lists.Ascending(len(cases)), func(i int) models.CaseKey {
		c := cases[i]
		if c.AMP == "bf16" {
			c.AMP = models.NoAutocast
		}
		return keyOf(c)
	})
	for _, alike := range all {
		slices.SortStableFunc(alike, func(a, b int) int {
			return report.CompareBools(cases[a].AMP == "bf16", cases[b].AMP == "bf16")
		})
	}
	return all
}

// fillConfigurations fills in the choices of cases that may have equal steps. If autocast changes nothing in the first
// case, the others use its recordings.
func (v *survey) fillConfigurations(ctx context.Context, kinds [][]int, alike []int) error {
	lines, err := v.fillConfiguration(ctx, kinds, alike[0], nil)
	if slices.ContainsFunc(lines, func(l sampledCurve) bool { return l.cast }) {
		lines = nil
	}
	for _, at := range alike[1:] {
		if err == nil {
			_, err = v.fillConfiguration(ctx, kinds, at, lines)
		}
	}
	return err
}

// sampledCurve holds the replayed results of one case at a few batch sizes on one GPU. The estimates for all GPUs with
// its compute capability are interpolated from them.
type sampledCurve struct {
	batches []int
	samples map[int]planner.Sample
	// seconds are the step times at the smallest and the largest batch size, by the GPU's index.
	seconds map[int][]float64
	// cast reports whether autocast changed a recording.
	cast bool
}

// fillConfiguration fills in the choices of one case on all GPUs, grouped by compute capability, by interpolation in
// the known curves or else in new ones. It returns the curves; nil if the case is refused on some GPUs.
func (v *survey) fillConfiguration(
	ctx context.Context, kinds [][]int, at int, known []sampledCurve,
) (lines []sampledCurve, err error) {
	s, c := v.search, v.search.Cases[at]
	steps := c.Accumulate
	if s.Effective > 0 {
		steps = 2
	}
	c.Accumulate = step.StepsToRecord(steps)
	setup, cause := step.New(s.Model, c, s.Evidence)
	switch {
	case cause != nil:
	case known != nil:
		lines = known
	case len(s.GPUs) == 1:
		lines, cause = v.narrowCurves(ctx, setup, s.GPUs[0])
	default:
		lines, cause = v.sampleCurves(ctx, setup, kinds)
	}
	if step.IsRefused(cause) && len(kinds) > 1 { // maybe on one of them alone
		for i := range kinds {
			if _, err := v.fillConfiguration(ctx, kinds[i:i+1], at, nil); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	for k, group := range kinds {
		for _, i := range group {
			to := i*len(s.Cases) + at
			if cause != nil {
				v.choices[to], v.refusals[to], err = s.refusedChoice(s.GPUs[i], c, cause)
			} else {
				v.choices[to], err = v.largestBatch(setup, lines[k], group, i, steps)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return lines, nil
}

// sampleCurves records a case at a few batch sizes, on the first GPU of each compute capability.
func (v *survey) sampleCurves(ctx context.Context, setup *step.Setup, kinds [][]int) ([]sampledCurve, error) {
	s, batches := v.search, v.sampledBatches()
	lines := make([]sampledCurve, len(kinds))
	for k := range lines {
		lines[k] = sampledCurve{batches: batches, samples: map[int]planner.Sample{}, seconds: map[int][]float64{}}
	}
	for _, batch := range batches {
		ends := batch == batches[0] || batch == batches[len(batches)-1] // between which times are a line
		for k, group := range kinds {
			t := setup.WithLargestLoop().Trial(s.GPUs[group[0]], batch)
			if ends {
				t.Timed = lists.Map(group, func(i int) device.GPU { return s.GPUs[i] })
			}
			r, err := setup.Try(ctx, t)
			if err != nil {
				return nil, err
			}
			if err := v.addResult(&lines[k], batch, r, t.Timed); err != nil {
				return nil, err
			}
			r.Discard()
		}
	}
	return lines, nil
}

// narrowCurves records a case on one GPU at the batch sizes of a search for the largest, until interpolation works.
func (v *survey) narrowCurves(ctx context.Context, setup *step.Setup, gpu device.GPU) ([]sampledCurve, error) {
	s, timed := v.search, []device.GPU{gpu}
	q, err := s.batchSearch(setup, gpu)
	if err != nil {
		return nil, err
	}
	const enough = 3
	l := sampledCurve{samples: map[int]planner.Sample{}, seconds: map[int][]float64{}}
	estimate := func(batch int) (planner.Estimate, error) {
		if _, tried := l.samples[batch]; !tried && len(l.samples) < enough {
			t := setup.WithLargestLoop().Trial(gpu, batch)
			t.Timed = timed
			r, err := setup.Try(ctx, t)
			if err != nil {
				return planner.Estimate{}, err
			}
			defer r.Discard()
			if err := v.addResult(&l, batch, r, timed); err != nil {
				return planner.Estimate{}, err
			}
		}
		interpolated, err := v.estimator(setup, gpu, l)
		if err != nil {
			return planner.Estimate{}, err
		}
		return interpolated(batch)
	}
	largest, err := q.search(&planner.BatchSearch{Start: q.start, Need: func(batch int) (int64, error) {
		e, err := estimate(batch)
		return q.judge.Budget.Need(e), err
	}})
	if err == nil {
		_, err = estimate(q.describedBatch(largest))
	}
	if step.IsRefused(err) { // maybe one sample alone
		_, err = estimate(2)
	}
	if _, one := l.samples[1]; err == nil && !one && len(l.samples) == 1 {
		_, err = estimate(4)
	}
	if err != nil {
		return nil, err
	}
	l.batches = slices.Sorted(maps.Keys(l.samples))
	return []sampledCurve{l}, nil
}

// estimator returns a function that estimates a batch size on a GPU by interpolation in a curve.
func (v *survey) estimator(setup *step.Setup, gpu device.GPU,
	l sampledCurve,
) (func(batch int) (planner.Estimate, error), error) {
	p, err := setup.Planner(gpu, slices.Collect(maps.Values(l.samples))...)
	return p.Estimate, err
}

// sampledBatches returns the batch sizes to record, from the smallest GPU's to the largest GPU's.
func (v *survey) sampledBatches() []int {
	usual, most := v.search.Model.Default.Batch, v.search.MaxBatch
	return slices.Compact([]int{min(max(2, usual/4), most), min(max(4, 2*usual), most), min(max(8, 16*usual), most)})
}

// addResult adds the result at a batch size to a curve, with the step times on the timed GPUs.
func (v *survey) addResult(l *sampledCurve, batch int, r *step.Result, timed []device.GPU) error {
	l.samples[batch] = r.Sample()
	l.cast = l.cast || !r.Facts.Uncast
	for k, load := range r.Loads {
		speed, err := v.search.Speed(timed[k], v.search.Model.Name)
		if err != nil {
			return err
		}
		l.seconds[batch] = append(l.seconds[batch], estimateSeconds(speed, load))
	}
	return nil
}

// estimateSeconds estimates the step time from the step's work and the GPU's speed; zero if the speed is unknown.
func estimateSeconds(speed steptime.Efficiency, load steptime.Load) float64 {
	if !load.IsKnown() {
		return 0
	}
	return speed.Time(load).Seconds
}

// largestBatch finds the largest batch size on a GPU by interpolation in a curve.
func (v *survey) largestBatch(setup *step.Setup, l sampledCurve, group []int, index, steps int) (report.Choice, error) {
	s, gpu := v.search, v.search.GPUs[index]
	q, err := s.batchSearch(setup, gpu)
	if err != nil {
		return report.Choice{}, err
	}
	estimate, err := v.estimator(setup, gpu, l)
	if err != nil {
		return report.Choice{}, err
	}
	begin := planner.Start{Batch: l.batches[len(l.batches)/2]}
	largest, err := q.search(&planner.BatchSearch{Start: begin, Need: func(batch int) (int64, error) {
		e, err := estimate(batch)
		return q.judge.Budget.Need(e), err
	}})
	if err != nil {
		return report.Choice{}, err
	}
	gpus, batch := s.batchesOf(setup.Case()), roundDown(largest, s.Multiple)
	if s.Effective > 0 && largest > 0 {
		batch, steps = planner.SplitBatch((s.Effective+gpus-1)/gpus, largest, s.Multiple)
	}
	c := report.CaseOf(s.Model, setup.Case()).Short()
	c.Accumulate = steps
	out := report.Choice{
		Device: step.SimName(gpu), Case: c, IsAuthorsOwn: s.isOwnCase(setup.Case()), Largest: largest,
		LargestIsCapped: largest == s.MaxBatch,
		Batch:           batch, EffectiveBatch: batch * steps * gpus,
	}
	out.NotAdvised = s.notAdvised(gpu, setup.Case())
	e, err := estimate(q.describedBatch(batch))
	if err != nil {
		return out, err
	}
	e.Interpolated = true // maybe not in the batch, but from another GPU
	out.Estimate, out.Utilization = step.EstimateOf(e), float64(e.Device.Value)/float64(gpu.Memory)
	if batch == 0 {
		return out, nil
	}
	out.StepSeconds = l.secondsAt(batch, slices.Index(group, index)) * float64(steps) / float64(setup.Case().Accumulate)
	setSamplesPerSecond(&out)
	return out, nil
}

// secondsAt returns the step time in seconds at a batch size on a GPU by linear extrapolation. It is at least
// proportional to the batch size.
func (l sampledCurve) secondsAt(batch, index int) float64 {
	a := l.batches[0]
	first := l.seconds[a][index]
	if len(l.batches) == 1 {
		return first * float64(batch) / float64(a)
	}
	b := l.batches[len(l.batches)-1]
	slope := (l.seconds[b][index] - first) / float64(b-a)
	return max(first+slope*float64(batch-a), first*min(1, float64(batch)/float64(a)))
}

// replayRecommended replays each recommended choice of a survey at its batch size on its GPU and replaces the
// interpolated estimate. If another choice of its stage is then better, that one is recommended and replayed, too. It
// returns the replays by the keys of the choices that they replace, and by their own.
func (s *Search) replayRecommended(ctx context.Context, f *report.Fit) (confirmed map[string]report.Choice, err error) {
	confirmed = map[string]report.Choice{}
	for settled := !s.usesSurvey(); !settled; settled = applyConfirmed(f, s.Model.Stages, confirmed) {
		var open []report.Choice
		for _, c := range f.Choices {
			if _, done := confirmed[choiceKey(c)]; c.Recommended && !done {
				open = append(open, c)
			}
		}
		exact, err := s.replayChoices(ctx, open)
		if err != nil {
			return nil, err
		}
		for i, c := range exact {
			confirmed[choiceKey(open[i])], confirmed[choiceKey(c)] = c, c
		}
	}
	return confirmed, nil
}

// applyConfirmed replaces recommended choices by their replays and ranks again. settled means none was left to replace.
func applyConfirmed(f *report.Fit, stages []string, confirmed map[string]report.Choice) (settled bool) {
	settled = true
	for i, c := range f.Choices {
		if exact, ok := confirmed[choiceKey(c)]; ok && c.Recommended {
			settled = settled && c.Estimate == exact.Estimate && c.Batch == exact.Batch
			f.Choices[i] = exact
		}
	}
	rankChoices(f, stages)
	return settled
}

// simulatedGPUs returns the simulated GPUs of a search by their names in choices.
func (s *Search) simulatedGPUs() map[string]device.GPU {
	all := map[string]device.GPU{}
	for _, gpu := range s.GPUs {
		all[step.SimName(gpu)] = gpu
	}
	return all
}

// replayChoices replays choices by an exact search, each on its GPU and starting at its batch.
func (s *Search) replayChoices(ctx context.Context, choices []report.Choice) ([]report.Choice, error) {
	if len(choices) == 0 {
		return nil, nil
	}
	gpus := s.simulatedGPUs()
	exact := make([]report.Choice, len(choices))
	order := lists.Map(choices, func(c report.Choice) device.GPU { return gpus[c.Device] })
	key := func(i int) models.CaseKey { return keyOf(choices[i].Case.Case) }
	return exact, progress.Each(ctx, s.Progress, "recommendations", step.OrderForSharing(order, key),
		func(ctx context.Context, _, i int) error {
			c := choices[i]
			found, refused, err := s.largestBatch(ctx, gpus[c.Device], c.Case.Case,
				planner.Start{Batch: cmp.Or(c.SeqLen, c.Largest), IsNear: true})
			exact[i] = found
			return errors.Join(refused, err)
		})
}
