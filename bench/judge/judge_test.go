package judge_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/tools/steptest"
)

// counting is an executor that counts the trials it is given.
type counting struct {
	step.Local
	trials *int
}

func (c counting) Try(ctx context.Context, t step.Trial) (*step.Result, error) {
	*c.trials++
	return c.Local.Try(ctx, t)
}

// setup returns the setup of a case of a listed model, without residuals.
func setup(t *testing.T, model string, c models.Case) *step.Setup {
	m, err := all.Models().Lookup(model)
	require.NoError(t, err)
	s, err := step.New(m, c, steptest.Exact())
	require.NoError(t, err)
	return s
}

func TestABatchIsJudgedOnce(t *testing.T) {
	gpu := steptest.GPUs(t, "rtx-4090")[0]
	m, err := all.Models().Lookup("resnet18")
	require.NoError(t, err)
	trials := 0
	evidence := steptest.Exact()
	evidence.Trials = counting{trials: &trials}
	s, err := step.New(m, m.Default, evidence)
	require.NoError(t, err)
	j := judge.Default(s, gpu, 0)
	first, err := j.JudgeBatch(t.Context(), 8)
	require.NoError(t, err)
	once := trials
	j.FreeRecordings()
	again, err := j.JudgeBatch(t.Context(), 8)
	require.NoError(t, err)
	require.Same(t, first, again)
	require.Equal(t, once, trials)
}

// Early verdicts agree with the judgement. Far from the limit they take fewer trials: one, or two with perturbed
// replays.
func TestAnEarlyVerdictHolds(t *testing.T) {
	gpu := steptest.GPUs(t, "rtx-4090")[0]
	trials := 0
	m, err := all.Models().Lookup("gpt2")
	require.NoError(t, err)
	evidence := steptest.Exact()
	evidence.Trials = counting{trials: &trials}
	s, err := step.New(m, models.Case{Settings: models.Settings{"layers": 2}}, evidence)
	require.NoError(t, err)
	for batch, want := range map[int]int{1: 1, 4: 1, 7: 2, 10: 3, 16: 3, 24: 3, 28: 2, 36: 1, 64: 1} {
		var reports []*report.Estimate
		trials = 0
		require.NoError(t, judge.EarlyReports(t.Context(), s, gpu, batch, func(r *report.Report) {
			reports = append(reports, r.Points[0].Estimate)
		}))
		require.Equal(t, want, min(trials, 3), "batch %d", batch)
		require.Len(t, reports, min(want, 2))
		early := reports[len(reports)-1]
		d, err := judge.JudgeBatch(t.Context(), s, gpu, batch)
		require.NoError(t, err)
		e, err := d.Report(t.Context())
		require.NoError(t, err)
		require.Equal(t, e.Components, early.Components)
		require.Equal(t, e.Device.Bytes, early.Device.Bytes)
		require.Equal(t, e.Verdict, early.Verdict)
		require.Equal(t, e.Unsafe, early.Unsafe)
		if len(reports) > 1 {
			require.Empty(t, reports[0].Verdict)
		}
	}
	// Nothing is smaller than a batch of one, which may be nearer the limit.
	for batch, want := range map[int]int{1: 2, 2: 3} {
		d, err := judge.JudgeBatch(t.Context(), s, gpu, batch)
		require.NoError(t, err)
		small := gpu
		small.Memory = d.Need * 7 / 5
		trials = 0
		require.NoError(t, judge.EarlyReports(t.Context(), s, small, batch, func(*report.Report) {}))
		require.Equal(t, want, min(trials, 3), "batch %d", batch)
	}
}

