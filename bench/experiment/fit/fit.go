// Package fit finds the largest batch that is safe on a board, for every way to train.
package fit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/parallel"
	"github.com/vprof/vprof/profiler/planner/steptime"
	"github.com/vprof/vprof/profiler/program"
)

// Search is the input of [Run]: configurations, boards and the budget.
type Search struct {
	Model models.Model
	// Cases are the configurations; their batch sizes do not matter.
	Cases []models.Case
	GPUs  []device.GPU
	// Budget is how much of each board may be filled; its Memory is taken
	// from the board.
	Budget planner.Budget
	// Others is what other processes hold of each board, bytes.
	Others int64
	// Effective is the number of samples that an optimizer step should see;
	// zero keeps the accumulation of the cases.
	Effective int
	// MaxBatch ends the search.
	MaxBatch int
	// Multiple is what batches are multiples of, where they are not smaller; zero and
	// one are any.
	Multiple int
	// Batch is the one batch size to try; zero is the largest that fits.
	Batch int
	step.Evidence
	// Parallel is how several boards of a kind share the work; its zero value
	// is one board.
	Parallel parallel.Setup
	// Ranks says that the cases have strategies, of which each records a rank; its
	// zero value is that they have none. Of strategies that are searched, several at a
	// time are read off lines, and the smallest number of GPUs is looked for.
	Ranks report.Parallel
	// Device, if not nil, is the one board: what is recommended is measured
	// on it, and comes down until it fits there, too.
	Device device.Device
	// Levers says that the cases differ by levers, so that what is recommended is
	// explained by them.
	Levers bool
	// Progress is told how many configurations are done.
	Progress progress.Func
}

// Run finds the largest batch within the budget for every configuration on
// every board, and recommends the fastest for each stage of a board: the one
// with the most samples per second. What it recommends has been replayed on the
// simulated board at that very batch. A configuration that PyTorch or the model
// refuses is part of the result, unless all are: then the first's error is
// returned.
func Run(ctx context.Context, s Search) (*report.Fit, error) {
	f := s.begin()
	v, err := s.look(ctx, f)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(v.refusals, nil) {
		return nil, v.refusals[0]
	}
	rank(f, s.Model.Stages)
	if s.Ranks.Strategy == AnyStrategy {
		if f.Parallel.Least, err = s.leastGPUs(ctx); err != nil {
			return nil, err
		}
	}
	if s.surveys() {
		if err := s.confirm(ctx, f); err != nil {
			return f, err
		}
	}
	if s.Levers {
		if err := s.explain(ctx, f); err != nil {
			return f, err
		}
	}
	if s.surveys() {
		return f, nil
	}
	if s.Device != nil {
		return f, s.onDevice(ctx, f)
	}
	return f, nil
}

// begin is the result before any configuration was looked at.
func (s *Search) begin() *report.Fit {
	f := &report.Fit{
		Schema: report.FitSchema, Model: s.Model.Name, BatchUnit: s.Model.BatchUnit, Config: json.RawMessage(s.Model.Description.Text()),
		Budget:  report.Budget{Margin: s.Budget.Margin, Risk: s.Budget.Risk, Others: s.Others, EffectiveBatch: s.Effective, MaxBatch: s.MaxBatch, Multiple: s.Multiple, Batch: s.Batch},
		Choices: make([]report.Choice, len(s.Cases)*len(s.GPUs)),
	}
	if s.Ranks.GPUs > 1 {
		r := s.Ranks
		r.Recorded = true
		if r.Bandwidth == 0 {
			r.Bandwidth = s.GPUs[0].Link
		}
		f.Parallel = &r
	}
	if p := s.Parallel; p.GPUs > 1 {
		f.Parallel = &report.Parallel{GPUs: p.GPUs, Strategy: string(p.Strategy), BucketView: p.BucketView, Bandwidth: p.Bandwidth}
	}
	for _, gpu := range s.GPUs {
		f.Devices = append(f.Devices, step.DeviceOf(gpu))
	}
	f.Warnings = append(s.caveats(), step.Unsupported(s.GPUs)...)
	return f
}

// caveats are what a user must know of the configurations, each once.
func (s *Search) caveats() []report.Warning {
	var all []report.Warning
	for _, c := range s.Cases {
		for _, what := range s.Model.Caveats(c) {
			if w := (report.Warning{What: what}); !slices.Contains(all, w) {
				all = append(all, w)
			}
		}
	}
	return all
}

