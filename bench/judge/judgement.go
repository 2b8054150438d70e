package judge

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/steptime"
)

// A Judgement is the verdict on a batch, with the needs at all points of training, the point that decides the verdict,
// and the reason.
type Judgement struct {
	// Batch is the judged batch size.
	Batch int
	// Loops are the training loops that the case may have. The first has the largest need, and reports show its values.
	Loops []*Loop
	// Evaluation is the evaluation between training steps of the first loop; nil without one.
	Evaluation *Evaluation
	// Need is the device bytes that must be within the limit: the largest need of all judged points, or [math.MaxInt64]
	// if the batch cannot train.
	Need int64
	// Reason is why the batch is not safe, and Decides the point that makes it unsafe; both are empty if it is safe.
	Reason         planner.Reason
	DecidingMoment Decision

	judge *Judge
	setup *step.Setup
	// run is the replay of the first loop with the GPU's own memory size, if that may differ; else nil.
	run *report.Run
	// completed reports whether [Judgement.Complete] was called.
	completed bool
}

// A Decision names the point of training that decides a verdict.
type Decision struct {
	// Moment is the point's name, Batch the size of its batch.
	Moment string
	Batch  int
	// Need is the point's device bytes.
	Need int64
}

// A Loop is the training steps of a case in one training loop.
type Loop struct {
	// Name is the name of the loop; empty for models with their own loop.
	Name models.Loop
	// Setup is the case with the loop.
	Setup *step.Setup
	// Steps is the replay of the training steps. Estimate is their need at the peak.
	Steps *step.Result
	planner.Estimate
	// Need is the loop's device bytes that must be within the limit.
	Need int64
}

// An Evaluation is an evaluation batch, without gradients, after the training steps.
type Evaluation struct {
	// Batch is the size of the evaluation batch.
	Batch int
	// Result is the replay of the training steps and the evaluation. Estimate is the need of the evaluation.
	Result *step.Result
	planner.Estimate
	// Need is the evaluation's device bytes, which must be within the limit. Reason is empty if they are.
	Need   int64
	Reason planner.Reason
	// Judged reports whether the evaluation counts for the verdict: the user or project evaluates. Else it is shown.
	Judged bool
}

// closeLoopShare is the share of the larger need of two loops above which the perturbed replays of the other loop
// decide, too. Perturbations add at most half to a need: 48 % was the most of 16,889 needs, and 25 % was exceeded by
// 3.4 % of them.
const closeLoopShare = 2.0 / 3

// otherLoopShare bounds the interval of any loop by the interval of the loop that keeps the most memory alive, both
// with perturbed replays. In 823 cases of 138 models, the need of another loop was at most 1.08 times as large, and the
// low end of a larger need at least 0.93 times.
const otherLoopShare = 0.85

// evaluation is the [Decision.Moment] of an evaluation.
const evaluation = "evaluation"

// judgeTraining replays the batch until its need is known, or known to exceed the limit.
func (d *Judgement) judgeTraining(ctx context.Context) error {
	loops := d.setup.LoopSetups()
	d.Loops = make([]*Loop, len(loops))
	for i, s := range slices.Backward(loops) { // begins with what [First] recorded
		var err error
		if d.Loops[i], err = d.recordLoop(ctx, s); err != nil {
			return err
		}
	}
	d.sortByNeed()
	if d.isOverBudget() {
		return nil
	}
	if err := d.addPerturbations(ctx, d.Loops); err != nil || d.isOverBudget() {
		return err
	}
	if err := d.ranOnGPU(ctx); err != nil || d.isOverBudget() || !d.hasEvaluation() {
		return err
	}
	return d.Evaluate(ctx)
}

// recordLoop returns a loop of the batch with its steps replayed.
func (d *Judgement) recordLoop(ctx context.Context, s *step.Setup) (l *Loop, err error) {
	l = &Loop{Name: s.Loop(), Setup: s}
	t := s.TrainingTrial(s.Trial(d.judge.GPU, d.Batch), d.judge.Validation)
	t.MemoryCap, t.Replay.Device = d.judge.MemoryCap, d.judge.Device
	if l.Steps, err = s.TryUntilSteady(ctx, t); err != nil {
		return nil, err
	}
	return l, d.measure(l)
}

