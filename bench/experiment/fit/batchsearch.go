package fit

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/parallel"
	"github.com/vprof/vprof/profiler/planner/steptime"
	"github.com/vprof/vprof/profiler/program"
)

// batchSearch is the search for the largest batch of one configuration.
type batchSearch struct {
	setup  *step.Setup
	gpu    device.GPU
	others int64
	budget planner.Budget
	begin  planner.Start
	// max is where to end; given is the one batch to try, zero for none.
	max, given int
	// row is the batch of a search for the longest row; zero where the batch is searched.
	row      int
	multiple int
	// ceiling is the bytes beyond which trials end early ([step.Trial.Ceiling]).
	ceiling  int64
	speed    steptime.Efficiency
	parallel parallel.Setup
	// together is how many sizes are tried concurrently; mu guards tried and kept then.
	together int
	mu       sync.Mutex
	tried    map[trialOf]*trial
	// kept is the trial that has a recording; nil for none.
	kept *trial
}

// trialOf identifies a trial of a batchSearch.
type trialOf struct{ size, accumulate int }

// trial is what one replay of the configuration came to.
type trial struct {
	planner.Estimate
	// result is the trial, of which more may be asked.
	result *step.Result
	// need is what must be within the budget: the most at any point of training.
	need int64
	// alone is the need of one GPU by itself.
	alone int64
	// course has the replays that are still to be perturbed; nil once the trial is complete.
	course *step.Course
	// run is the replay as reports have it; nil of several GPUs, and before the trial is complete.
	run *report.Run
	// sizes are what communication depends on, of several GPUs.
	sizes parallel.Model
}

// sizesOf returns the sizes of a model that communication depends on. Its largest layer is
// taken for its largest parameter, which is all of it but biases.
func sizesOf(r *step.Result, e planner.Estimate) parallel.Model {
	return parallel.Model{
		Weights: e.Components[program.Weights], Gradients: r.Counts.Gradients, Trainable: r.Counts.Trainable,
		LargestLayer: r.LargestWeight,
	}
}

func (s *Search) batchSearch(setup *step.Setup, gpu device.GPU) (*batchSearch, error) {
	budget, err := setup.Budget(s.Budget, gpu, s.Others)
	if err != nil {
		return nil, err
	}
	q := &batchSearch{
		setup: setup, gpu: gpu, others: s.Others, budget: budget,
		begin: planner.Start{Batch: s.Model.Default.Batch}, max: s.MaxBatch, given: s.Batch, multiple: s.Multiple,
		parallel: s.Parallel, tried: map[trialOf]*trial{},
	}
	if s.SeqLen {
		if err := q.alongRows(s); err != nil {
			return nil, err
		}
	}
	q.speed, err = s.Speed(gpu, s.Model.Name)
	return q, err
}

// SeqLen is the setting that a search for the longest row goes along.
const SeqLen = "seq-len"

// alongRows has the search go along the length of rows, up to the longest that the model takes.
func (q *batchSearch) alongRows(s *Search) error {
	i := slices.IndexFunc(s.Model.Settings, func(set models.Setting) bool { return set.Name == SeqLen })
	if i < 0 {
		return &models.CaseError{
			Model: s.Model.Name, Field: "search", Reason: "the model has no rows of tokens (" + SeqLen + ") to search",
		}
	}
	q.row, q.given, q.multiple = s.Batch, 0, 0
	q.max, q.begin = int(s.Model.Settings[i].Max), planner.Start{Batch: int(q.setup.Case().Settings[SeqLen])}
	return nil
}

// setupOf returns the case with a number of micro-batches, and the batch size, that a size of the search stands for:
// the size is the batch itself, or the length of rows.
func (q *batchSearch) setupOf(size, accumulate int) (*step.Setup, int) {
	setup := q.setup.Accumulating(accumulate)
	if q.row == 0 {
		return setup, size
	}
	c := setup.Case()
	c.Settings = maps.Clone(c.Settings)
	c.Settings[SeqLen] = int64(size)
	return setup.For(c), q.row
}

// searchedMicro limits how many micro-batches of a step are recorded while the search tries batch sizes, which saves
// time. The size that it finds is recorded again with as many as plan and smoke record.
const searchedMicro = 2

// judged returns how many of a step's micro-batches are recorded to judge whether it is safe.
func judged(micro int) int { return min(micro, step.MostMicro) }

// find returns the size to use, a batch or the length of rows, and its number of micro-batches, and the largest
// size with that many. Both sizes are zero if nothing fits.
func (q *batchSearch) find(ctx context.Context, effective, steps int) (batch, largest, n int, err error) {
	if effective == 0 {
		largest, err = q.largest(ctx, steps, q.max)
		return rounded(largest, q.multiple), largest, steps, err
	}
	alone := q.setup.Case().InBackward // gradients are used at once, so that micro-batches are steps
	largest, err = q.largest(ctx, 1, q.max)
	switch {
	case err == nil && largest == 0 && !alone: // what the smallest batch takes is shown
		return 0, 0, effective, nil
	case err != nil || largest >= effective || alone:
		return min(effective, largest), largest, 1, err
	}
	n = 2
	for to := q.max; ; to = largest { // where it is another, with as many micro-batches as the split takes
		if largest, err = q.largest(ctx, n, to); err != nil || largest == 0 {
			return 0, 0, n, err
		}
		before := n
		if batch, n, err = q.share(ctx, effective, largest); err != nil || judged(n) == judged(before) {
			return batch, largest, n, err
		}
	}
}