// look fills in the choices: from lines on several boards, exactly on one.
func (s *Search) look(ctx context.Context, f *report.Fit) (*survey, error) {
	v := &survey{search: s, choices: f.Choices, refusals: make([]error, len(f.Choices))}
	if s.surveys() {
		return v, v.run(ctx)
	}
	return v, s.exactly(ctx, v)
}

// exactly replays every configuration on every board as often as finding its
// largest batch takes.
func (s *Search) exactly(ctx context.Context, v *survey) error {
	done := s.Progress.Counting("configurations", len(v.choices))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, gpu := range s.GPUs {
		for j, c := range s.Cases {
			at := i*len(s.Cases) + j
			g.Go(func() (err error) {
				v.choices[at], v.refusals[at], err = s.choice(ctx, gpu, c, planner.Start{Batch: s.Model.Default.Batch})
				done(1)
				return err
			})
		}
	}
	return g.Wait()
}

// rank sorts the choices and recommends the first that fits of every stage.
func rank(f *report.Fit, stages []string) {
	dropRefused(f)
	for i := range f.Choices {
		f.Choices[i].Recommended = false
	}
	at := map[string]int{}
	for i, d := range f.Devices {
		at[d.Name] = i
	}
	slices.SortStableFunc(f.Choices, func(a, b report.Choice) int {
		return cmp.Or(
			cmp.Compare(at[a.Device], at[b.Device]),
			cmp.Compare(slices.Index(stages, a.Case.Stage), slices.Index(stages, b.Case.Stage)),
			-cmp.Compare(a.SamplesPerSecond, b.SamplesPerSecond),
			cmp.Compare(a.Refused, b.Refused),
		)
	})
	seen := map[[2]string]bool{}
	for i := range f.Choices {
		c := &f.Choices[i]
		key := [2]string{c.Device, c.Case.Stage}
		if c.Fits() && !seen[key] {
			seen[key], c.Recommended = true, true
		}
	}
}

// choice finds the largest batch size of one configuration on one board, from where the
// search begins. refused says why PyTorch or the model would not train it.
func (s *Search) choice(ctx context.Context, gpu device.GPU, c models.Case, begin planner.Start) (out report.Choice, refused, err error) {
	setup, err := step.New(s.Model, c, s.Evidence)
	if err != nil {
		return s.refuse(gpu, c, err)
	}
	q, err := s.batchSearch(setup, gpu)
	if err != nil {
		return out, nil, err
	}
	defer q.end()
	q.begin = begin
	gpus := s.batchesOf(c)
	batch, largest, steps, err := q.find(ctx, (s.Effective+gpus-1)/gpus, c.Accumulate)
	if err != nil {
		c.Accumulate = step.RecordedSteps(c.Accumulate)
		return s.refuse(gpu, c, err)
	}
	whole := setup.Accumulating(steps).Case()
	out = report.Choice{
		Device: step.SimName(gpu), Case: report.CaseOf(s.Model, whole).Short(), Own: s.own(whole),
		Largest: largest, Capped: largest == s.MaxBatch, Batch: batch, EffectiveBatch: batch * steps * gpus,
	}
	return out, nil, q.describe(ctx, &out, steps)
}

// refuse makes the choice of a configuration that PyTorch or the model refuses; other
// errors are returned as such.
func (s *Search) refuse(gpu device.GPU, c models.Case, cause error) (report.Choice, error, error) {
	if !step.Refused(cause) {
		return report.Choice{}, nil, cause
	}
	return report.Choice{Device: step.SimName(gpu), Case: report.CaseOf(s.Model, c).Short(), Refused: cause.Error()}, cause, nil
}

// own tells whether the case is trained as the model's authors do: with their precision,
// settings, optimizer and checkpointing.
func (s *Search) own(c models.Case) bool {
	d, err := s.Model.Complete(s.Model.Default)
	if err != nil {
		return false
	}
	for name, v := range d.Settings {
		if c.Settings[name] != v {
			return false
		}
	}
	return c.AMP == d.AMP && c.Weights == d.Weights && c.Checkpointing == d.Checkpointing && c.Optimizer == d.Optimizer && c.Levers == d.Levers && c.LoRA == nil && c.Task == d.Task
}