// ranOnGPU replays steps within the limit with the GPU's own memory size, if the memory limit or the allocator settings
// could change the result. A batch is not safe if it then runs out of memory or frees cached memory.
func (d *Judgement) ranOnGPU(ctx context.Context) error {
	l := d.Loops[0]
	if l.Steps.Measured != nil || l.Steps.Device <= d.judge.Budget.Memory && l.Setup.Case().AllocConf == "" {
		return nil
	}
	on, err := l.Setup.Try(ctx, l.Steps.ReplayTrial(step.ReplayOptions{
		StopAtLimit:       true,
		OtherProcessBytes: d.judge.OtherProcessBytes, TrainingOnly: true,
	}))
	if err != nil {
		return err
	}
	d.run = on.Report()
	if why := reasonOfRun(d.run); why != "" {
		d.Need, d.Reason = d.judge.Budget.Limit()+1, why
		d.DecidingMoment = Decision{"training", d.Batch, d.judge.Budget.Need(l.Estimate)}
	}
	return nil
}

// Run returns the replay of the training steps, with the GPU's own memory size if that matters.
func (d *Judgement) Run() *report.Run {
	if d.run != nil {
		return d.run
	}
	return d.Loops[0].Steps.Report()
}

// measure sets the need of a loop, including its spread if that is known.
func (d *Judgement) measure(l *Loop) (err error) {
	if m := l.Steps.Measured; m != nil {
		l.Need = measuredNeed(l.Steps)
		return nil
	}
	l.Estimate, err = d.judge.Estimate(l.Setup, l.Steps, l.Steps.Run.Max)
	l.Need = d.judge.need(l.Estimate)
	return err
}

// measuredNeed returns a measured run's bytes; [math.MaxInt64] if it frees cached memory or runs out of memory.
func measuredNeed(r *step.Result) int64 {
	if r.Measured.Run.HadRetries() {
		return math.MaxInt64
	}
	return r.Device
}

// sortByNeed moves the loop with the largest need to the front, and sets the judgement's need to the need of that loop.
func (d *Judgement) sortByNeed() {
	slices.SortStableFunc(d.Loops, func(a, b *Loop) int { return cmp.Compare(b.Need, a.Need) })
	worst := d.Loops[0]
	d.Need, d.Reason, d.DecidingMoment = worst.Need, "", Decision{}
	switch {
	case worst.Steps.Measured != nil:
		d.Reason = cmp.Or(reasonOfRun(worst.Steps.Measured.Run), d.judge.Budget.Judge(d.Need))
	default:
		d.Reason = d.judge.reasonOfEstimate(worst.Estimate)
	}
	if d.Reason != "" {
		d.DecidingMoment = Decision{"training", d.Batch, d.judge.Budget.Need(worst.Estimate)}
	}
}

// isOverBudget reports whether the batch needs more than the limit.
func (d *Judgement) isOverBudget() bool { return d.Need > d.judge.Budget.Limit() }

// addPerturbations adds the perturbed replays of the first loop, and of other loops that need nearly as much.
func (d *Judgement) addPerturbations(ctx context.Context, loops []*Loop) error {
	most := loops[0].Need
	for i, l := range loops {
		if i > 0 && float64(l.Need) < closeLoopShare*float64(most) {
			continue
		}
		if err := l.Setup.AddSpread(ctx, l.Steps); err != nil {
			return err
		}
		if err := d.measure(l); err != nil {
			return err
		}
	}
	d.sortByNeed()
	return nil
}

