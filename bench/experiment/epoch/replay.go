package epoch

import (
	"context"
	"errors"
	"slices"

	"gonum.org/v1/gonum/mathext"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device/sim"
	"github.com/vprof/vprof/profiler/replay"
)

// An outcome is the result of replaying one epoch.
type outcome struct {
	// reserved holds the peak of reserved bytes up to each milestone that the epoch reached; peak is the epoch's peak.
	reserved []int64
	peak     int64
	// retries counts how often cached memory was freed. oomStep is the step that ran out of memory, counted from one,
	// and oomLength the length of its batches; zero if none did.
	retries   int64
	oomStep   int
	oomLength int64
}

// exceeds reports whether memory ran out, cached memory was freed, or more than bytes were reserved; zero is no limit.
func (o outcome) exceeds(bytes int64) bool {
	return bytes > 0 && (o.oomStep > 0 || o.retries > 0 || o.peak > bytes)
}

// errMemoryLimit ends the replays after an epoch that exceeds [Options.MemoryLimit].
var errMemoryLimit = errors.New("an epoch needs more memory than its limit")

// milestones returns the steps after which the growth of memory is reported: 1, 10, 100 and so on, and the last.
func milestones(steps int) []int {
	var at []int
	for n := 1; n < steps; n *= 10 {
		at = append(at, n)
	}
	return append(at, steps)
}

// replayEpochs replays all epochs under allocator settings, and summarizes them.
func (e *epochRun) replayEpochs(ctx context.Context, conf allocator.Config) (report.Epochs, error) {
	outcomes := make([]outcome, len(e.plans))
	err := progress.Each(ctx, e.options.Progress, "epochs", e.plans,
		func(ctx context.Context, i int, p epochPlan) (err error) {
			outcomes[i], err = e.replayEpoch(ctx, conf, p.lengths)
			if err == nil && outcomes[i].exceeds(e.options.MemoryLimit) {
				return errMemoryLimit
			}
			return err
		})
	if err != nil && !errors.Is(err, errMemoryLimit) {
		return report.Epochs{}, err
	}
	all := summarizeEpochs(outcomes, milestones(e.stepCount(len(e.plans[0].lengths))))
	if e.lengths.Batching == Packed { // nothing is left to chance
		all.Low, all.High = float64(all.OutOfMemory), float64(all.OutOfMemory)
	}
	return all, nil
}

// stepCount returns the number of optimizer steps for a number of batches (micro-batches).
func (e *epochRun) stepCount(batches int) int { return ceil.Div(batches, e.microBatches) }

// replayEpoch replays the steps of an epoch with a new allocator.
func (e *epochRun) replayEpoch(ctx context.Context, conf allocator.Config, lengths []int64) (o outcome, err error) {
	simulated, err := sim.New(e.gpu, e.options.OtherProcessBytes)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, simulated.Close()) }()
	loop, err := replay.NewLoop(replay.Options{Config: &conf, Source: simulated})
	if err != nil {
		return o, err
	}
	at := milestones(e.stepCount(len(lengths)))
	for n := 1; len(lengths) > 0; n++ {
		batches := lengths[:min(e.microBatches, len(lengths))]
		lengths = lengths[len(batches):]
		steps := lists.Map(batches, func(length int64) *replay.ReplayableSteps { return e.recorded[length] })
		err := loop.Step(ctx, steps...)
		stats := loop.Stats()
		o.peak, o.retries = stats.ReservedBytes[allocator.AllPools].Peak, stats.NumAllocRetries
		switch {
		case errors.As(err, new(*allocator.OOMError)):
			o.oomStep, o.oomLength = n, slices.Max(batches)
			return o, nil
		case err != nil:
			return o, err
		case o.exceeds(e.options.MemoryLimit):
			return o, nil
		case len(at) > 0 && n == at[0]:
			o.reserved, at = append(o.reserved, o.peak), at[1:]
		}
	}
	return o, nil
}

func summarizeEpochs(outcomes []outcome, at []int) report.Epochs {
	e := report.Epochs{Count: len(outcomes)}
	var steps []int
	for _, o := range outcomes {
		e.Most = max(e.Most, o.peak)
		switch {
		case o.oomStep > 0:
			e.OutOfMemory++
			steps = append(steps, o.oomStep)
			if e.ShortestOOM == 0 || o.oomLength < e.ShortestOOM {
				e.ShortestOOM = o.oomLength
			}
		case o.retries > 0:
			e.Slow++
		}
	}
	if len(steps) > 0 {
		slices.Sort(steps)
		e.FirstOOM, e.MedianOOM = steps[0], steps[len(steps)/2]
	}
	e.Low, e.High = clopperPearson(e.OutOfMemory, e.Count)
	for i, step := range at {
		var reserved []int64
		for _, o := range outcomes {
			if i < len(o.reserved) {
				reserved = append(reserved, o.reserved[i])
			}
		}
		if len(reserved) == 0 {
			break
		}
		slices.Sort(reserved)
		e.Reserved = append(e.Reserved, report.ReservedBy{
			Step: step, Epochs: len(reserved),
			Median: reserved[len(reserved)/2], Most: reserved[len(reserved)-1],
		})
	}
	return e
}

// clopperPearson returns the exact 95 % confidence interval of a probability after k successes in n trials.
func clopperPearson(k, n int) (low, high float64) {
	low, high = 0, 1
	if k > 0 {
		low = mathext.InvRegIncBeta(float64(k), float64(n-k+1), 0.025)
	}
	if k < n {
		high = mathext.InvRegIncBeta(float64(k+1), float64(n-k), 0.975)
	}
	return low, high
}