// batchSearch is the search for the largest batch of one configuration.
type batchSearch struct {
	setup  *step.Setup
	gpu    device.GPU
	others int64
	budget planner.Budget
	begin  planner.Start
	// max is where to end; given is the one batch to try, zero for none.
	max, given int
	multiple   int
	speed      steptime.Efficiency
	parallel   parallel.Setup
	tried      map[trialOf]*trial
	// kept is the trial that has a recording; nil for none.
	kept *trial
}

// trialOf identifies a trial of a batchSearch.
type trialOf struct{ batch, accumulate int }

// trial is what one replay of the configuration came to.
type trial struct {
	planner.Estimate
	// result is the trial, of which more may be asked.
	result *step.Result
	// run is the replay as reports have it; nil of several boards.
	run *report.Run
	// sizes are what communication depends on, of several boards.
	sizes parallel.Model
}

// sizesOf are the sizes of a model that communication depends on. Its largest layer is
// taken for its largest parameter, which is all of it but biases.
func sizesOf(r *step.Result, e planner.Estimate) parallel.Model {
	return parallel.Model{
		Weights: e.Components[program.Weights], Gradients: r.Counts.Gradients, Trainable: r.Counts.Trainable, LargestLayer: r.LargestWeight,
	}
}

func (s *Search) batchSearch(setup *step.Setup, gpu device.GPU) (*batchSearch, error) {
	budget, err := setup.Budget(s.Budget, gpu, s.Others)
	if err != nil {
		return nil, err
	}
	q := &batchSearch{setup: setup, gpu: gpu, others: s.Others, budget: budget, begin: planner.Start{Batch: s.Model.Default.Batch}, max: s.MaxBatch, given: s.Batch, multiple: s.Multiple, parallel: s.Parallel, tried: map[trialOf]*trial{}}
	if q.speed, err = s.Speed(gpu, s.Model.Name); err != nil {
		return nil, err
	}
	return q, nil
}

// find returns the batch size to use and its number of micro-batches, and the largest
// batch size with that many. Both sizes are zero if nothing fits.
func (q *batchSearch) find(ctx context.Context, effective, steps int) (batch, largest, n int, err error) {
	if effective == 0 {
		largest, err = q.largest(ctx, step.RecordedSteps(steps))
		return rounded(largest, q.multiple), largest, steps, err
	}
	if largest, err = q.largest(ctx, 1); err != nil || largest == 0 || largest >= effective {
		return min(effective, largest), largest, 1, err
	}
	if largest, err = q.largest(ctx, 2); err != nil || largest == 0 {
		return 0, 0, 2, err
	}
	batch, n = split(effective, largest, q.multiple)
	return batch, largest, n, nil
}

// rounded is a batch size as a multiple, unless it is smaller than that.
func rounded(batch, multiple int) int {
	if multiple < 2 || batch < multiple {
		return batch
	}
	return batch - batch%multiple
}

// split divides an effective batch among micro-batches that are multiples.
func split(effective, largest, multiple int) (batch, steps int) {
	if multiple < 2 || largest < multiple {
		return planner.Split(effective, largest, 1)
	}
	// In units of the multiple it is the same question.
	units, steps := planner.Split(max(1, (effective+multiple/2)/multiple), largest/multiple, 1)
	return units * multiple, steps
}

// largest is the largest batch within the budget with a number of recorded
// micro-batches; zero if none is.
func (q *batchSearch) largest(ctx context.Context, accumulate int) (int, error) {
	need := func(batch int) (int64, error) {
		t, err := q.try(ctx, batch, accumulate)
		if err != nil {
			return 0, err
		}
		if t.run != nil && t.run.Strained() {
			return math.MaxInt64, nil
		}
		return q.budget.Need(t.Estimate), nil
	}
	return q.search(q.begin, need)
}

// search is the largest batch whose need is within the budget, or the given one if its
// is; zero if none is.
func (q *batchSearch) search(begin planner.Start, need func(int) (int64, error)) (int, error) {
	if q.given == 0 {
		return step.LargestBatch(begin, q.max, q.budget.Limit(), need)
	}
	if n, err := need(q.given); err != nil || n > q.budget.Limit() {
		return 0, err
	}
	return q.given, nil
}

// shown is the batch to describe: what was found, or else the given or the smallest.
func (q *batchSearch) shown(batch int) int {
	return cmp.Or(batch, q.given, 1)
}