// share divides an effective batch among micro-batches, of two samples at least where PyTorch refuses one, as batch
// norm does.
func (q *batchSearch) share(ctx context.Context, effective, largest int) (batch, steps int, err error) {
	batch, steps = split(effective, largest, q.multiple)
	if batch > 1 || largest < 2 {
		return batch, steps, nil
	}
	if _, err = q.try(ctx, 1, judged(steps)); raised(err) {
		return 2, (effective + 1) / 2, nil
	}
	return batch, steps, err
}

// raised reports whether PyTorch would raise an error with a batch, as batch norm does with one sample.
func raised(err error) bool {
	return errors.As(err, new(*step.RefusedError))
}

// rounded returns a batch size as a multiple, unless it is smaller than that.
func rounded(batch, multiple int) int {
	if multiple < 2 || batch < multiple {
		return batch
	}
	return batch - batch%multiple
}

// split divides an effective batch among micro-batches that are multiples.
func split(effective, largest, multiple int) (batch, steps int) {
	if multiple < 2 || largest < multiple {
		return planner.Split(effective, largest)
	}
	// In units of the multiple it is the same question.
	units, steps := planner.Split(max(1, (effective+multiple/2)/multiple), largest/multiple)
	return units * multiple, steps
}

// largest returns the largest batch within the budget, up to one, with a number of
// micro-batches; zero if none is.
func (q *batchSearch) largest(ctx context.Context, micro, to int) (int, error) {
	looked := min(micro, searchedMicro)
	found, err := q.largestOf(ctx, looked, planner.Search{Begin: q.begin, To: to, Together: q.together})
	if err != nil || judged(micro) == looked {
		return found, err
	}
	near := planner.Start{Batch: max(found, 1), Near: true}
	return q.largestOf(ctx, judged(micro), planner.Search{Begin: near, To: to})
}

// largestOf returns the largest batch of a search, with a number of recorded micro-batches.
func (q *batchSearch) largestOf(ctx context.Context, recorded int, s planner.Search) (int, error) {
	s.Need = func(batch int) (int64, error) {
		t, err := q.try(ctx, batch, recorded)
		if err != nil {
			return 0, err
		}
		if t.need <= q.budget.Limit() && t.run != nil && t.run.Strained() {
			return q.budget.Limit() + 1, nil
		}
		return t.need, nil
	}
	return q.search(&s)
}

// search returns the largest batch that is safe in the budget, or the given one if it is; zero if
// none is. A To of zero is the largest that the search may come to.
func (q *batchSearch) search(s *planner.Search) (int, error) {
	s.From, s.To, s.Limit, s.Jagged = 1, cmp.Or(s.To, q.max), q.budget.Limit(), q.setup.Jagged()
	if q.given == 0 {
		return step.Largest(s)
	}
	if safe, err := step.Safe(s, q.given); err != nil || !safe {
		return 0, err
	}
	return q.given, nil
}

// describedBatch returns the batch to describe: what was found, or else the given or the smallest.
func (q *batchSearch) describedBatch(batch int) int {
	return cmp.Or(batch, q.given, 1)
}

