// Package judge decides whether a batch of a case is safe on a GPU. All commands print parts of its judgements, and
// none judges by itself.
//
// A [Judge] replays the training steps of a batch, in each training loop that the case may have, and the evaluation
// after them. Each replay gives a memory need with an interval. A [Judgement] compares these needs with the budget. The
// search for the largest safe batch uses the same judge.
package judge

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/replay"
)

// A Judge decides which batches of a case are safe on a GPU: whether their need is within the budget at each point of
// training. It caches its results, and is safe for concurrent use.
type Judge struct {
	// Cases are the case, followed by all other cases in which the same batch must be safe: other stages of training or
	// of a curriculum, the longest sample. Their own batch sizes are ignored.
	Cases []*step.Setup
	GPU   device.GPU
	// Budget is complete, as [New] returns it. OtherProcessBytes is the memory of other processes, in bytes.
	Budget            planner.Budget
	OtherProcessBytes int64
	// Validation is the size of an evaluation batch; zero is the case's, else the project's, else the training's.
	Validation int
	// Device is the name of the device that the setups run on; empty to simulate the GPU.
	Device string
	// MemoryCap ends recordings above this many live bytes ([step.Trial.MemoryCap]); zero is no limit.
	MemoryCap int64

	mu         sync.Mutex
	judgements map[judgedKey]*Judgement
	// clearUpTo maps cases to the batch size up to which they are safe by [planner.ClearShare], without more replays.
	clearUpTo map[models.CaseKey]int
	// lastJudgement is the judgement whose recording is kept; nil if none is.
	lastJudgement *Judgement
	// nestedResults maps results without a memory limit to their replays with the GPU's own memory size.
	nestedResults map[*step.Result]*step.Result
}

// judgedKey is the key of a cached judgement.
type judgedKey struct {
	c     models.CaseKey
	batch int
}

// New returns the judge of a case on a GPU on which other processes use some memory. It sets the budget's Memory. The
// error reports that no memory is left.
func New(s *step.Setup, gpu device.GPU, b planner.Budget, others int64) (*Judge, error) {
	b, err := s.Budget(b, gpu, others)
	return &Judge{
		Cases: append([]*step.Setup{s}, s.PartSetups()...), GPU: gpu, Budget: b, OtherProcessBytes: others,
		judgements: map[judgedKey]*Judgement{}, clearUpTo: map[models.CaseKey]int{},
		nestedResults: map[*step.Result]*step.Result{},
	}, err
}

// Default returns a judge with the default budget, for commands without a budget flag. If other processes leave no
// memory on the GPU, no batch is safe.
func Default(s *step.Setup, gpu device.GPU, others int64) *Judge {
	j, _ := New(s, gpu, planner.Budget{Margin: planner.DefaultMargin}, others)
	return j
}

// JudgeBatch judges a batch of a case on a GPU with the default budget. The caller must end the judgement.
func JudgeBatch(ctx context.Context, s *step.Setup, gpu device.GPU, batch int) (*Judgement, error) {
	return Default(s, gpu, 0).try(ctx, s, batch, true)
}

// EarlyReports sends reports on a batch before its complete plan. The first has the need in the training loop that
// keeps the most memory alive, after a fraction of a judgement's time; its interval lacks the part from perturbed
// replays. If it has no verdict, a second report adds that part or, if other loops matter, has the judgement.
func EarlyReports(ctx context.Context, s *step.Setup, gpu device.GPU, batch int, send func(*report.Report)) error {
	j := Default(s, gpu, 0)
	defer j.FreeRecordings()
	d := &Judgement{judge: j, setup: s, Batch: batch}
	l, err := d.recordLoop(ctx, s.WithLargestLoop())
	if err != nil {
		return err
	}
	show := func(e *report.Estimate) (hasVerdict bool) {
		r := s.Report(report.Plan, gpu)
		r.Points = []report.Point{{Batch: batch, Device: step.SimName(gpu), Estimate: e}}
		send(r)
		return e.Verdict != ""
	}
	if show(d.clearEstimate(l, closeLoopShare)) {
		return nil
	}
	d.Loops = []*Loop{l}
	if err = d.addPerturbations(ctx, d.Loops); err != nil {
		return err
	}
	e := d.clearEstimate(l, otherLoopShare)
	if e.Verdict == "" {
		if d, err = j.JudgeBatch(ctx, batch); err == nil {
			e, err = d.Report(ctx)
		}
	}
	if err == nil {
		show(e)
	}
	return err
}