// try replays a batch size with a number of recorded micro-batches. On a board that
// it does not fit the replay goes on all the same, for an estimate of what it needs.
func (q *batchSearch) try(ctx context.Context, batch, accumulate int) (*trial, error) {
	key := trialOf{batch, accumulate}
	if t, done := q.tried[key]; done {
		return t, nil
	}
	setup := q.setup.Accumulating(accumulate)
	r, err := setup.Try(ctx, setup.Trial(q.gpu, batch))
	if err != nil {
		return nil, err
	}
	sample := r.Sample()
	sample.Managed = 0 // which the driver takes away where there is no room
	p, err := setup.Planner(q.gpu, sample)
	if err != nil {
		return nil, err
	}
	p.Memory = q.budget.Memory
	e, err := p.Estimate(batch)
	if err != nil {
		return nil, err
	}
	t := &trial{Estimate: e, result: r}
	if q.parallel.GPUs > 1 {
		// The replay was of one board alone.
		t.sizes = sizesOf(r, e)
		t.Estimate = q.parallel.Apply(e, t.sizes)
	} else if t.run, err = q.run(ctx, setup, r); err != nil {
		return nil, err
	}
	q.tried[key] = t
	if q.budget.Need(t.Estimate) <= q.budget.Limit() {
		q.keep(t)
	} else {
		t.result.Discard()
	}
	return t, nil
}

// run is the run of a trial on the board. Where the board's end would change what the
// allocator does, it is a replay with that end.
func (q *batchSearch) run(ctx context.Context, setup *step.Setup, r *step.Result) (*report.Run, error) {
	if r.Device <= q.budget.Memory && setup.Case().AllocConf == "" {
		return r.Report(), nil
	}
	on, err := setup.Try(ctx, r.Again(step.Replay{Within: true, Others: q.others}))
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

// seconds is how long a step of a trial takes; zero if that is not known.
func (q *batchSearch) seconds(ctx context.Context, t *trial) (float64, error) {
	of := t.result.Again(step.Replay{Omit: true})
	of.Timed = []device.GPU{q.gpu}
	r, err := q.setup.Try(ctx, of)
	if err != nil {
		return 0, err
	}
	t.result = r
	q.keep(t)
	load := r.Loads[0]
	if !load.Known() {
		return 0, nil
	}
	return q.speed.Time(load).Seconds + hostSeconds(r.Facts.HostSaved, load), nil
}

// describe completes the choice with the estimate and the time of its batch size; if
// nothing fits, with the estimate of the smallest one.
func (q *batchSearch) describe(ctx context.Context, out *report.Choice, steps int) error {
	batch := q.shown(out.Batch)
	t, err := q.try(ctx, batch, step.RecordedSteps(steps))
	var refused *step.RefusedError
	if errors.As(err, &refused) && batch == 1 && out.Batch == 0 {
		t, err = q.try(ctx, 2, step.RecordedSteps(steps))
	}
	if err != nil {
		return err
	}
	out.Estimate = step.EstimateOf(t.Estimate)
	if t.run != nil {
		out.Estimate.Verdict = t.run.Judge(out.Estimate.Verdict)
	}
	out.Utilization = float64(t.Device.Value) / float64(q.gpu.Memory)
	if out.Batch == 0 {
		return nil
	}
	out.Run, out.Workspaces = t.run, step.WorkspacesOf(t.result.Facts)
	if out.StepSeconds, err = q.seconds(ctx, t); err != nil {
		return err
	}
	if err := q.expandable(ctx, out, t); err != nil {
		return err
	}
	if steps > 2 {
		// Every further micro-batch takes as long as the second.
		one, err := q.try(ctx, batch, 1)
		if err != nil {
			return err
		}
		first, err := q.seconds(ctx, one)
		if err != nil {
			return err
		}
		out.StepSeconds += float64(steps-2) * (out.StepSeconds - first)
	}
	if out.StepSeconds > 0 {
		if q.parallel.GPUs > 1 {
			alone := out.StepSeconds
			out.StepSeconds = q.parallel.Step(alone, t.sizes)
			out.Scaling = alone / out.StepSeconds
		}
		out.SamplesPerSecond = float64(out.EffectiveBatch) / out.StepSeconds
	}
	return nil
}

// expandable notes what expandable segments would spare at the chosen batch of one
// board.
func (q *batchSearch) expandable(ctx context.Context, out *report.Choice, t *trial) (err error) {
	if q.parallel.GPUs > 1 {
		return nil
	}
	out.Expandable, err = q.setup.Expandable(ctx, out.Estimate, q.gpu, t.result)
	return err
}