// Evaluate adds the evaluation after the first loop. If the verdict ignores the evaluation, its interval lacks
// perturbed replays.
func (d *Judgement) Evaluate(ctx context.Context) (err error) {
	l := d.Loops[0]
	if l.Steps.ValidationStep == 0 || d.Evaluation != nil {
		return nil
	}
	how := l.Steps.ReplayTrial(step.ReplayOptions{NominalMemory: true, Device: d.judge.Device})
	e := &Evaluation{Batch: how.Validation, Judged: d.hasEvaluation()}
	d.Evaluation = e
	if e.Result, err = l.Setup.Try(ctx, how); err != nil {
		return err
	}
	l.Steps.AdoptRecording(e.Result)
	if e.Result.Measured != nil {
		e.Need = measuredNeed(e.Result)
		e.Reason = cmp.Or(reasonOfRun(e.Result.Measured.Run), d.judge.Budget.Judge(e.Need))
	} else {
		if e.Result.Run.Max.Reserved <= l.Steps.Run.Max.Reserved {
			e.Result.Spread, e.Result.Reordered = l.Steps.Spread, l.Steps.Reordered
		}
		if e.Judged {
			if err := l.Setup.AddSpread(ctx, e.Result); err != nil {
				return err
			}
		}
		peak := e.Result.Run.PhasePeak(e.Result.ValidationStep, "").Usage
		if e.Estimate, err = d.judge.Estimate(l.Setup, e.Result, peak); err != nil {
			return err
		}
		e.Need, e.Reason = d.judge.need(e.Estimate), d.judge.reasonOfEstimate(e.Estimate)
	}
	if !e.Judged {
		return nil
	}
	d.Need = max(d.Need, e.Need)
	if d.Reason == "" && e.Reason != "" {
		d.Reason, d.DecidingMoment = e.Reason, Decision{evaluation, e.Batch, e.Need}
	}
	return nil
}

// hasEvaluation reports whether the evaluation counts for the verdict.
func (d *Judgement) hasEvaluation() bool { return d.judge.Validation > 0 || d.setup.Evaluates() }

// Complete adds what only reports show: the whole interval of a need beyond the limit, and the evaluation.
func (d *Judgement) Complete(ctx context.Context) error {
	if d.completed {
		return nil
	}
	d.completed = true
	if d.Loops[0].Need > d.judge.Budget.Limit() {
		if err := d.addPerturbations(ctx, d.Loops[:1]); err != nil || !d.hasEvaluation() {
			return err
		}
	}
	return d.Evaluate(ctx)
}

// GPU returns the GPU that the batch is judged on.
func (d *Judgement) GPU() device.GPU { return d.judge.GPU }

// Safe reports whether the batch is safe.
func (d *Judgement) Safe() bool { return d.Reason == "" }

// FreeRecordings frees the recordings held by the judge of the batch.
func (d *Judgement) FreeRecordings() { d.judge.FreeRecordings() }

// discard frees the recordings, so that further replays record again.
func (d *Judgement) discard() {
	for _, l := range d.Loops {
		l.Steps.Discard()
	}
}

// Report returns the first loop's estimate with the verdict, as reports show it. If the GPU's memory size lies within
// the interval, a replay with that size decides.
func (d *Judgement) Report(ctx context.Context) (*report.Estimate, error) {
	if err := d.Complete(ctx); err != nil {
		return nil, err
	}
	worst := d.Loops[0]
	out := step.EstimateOf(worst.Estimate)
	if d.run != nil {
		out.Verdict = d.run.VerdictGiven(out.Verdict)
	}
	if err := d.addDeviceNeeds(ctx, out, worst, true); err != nil {
		return nil, err
	}
	if len(d.Loops) > 1 {
		out.Loop = worst.Name
	}
	if len(d.Loops) > 1 && worst.Steps.Facts.Outputs > 0 { // else loops differ in nothing but when the loss is freed
		out.OtherLoop = &report.OtherLoop{Loop: d.Loops[1].Name, Device: d.Loops[1].Device.Value}
	}
	if err := d.reportEvaluation(ctx, out); err != nil {
		return nil, err
	}
	out.Unsafe = report.Reason(d.Reason)
	if d.Reason != "" {
		out.Decides = &report.Decision{
			What: d.DecidingMoment.Moment, Batch: d.DecidingMoment.Batch, Need: d.DecidingMoment.Need,
			Limit: d.judge.Budget.Limit(),
		}
	}
	return out, nil
}

