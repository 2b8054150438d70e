package fit

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/steptime"
)

// batchSearch is the search for the largest batch of one case on a GPU.
type batchSearch struct {
	setup *step.Setup
	judge *judge.Judge
	parts []models.Settings
	start planner.Start
	// max is the largest size to try. fixedBatch is the only batch size to try; zero searches.
	max, fixedBatch int
	// rowBatch is the batch size of a search for the longest sequence; zero in a search for the batch.
	rowBatch int
	multiple int
	speed    steptime.Efficiency
}

func (s *Search) batchSearch(setup *step.Setup, gpu device.GPU) (*batchSearch, error) {
	j, err := judge.New(setup, gpu, s.Budget, s.Others)
	if err != nil {
		return nil, err
	}
	q := &batchSearch{
		setup: setup, judge: j, parts: s.Parts,
		start: planner.Start{Batch: s.Model.Default.Batch}, max: s.MaxBatch, fixedBatch: s.Batch, multiple: s.Multiple,
	}
	if s.SeqLen {
		if err := q.searchSeqLen(s); err != nil {
			return nil, err
		}
	}
	q.speed, err = s.Speed(gpu, s.Model.Name)
	return q, err
}

// searchOf returns a case of the search, complete, and the search for its largest batch on a GPU. If samples differ in
// length, that has a batch of the longest.
func (s *Search) searchOf(gpu device.GPU, c models.Case) (given *step.Setup, q *batchSearch, err error) {
	if given, err = step.New(s.Model, c, s.Evidence); err != nil {
		return nil, nil, err
	}
	longest, err := s.longestCase(given.Case())
	if err == nil {
		q, err = s.batchSearch(given.WithCase(longest), gpu)
	}
	return given, q, err
}

// SeqLen is the setting that a search for the longest sequence varies.
const SeqLen = "seq-len"

// searchSeqLen makes the search vary the sequence length, up to the longest that the model accepts.
func (q *batchSearch) searchSeqLen(s *Search) error {
	i := slices.IndexFunc(s.Model.Settings, func(set models.Setting) bool { return set.Name == SeqLen })
	if i < 0 {
		return &models.CaseError{
			Model: s.Model.Name, Field: "search", Reason: "the model has no rows of tokens (" + SeqLen + ") to search",
		}
	}
	q.rowBatch, q.fixedBatch, q.multiple = s.Batch, 0, 0
	q.max, q.start = int(s.Model.Settings[i].Max), planner.Start{Batch: int(s.Model.Settings[i].Default)}
	return nil
}

// setupOf returns the case for a size of the search, and its batch size. The size is the batch or, in a search for the
// longest sequence, the sequence length.
func (q *batchSearch) setupOf(size, accumulate int) (*step.Setup, int) {
	setup := q.setup.WithAccumulation(accumulate)
	if q.rowBatch == 0 {
		return setup, size
	}
	c := setup.Case()
	c.Settings = maps.Clone(c.Settings)
	c.Settings[SeqLen] = int64(size)
	return setup.WithCase(c), q.rowBatch
}

// judgedMicroBatches returns the number of micro-batches to record to judge a step of micro micro-batches.
func judgedMicroBatches(micro int) int { return min(micro, step.MaxMicroBatches) }

// find returns the size to use (a batch, or a sequence length), its number of micro-batches n, and the largest size
// with as many. Both sizes are zero if nothing fits.
func (q *batchSearch) find(ctx context.Context, effective, steps int) (batch, largest, n int, err error) {
	if effective == 0 {
		largest, err = q.largest(ctx, steps, q.max)
		return roundDown(largest, q.multiple), largest, steps, err
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
		if batch, n, err = q.splitEffective(ctx, effective, largest); err != nil ||
			judgedMicroBatches(n) == judgedMicroBatches(before) {
			return batch, largest, n, err
		}
	}
}

// splitEffective divides an effective batch into micro-batches, of at least two samples if batch norm refuses one.
func (q *batchSearch) splitEffective(ctx context.Context, effective, largest int) (batch, steps int, err error) {
	batch, steps = planner.SplitBatch(effective, largest, q.multiple)
	if batch > 1 || largest < 2 {
		return batch, steps, nil
	}
	if _, err = q.judgeSize(ctx, 1, judgedMicroBatches(steps)); isModelError(err) {
		return 2, (effective + 1) / 2, nil
	}
	return batch, steps, err
}

// isModelError reports whether PyTorch would raise an error at this batch size, as batch norm does for one sample.
func isModelError(err error) bool { return errors.As(err, new(*step.RefusedError)) }

// roundDown returns a batch size rounded down to a multiple; a size below the multiple stays unchanged.
func roundDown(batch, multiple int) int {
	if multiple < 2 || batch < multiple {
		return batch
	}
	return batch - batch%multiple
}