// The loop that needs more is judged, whichever that is.
func TestTheLoopThatNeedsMostIsJudged(t *testing.T) {
	gpu := steptest.GPUs(t, "rtx-4090")[0]
	for _, model := range []string{"gpt2", "llama-tiny", "whisper-tiny"} {
		d, err := judge.JudgeBatch(t.Context(), setup(t, model, models.Case{Batch: 4}), gpu, 4)
		require.NoError(t, err)
		require.Len(t, d.Loops, 2, model)
		for _, l := range d.Loops {
			require.LessOrEqual(t, l.Need, d.Need, "%s, loop %s", model, l.Name)
			c := models.Case{Batch: 4}
			c.Loop = l.Name
			alone, err := judge.JudgeBatch(t.Context(), setup(t, model, c), gpu, 4)
			require.NoError(t, err)
			require.Len(t, alone.Loops, 1)
			require.Equal(t, alone.Loops[0].Allocated.Value, l.Allocated.Value)
		}
		e, err := d.Report(t.Context())
		require.NoError(t, err)
		require.Equal(t, d.Loops[0].Name, e.Loop)
		require.Equal(t, d.Loops[1].Name, e.OtherLoop.Loop)
		require.Equal(t, d.Loops[0].Device.Value, e.Device.Bytes)
	}
}

// An evaluation that nobody asked for is no reason, and is said where it would not be safe. One that was asked for
// decides, and none is left out.
func TestOnlyAnEvaluationThatWasAskedForDecides(t *testing.T) {
	gpu := steptest.GPUs(t, "rtx-4090")[0]
	of := func(evaluation string) (*judge.Judgement, *judge.Judge) {
		c := models.Case{Checkpointing: true}
		c.Loop = models.LoopTrainer
		if evaluation != "" {
			var err error
			c.Evaluate, err = models.ParseEvaluation(evaluation)
			require.NoError(t, err)
		}
		s := setup(t, "llama-tiny", c)
		j, err := judge.New(s, gpu, planner.Budget{Margin: .25}, 0)
		require.NoError(t, err)
		d, err := j.JudgeBatch(t.Context(), 8)
		require.NoError(t, err)
		return d, j
	}
	asked, j := of("batch=64")
	require.Equal(t, planner.OverMemoryShare, asked.Reason)
	require.Equal(t, "evaluation", asked.DecidingMoment.Moment)
	require.Equal(t, 64, asked.DecidingMoment.Batch)
	require.Greater(t, asked.DecidingMoment.Need, j.Budget.Limit())
	e, err := asked.Report(t.Context())
	require.NoError(t, err)
	require.True(t, e.Evaluation.Judged)
	none, _ := of("none")
	require.True(t, none.Safe())
	require.Nil(t, none.Evaluation)
	unasked, j := of("")
	require.True(t, unasked.Safe())
	require.False(t, unasked.Evaluation.Judged)
	require.LessOrEqual(t, unasked.Need, j.Budget.Limit())
}

// Epochs that run out of memory decide, although the longest batch alone would get through slowly.
func TestAnEpochThatRunsOutOfMemoryDecides(t *testing.T) {
	gpu := steptest.GPUs(t, "rtx-4090")[0]
	j := judge.Default(setup(t, "gpt2", models.Case{Settings: models.Settings{"layers": 2}}), gpu, 0)
	for _, of := range []struct {
		verdict report.Verdict
		unsafe  report.Reason
		outOf   int
		want    report.Reason
	}{
		{report.Fits, "", 0, ""},
		{report.Fits, "", 3, "oom"},
		{report.Slow, "gives-back", 3, "oom"},
		{report.Slow, "gives-back", 0, "gives-back"},
		{report.DoesNotFit, "gpu-full", 3, "gpu-full"},
	} {
		p := report.Point{Batch: 4, Estimate: &report.Estimate{Verdict: of.verdict, Unsafe: of.unsafe}}
		worst := &report.Estimate{Device: report.Interval{Bytes: 1}}
		j.ApplyEpochs(&report.Lengths{Worst: worst, Epochs: report.Epochs{Count: 20, OutOfMemory: of.outOf}}, &p)
		require.Equal(t, of.want, p.Estimate.Unsafe, "%+v", of)
	}
}