// reportEvaluation adds the evaluation to an estimate if the user requested it, or if only the evaluation is not safe.
func (d *Judgement) reportEvaluation(ctx context.Context, out *report.Estimate) error {
	e := d.Evaluation
	asked := !d.setup.Case().Evaluate.IsZero()
	if e == nil || !asked && d.DecidingMoment.Moment != evaluation && (e.Judged || e.Reason == "" || d.Reason != "") {
		return nil
	}
	judged := step.EstimateOf(e.Estimate)
	if err := d.addDeviceNeeds(ctx, judged, &Loop{Setup: d.Loops[0].Setup, Steps: e.Result}, false); err != nil {
		return err
	}
	out.Evaluation = &report.Evaluation{
		Batch: e.Batch, Allocated: judged.Allocated, Reserved: judged.Reserved, Device: judged.Device,
		Judged: e.Judged, Verdict: judged.Verdict, Unsafe: report.Reason(e.Reason),
	}
	if e.Judged {
		out.Verdict = out.Verdict.Worse(judged.Verdict)
	}
	return nil
}

// addDeviceNeeds replays with the GPU's own memory size, which decides if it lies within the interval of an estimate.
func (d *Judgement) addDeviceNeeds(ctx context.Context, out *report.Estimate, l *Loop, training bool) error {
	if out.Verdict != report.Tight {
		return nil
	}
	on, err := l.Setup.Try(ctx, l.Steps.ReplayTrial(step.ReplayOptions{
		StopAtLimit:       true,
		OtherProcessBytes: d.judge.OtherProcessBytes, TrainingOnly: training,
	}))
	if err == nil {
		out.Verdict = on.Report().VerdictGiven(out.Verdict)
	}
	return err
}

// StreamedNeed returns the device bytes if the data set stays on the host and one batch at a time is on the GPU; nil if
// the case already does that.
func (d *Judgement) StreamedNeed(ctx context.Context) (*report.Interval, error) {
	c := d.setup.Case()
	if c.Dataset == 0 {
		return nil, nil
	}
	c.Dataset = 0
	other, err := d.judge.Try(ctx, d.setup.WithCase(c), d.Batch)
	if err != nil {
		return nil, err
	}
	if err := other.Complete(ctx); err != nil {
		return nil, err
	}
	return new(step.IntervalOf(other.Loops[0].Device)), nil
}

// ExpandableNeed returns the device bytes with expandable segments, and the reason why they are not safe. It returns
// nil if they are on already or would save little.
func (d *Judgement) ExpandableNeed(ctx context.Context) (*report.Interval, report.Reason, error) {
	l := d.Loops[0]
	need, err := l.Setup.ExpandableNeed(ctx, l.Estimate, d.judge.GPU, l.Steps)
	if need == nil {
		return nil, "", err
	}
	return need, report.Reason(d.judge.Budget.Judge(need.High)), nil
}

// Spill returns the host memory that the step uses on Windows or WSL2; nil if it uses none.
func (d *Judgement) Spill(ctx context.Context) (*report.Spill, error) {
	l := d.Loops[0]
	return l.Setup.WithOtherProcesses(d.judge.OtherProcessBytes).Spill(ctx, d.judge.GPU, l.Steps)
}

// KernelLoad returns the work of a step in the judged loop on the GPU. It counts all micro-batches.
func (d *Judgement) KernelLoad(ctx context.Context) (steptime.Load, error) {
	l := d.Loops[0]
	t := l.Steps.ReplayTrial(step.ReplayOptions{})
	if l.Setup.Case().Accumulate > step.MaxMicroBatches { // which the replays of memory record in part
		t = l.Setup.Trial(d.judge.GPU, d.Batch)
	}
	t.Replay, t.Timed = step.ReplayOptions{
		OmitUnperturbedRun: true, NominalMemory: true,
		TrainingOnly: true,
	}, []device.GPU{d.judge.GPU}
	r, err := l.Setup.Try(ctx, t)
	if err != nil {
		return steptime.Load{}, err
	}
	if l.Setup.Case().Accumulate <= step.MaxMicroBatches {
		l.Steps.AdoptRecording(r)
	}
	return r.Loads[0], nil
}