// largest returns the largest batch up to to within the budget, with the given number of micro-batches; else zero.
func (q *batchSearch) largest(ctx context.Context, micro, to int) (int, error) {
	// Batch sizes are tried with few recorded micro-batches; the one found is judged with as many as in plan and smoke.
	looked := step.StepsToRecord(micro)
	whole := judgedMicroBatches(micro) == looked
	// A search that only finds the start of another one need not test sizes below the largest that fits.
	found, err := q.largestOf(ctx, looked, planner.BatchSearch{Start: q.start, To: to, NeedIsSlow: !whole})
	if err != nil || whole {
		return found, err
	}
	near := planner.Start{Batch: max(found, 1), IsNear: true}
	return q.largestOf(ctx, judgedMicroBatches(micro), planner.BatchSearch{Start: near, To: to})
}

func (q *batchSearch) largestOf(ctx context.Context, recorded int, s planner.BatchSearch) (int, error) {
	s.Need = func(batch int) (int64, error) {
		d, err := q.judgeSize(ctx, batch, recorded)
		if err != nil {
			return 0, err
		}
		return d.Need, nil
	}
	return q.search(&s)
}

// search returns the largest safe batch within the budget; with a fixed batch, that batch if it is safe. It returns
// zero if none is. If s.To is zero, it becomes the search's largest size.
func (q *batchSearch) search(s *planner.BatchSearch) (int, error) {
	s.From, s.To, s.Limit, s.HasJumps = 1, cmp.Or(s.To, q.max), q.judge.Budget.Limit(), q.setup.HasReservedJumps() &&
		!s.NeedIsSlow
	if q.fixedBatch == 0 {
		return judge.Largest(s)
	}
	if safe, err := judge.Safe(s, q.fixedBatch); err != nil || !safe {
		return 0, err
	}
	return q.fixedBatch, nil
}

// describedBatch returns the batch to describe in the report: the one found, else the fixed one, else 1.
func (q *batchSearch) describedBatch(batch int) int { return cmp.Or(batch, q.fixedBatch, 1) }

// judgeSize judges a size with a number of recorded micro-batches, in the stage of the curriculum that needs the most.
func (q *batchSearch) judgeSize(ctx context.Context, size, accumulate int) (*judge.Judgement, error) {
	setup, batch := q.setupOf(size, accumulate)
	cases := []*step.Setup{setup}
	if len(q.parts) > 0 {
		cases = lists.Map(q.parts, setup.WithSettings)
	}
	return q.judge.WorstCase(ctx, cases, batch)
}

// stepSeconds returns the step time of a judgement in seconds; zero if unknown.
func (q *batchSearch) stepSeconds(ctx context.Context, d *judge.Judgement) (float64, error) {
	load, err := d.KernelLoad(ctx)
	return estimateSeconds(q.speed, load), err
}

// describe adds the estimate and step time at the size found to the choice; if nothing fits, at the smallest size.
func (q *batchSearch) describe(ctx context.Context, out *report.Choice, found, steps int) error {
	size := q.describedBatch(found)
	d, err := q.judgeSize(ctx, size, judgedMicroBatches(steps))
	if isModelError(err) && size == 1 && found == 0 {
		d, err = q.judgeSize(ctx, 2, judgedMicroBatches(steps))
	}
	if err != nil {
		return err
	}
	if out.Estimate, err = d.Report(ctx); err != nil {
		return err
	}
	l := d.Loops[0]
	out.Utilization = float64(l.Device.Value) / float64(q.judge.GPU.Memory)
	if found == 0 {
		return nil
	}
	out.Workspaces = step.WorkspacesOf(l.Steps.Facts)
	out.Run = d.Run()
	if out.StepSeconds, err = q.stepSeconds(ctx, d); err != nil {
		return err
	}
	if out.Expandable, _, err = d.ExpandableNeed(ctx); err != nil {
		return err
	}
	if recorded := judgedMicroBatches(steps); steps > recorded {
		// Every micro-batch after the first takes equally long.
		one, err := q.judgeSize(ctx, size, 1)
		if err != nil {
			return err
		}
		first, err := q.stepSeconds(ctx, one)
		if err != nil {
			return err
		}
		out.StepSeconds += float64(steps-recorded) / float64(recorded-1) * (out.StepSeconds - first)
	}
	setSamplesPerSecond(out)
	return nil
}

// setSamplesPerSecond sets the speed of a choice from its StepSeconds; zero if that is unknown.
func setSamplesPerSecond(out *report.Choice) {
	if out.StepSeconds > 0 {
		out.SamplesPerSecond = float64(out.EffectiveBatch) / out.StepSeconds
	}
}