// clearEstimate returns the estimate of a loop. It has a verdict only if no other replay can change that: the need is
// below the share of memory at which all smaller batches are safe, or exceeds the memory as clearly.
func (d *Judgement) clearEstimate(l *Loop, share float64) *report.Estimate {
	e, b, safeShare := step.EstimateOf(l.Estimate), d.judge.Budget, share
	if d.Batch > 1 { // smaller batches must be safe, too
		safeShare *= planner.ClearShare
	}
	isSafe := float64(l.Need) <= safeShare*float64(b.Limit()) && !d.hasEvaluation() && d.setup.Case().AllocConf == ""
	e.Unsafe = report.Reason(d.judge.reasonOfEstimate(l.Estimate))
	if !isSafe && (e.Verdict != report.DoesNotFit || share*float64(l.Device.Low) <= float64(b.Memory)) {
		e.Verdict, e.Unsafe = "", ""
	}
	return e
}

// JudgeBatch returns the complete judgement of a batch of the case itself. The batch is also not safe if it is not safe
// in another of the cases, or if a smaller batch is not.
func (j *Judge) JudgeBatch(ctx context.Context, batch int) (*Judgement, error) {
	d, err := j.try(ctx, j.Cases[0], batch, true)
	if err != nil || d.Reason != "" {
		return d, err
	}
	safe, at, err := safeNear(j.search(ctx, planner.Start{}, batch), batch)
	switch {
	case err != nil || safe:
	case at < batch:
		d.Reason, d.DecidingMoment = planner.SmallerBatch, Decision{Moment: "a smaller batch", Batch: at}
	default:
		worst, err := j.WorstCase(ctx, j.Cases, at)
		if err != nil {
			return d, err
		}
		d.Reason, d.DecidingMoment = worst.Reason, worst.DecidingMoment
		if part := worst.setup.Part(); part != "" {
			d.DecidingMoment.Moment = "part " + part
		}
	}
	return d, err
}

// WorstCase returns the judgement of the case with the largest need at a batch, or of the first case that exceeds the
// limit. After the first case, it skips cases whose need at a larger batch is far below the limit.
func (j *Judge) WorstCase(ctx context.Context, cases []*step.Setup, batch int) (worst *Judgement, err error) {
	for i, s := range cases {
		if i > 0 && j.isClearlySafe(s, batch) {
			continue
		}
		d, err := j.Try(ctx, s, batch)
		if err != nil {
			return nil, err
		}
		if worst == nil || d.Need > worst.Need {
			worst = d
		}
		if worst.Need > j.Budget.Limit() {
			break
		}
	}
	return worst, nil
}

// isClearlySafe reports whether a larger batch needs so little that no smaller batch exceeds the limit.
func (j *Judge) isClearlySafe(s *step.Setup, batch int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return batch <= j.clearUpTo[s.Case().Key()]
}

// Need returns the largest need of a batch in any of the cases, in bytes; [math.MaxInt64] if the batch cannot train.
func (j *Judge) Need(ctx context.Context, batch int) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	worst, err := j.WorstCase(ctx, j.Cases, batch)
	if err != nil {
		return 0, err
	}
	return worst.Need, nil
}

// Largest returns the largest safe batch up to a limit; zero if there is none.
func (j *Judge) Largest(ctx context.Context, begin planner.Start, to int) (int, error) {
	return Largest(j.search(ctx, begin, to))
}

// LargestByEstimate returns the largest batch up to a limit whose estimate is within the budget; zero if there is none.
// It uses interpolated estimates in place of replays.
func (j *Judge) LargestByEstimate(estimate func(batch int) (planner.Estimate, error), begin planner.Start, to int,
) (int, error) {
	return Largest(&planner.BatchSearch{
		From: 1, Start: begin, To: to, Limit: j.Budget.Limit(), Need: func(batch int) (int64, error) {
			e, err := estimate(batch)
			return j.Budget.Need(e), err
		},
	})
}