// try replays a size with a number of recorded micro-batches. On a GPU that
// it does not fit the replay goes on all the same, for an estimate of what it needs.
func (q *batchSearch) try(ctx context.Context, size, accumulate int) (*trial, error) {
	key := trialOf{size, accumulate}
	q.mu.Lock()
	t, done := q.tried[key]
	q.mu.Unlock()
	if done {
		return t, nil
	}
	setup, batch := q.setupOf(size, accumulate)
	planned := setup.Trial(q.gpu, batch)
	planned.Ceiling = q.ceiling
	course, err := setup.Course(ctx, planned, 0)
	if err != nil {
		return nil, err
	}
	t = &trial{result: course.Training, course: course}
	if t.alone, err = setup.Need(ctx, q.gpu, q.budget, course); err != nil {
		return nil, err
	}
	if err := q.estimate(setup, t); err != nil {
		return nil, err
	}
	fits := t.need <= q.budget.Limit()
	if fits {
		err = q.complete(ctx, setup, t)
	} else {
		t.result.Discard()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tried[key] = t
	if fits {
		q.keep(t)
	}
	return t, err
}

// estimate sets what a trial needs, by what is known of its spread.
func (q *batchSearch) estimate(setup *step.Setup, t *trial) (err error) {
	t.need = t.alone
	if t.Estimate, err = setup.Estimate(q.gpu, t.result.Sample()); err != nil || q.parallel.GPUs < 2 {
		return err
	}
	// The replay was of one GPU alone.
	t.sizes = sizesOf(t.result, t.Estimate)
	alone := q.budget.Need(t.Estimate)
	t.Estimate = q.parallel.Apply(t.Estimate, t.sizes)
	t.need = max(t.need, t.need-alone+q.budget.Need(t.Estimate))
	return nil
}

// complete adds what only a trial that is shown or within the budget is asked for: its whole
// interval, and its run on the GPU.
func (q *batchSearch) complete(ctx context.Context, setup *step.Setup, t *trial) (err error) {
	if t.course == nil {
		return nil
	}
	if err := setup.Perturb(ctx, t.course); err != nil {
		return err
	}
	t.course = nil
	if err := q.estimate(setup, t); err != nil || q.parallel.GPUs > 1 {
		return err
	}
	t.run, err = q.run(ctx, setup, t.result)
	return err
}

// run returns the run of a trial on the GPU. Where the GPU's end would change what the
// allocator does, it is a replay with that end.
func (q *batchSearch) run(ctx context.Context, setup *step.Setup, r *step.Result) (*report.Run, error) {
	if r.Device <= q.budget.Memory && setup.Case().AllocConf == "" {
		return r.Report(), nil
	}
	on, err := setup.Try(ctx, r.Again(step.Replay{Within: true, Others: q.others, Training: true}))
	if err != nil {
		return nil, err
	}
	return on.Report(), nil
}

// keep lets a trial have its recording and no other, since recordings are large. That of
// the last batch within the budget is what most searches end with.
func (q *batchSearch) keep(t *trial) {
	if q.kept != nil && q.kept != t {
		q.kept.result.Discard()
	}
	q.kept = t
}

// end gives back the memory of the search, of which nothing may be asked afterwards.
func (q *batchSearch) end() { q.keep(nil) }

// seconds returns how long a step of a trial takes; zero if that is not known.
func (q *batchSearch) seconds(ctx context.Context, t *trial) (float64, error) {
	of := t.result.Again(step.Replay{Omit: true, Nominal: true, Training: true})
	of.Timed = []device.GPU{q.gpu}
	r, err := q.setup.Try(ctx, of)
	if err != nil {
		return 0, err
	}
	t.result = r
	q.keep(t)
	return seconds(q.speed, r.Loads[0]), nil
}

// describe completes the choice with the estimate and the time of the size that was found; if
// nothing fits, with the estimate of the smallest one.
func (q *batchSearch) describe(ctx context.Context, out *report.Choice, found, steps int) error {
	size := q.describedBatch(found)
	t, err := q.try(ctx, size, judged(steps))
	if raised(err) && size == 1 && found == 0 {
		t, err = q.try(ctx, 2, judged(steps))
	}
	if err != nil {
		return err
	}
	setup, _ := q.setupOf(size, judged(steps))
	if err := q.complete(ctx, setup, t); err != nil {
		return err
	}
	out.Estimate = step.EstimateOf(t.Estimate)
	if t.run != nil {
		out.Estimate.Verdict = t.run.Judge(out.Estimate.Verdict)
	}
	out.Utilization = float64(t.Device.Value) / float64(q.gpu.Memory)
	if found == 0 {
		return nil
	}
	out.Run, out.Workspaces = t.run, step.WorkspacesOf(t.result.Facts)
	if out.StepSeconds, err = q.seconds(ctx, t); err != nil {
		return err
	}
	if err := q.expandable(ctx, out, t); err != nil {
		return err
	}
	if recorded := judged(steps); steps > recorded {
		// Every further micro-batch takes as long as each after the first.
		one, err := q.try(ctx, size, 1)
		if err != nil {
			return err
		}
		first, err := q.seconds(ctx, one)
		if err != nil {
			return err
		}
		out.StepSeconds += float64(steps-recorded) / float64(recorded-1) * (out.StepSeconds - first)
	}
	pace(out, q.parallel, t.sizes)
	return nil
}

// pace notes how fast a choice is whose step takes out.StepSeconds on one GPU alone,
// zero if that is not known.
func pace(out *report.Choice, group parallel.Setup, sizes parallel.Model) {
	if out.StepSeconds <= 0 {
		return
	}
	if group.GPUs > 1 {
		alone := out.StepSeconds
		out.StepSeconds = group.Step(alone, sizes)
		out.Scaling = alone / out.StepSeconds
	}
	out.SamplesPerSecond = float64(out.EffectiveBatch) / out.StepSeconds
}

// expandable notes what expandable segments would spare at the chosen batch of one
// GPU.
func (q *batchSearch) expandable(ctx context.Context, out *report.Choice, t *trial) (err error) {
	if q.parallel.GPUs > 1 {
		return nil
	}
	out.Expandable, err = q.setup.Expandable(ctx, out.Estimate, q.gpu, t.result)
	return err
}