// search returns the search for the largest safe batch.
func (j *Judge) search(ctx context.Context, begin planner.Start, to int) *planner.BatchSearch {
	return &planner.BatchSearch{
		From: 1, Start: begin, To: to, Limit: j.Budget.Limit(), HasJumps: j.Cases[0].HasReservedJumps(),
		NeedIsSlow: j.Device != "",
		Need:       func(batch int) (int64, error) { return j.Need(ctx, batch) },
	}
}

// Try judges a batch of one of the cases as precisely as a search needs. If a need exceeds the limit, its interval may
// lack the perturbed replays; Complete adds them.
func (j *Judge) Try(ctx context.Context, s *step.Setup, batch int) (*Judgement, error) {
	return j.try(ctx, s, batch, false)
}

// try judges a batch of one of the cases; whole requests the complete judgement.
func (j *Judge) try(ctx context.Context, s *step.Setup, batch int, whole bool) (d *Judgement, err error) {
	key := judgedKey{s.Case().Key(), batch}
	j.mu.Lock()
	known := j.judgements[key]
	j.mu.Unlock()
	if d = known; d == nil {
		d = &Judgement{judge: j, setup: s, Batch: batch}
		err = d.judgeTraining(ctx)
	}
	if err == nil && whole {
		err = d.Complete(ctx)
	}
	if err != nil || known != nil {
		return d, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.judgements[key] = d
	if float64(d.Need) <= planner.ClearShare*float64(j.Budget.Limit()) && !s.HasReservedJumps() {
		j.clearUpTo[key.c] = max(j.clearUpTo[key.c], batch)
	}
	if whole || !d.isOverBudget() {
		j.remember(d)
	} else {
		d.discard()
	}
	return d, nil
}

// remember keeps the recordings of this judgement and frees the previous ones, since recordings are large. Most
// searches end with the largest batch of a case within the budget.
func (j *Judge) remember(d *Judgement) {
	spare := j.lastJudgement
	if spare != nil && d != nil && spare.Batch > d.Batch && spare.setup.Case().Key() == d.setup.Case().Key() {
		spare, d = d, spare
	}
	if spare != nil && spare != d {
		spare.discard()
	}
	j.lastJudgement = d
}

// FreeRecordings frees the recordings that the judge holds.
func (j *Judge) FreeRecordings() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.remember(nil)
}

// Estimate converts the memory usage at a point of a case's run to an estimate.
func (j *Judge) Estimate(s *step.Setup, r *step.Result, at replay.Usage) (planner.Estimate, error) {
	return s.WithOtherProcesses(j.OtherProcessBytes).EstimateAt(j.GPU, r, at)
}

// need returns an estimate's upper end, which must be within the limit; [math.MaxInt64] if it exceeds the host memory.
func (j *Judge) need(e planner.Estimate) int64 {
	if e.Host.Exceeds() {
		return math.MaxInt64
	}
	return j.Budget.Need(e)
}

// reasonOfEstimate returns the reason why an estimate is not safe; empty if it is safe.
func (j *Judge) reasonOfEstimate(e planner.Estimate) planner.Reason {
	if e.Host.Exceeds() {
		return planner.HostFull
	}
	return j.Budget.ReasonOf(e)
}

// reasonOfRun returns the reason why a run on the GPU is not safe; empty if it is safe.
func reasonOfRun(r *report.Run) planner.Reason {
	switch {
	case !r.Fits:
		return planner.OutOfMemory
	case r.HadRetries():
		return planner.FreesCache
	}
	return ""
}

// Safe reports whether a batch is safe. The search begins at one sample, or at two if batch norm refuses one.
func Safe(s *planner.BatchSearch, batch int) (bool, error) {
	safe, _, err := safeNear(s, batch)
	return safe, err
}

func safeNear(s *planner.BatchSearch, batch int) (safe bool, at int, err error) {
	safe, at, err = s.Safe(batch)
	if errors.As(err, new(*step.RefusedError)) && batch > 1 && s.From < 2 {
		s.From = 2
		return s.Safe(batch)
	}
	return safe, at, err
}

// Largest returns the largest safe batch of a search; zero if none is.
func Largest(s *planner.BatchSearch) (int, error) {
	largest, err := s.Largest()
	if errors.As(err, new(*step.RefusedError)) && s.To > 1 {
		s.From = 2
		return s.Largest()
	}
	return largest, err
}
