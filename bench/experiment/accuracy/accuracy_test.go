package accuracy

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/tools/steptest"
	"github.com/vprof/vprof/tools/toy"
)

// scripted answers with prepared outcomes and counts recordings.
type scripted struct {
	outcome  func(c models.Case, conf string) (Outcome, error)
	refuse   error
	recorded chan models.Case
}

type scriptedRecording struct {
	s *scripted
	c models.Case
}

func (s *scripted) Record(c models.Case, _ models.Description, _ device.GPU, _ int) (Replayable, error) {
	if s.recorded != nil {
		s.recorded <- c
	}
	if s.refuse != nil {
		return nil, s.refuse
	}
	return scriptedRecording{s, c}, nil
}

func (r scriptedRecording) Replay(_ context.Context, conf string) (Outcome, error) {
	return r.s.outcome(r.c, conf)
}

// toyRecord returns an OK record with one phase, of the given peaks.
func toyRecord(allocated, reserved int64) reference.Record {
	return reference.Record{
		File: "toy.jsonl", Line: 2, Case: models.Case{Model: "toy", Stage: "full", Batch: 8, Accumulate: 1}, GPU: "t4",
		Status:        reference.StatusOK,
		PeakAllocated: allocated, PeakReserved: reserved,
		Phases: []reference.Phase{{Step: 0, Name: "forward", MaxAllocated: allocated, MaxReserved: reserved}},
	}
}

func toyOutcome(allocated, reserved int64) Outcome {
	return Outcome{
		Allocated: allocated, Reserved: reserved,
		Phases: []reference.Phase{{Step: 0, Name: "forward", MaxAllocated: allocated, MaxReserved: reserved}},
	}
}

func compareOne(t *testing.T, rec reference.Record, o Outcome) report.AccuracyRow {
	t.Helper()
	s := &scripted{outcome: func(models.Case, string) (Outcome, error) { return o, nil }}
	a, err := Compare(t.Context(), []reference.Record{rec}, s, nil)
	require.NoError(t, err)
	require.Len(t, a.Rows, 1)
	return a.Rows[0]
}

func TestErrorIsRelativeToTheReference(t *testing.T) {
	row := compareOne(t, toyRecord(100*steptest.MiB, 200*steptest.MiB), toyOutcome(90*steptest.MiB, 250*steptest.MiB))
	require.Equal(t, &report.RelativeError{Allocated: -0.1, Reserved: 0.25}, row.Error)
	require.Equal(t, report.RelativeError{Allocated: -0.1, Reserved: 0.25}, row.Phases[0].Error)
}

func TestNegligibleDifferencesCountAsZero(t *testing.T) {
	large := toyRecord(1000*steptest.MiB, 2000*steptest.MiB)
	row := compareOne(t, large, toyOutcome(1004*steptest.MiB-1, 1980*steptest.MiB+1))
	require.Equal(t, &report.RelativeError{}, row.Error)
	row = compareOne(t, large, toyOutcome(1004*steptest.MiB, 1980*steptest.MiB))
	require.Equal(t, &report.RelativeError{Allocated: 0.004, Reserved: -0.01}, row.Error)
}

// Of a small step a few MiB are much.
func TestDifferencesAreNegligibleForTheirStep(t *testing.T) {
	row := compareOne(t, toyRecord(100*steptest.MiB, 200*steptest.MiB), toyOutcome(103*steptest.MiB, 194*steptest.MiB))
	require.Equal(t, &report.RelativeError{Allocated: 0.03, Reserved: -0.03}, row.Error)
	row = compareOne(t, toyRecord(100*steptest.MiB, 200*steptest.MiB), toyOutcome(101*steptest.MiB, 199*steptest.MiB))
	require.Equal(t, &report.RelativeError{}, row.Error)
}

func TestOOMRecordHasAVerdictButNoError(t *testing.T) {
	rec := toyRecord(100*steptest.MiB, 200*steptest.MiB)
	rec.Status = reference.StatusOOM
	row := compareOne(t, rec, Outcome{OOM: true, Allocated: 50 * steptest.MiB, Reserved: 60 * steptest.MiB})
	require.Nil(t, row.Error)
	require.Equal(t, report.AccuracySide{
		OOM: true, Allocated: 50 * steptest.MiB,
		Reserved: 60 * steptest.MiB,
	}, row.Estimate)
	require.True(t, row.Reference.OOM)
}

func TestRecordsOfOneCaseShareARecording(t *testing.T) {
	plain, expandable, other := toyRecord(1, 1), toyRecord(1, 1), toyRecord(1, 1)
	expandable.AllocConf = "expandable_segments:True"
	other.Batch = 16
	s := &scripted{
		recorded: make(chan models.Case, 3),
		outcome: func(_ models.Case, conf string) (Outcome, error) {
			return toyOutcome(int64(len(conf)), 0), nil
		},
	}
	var done []int
	a, err := Compare(t.Context(), []reference.Record{plain, other, expandable}, s, func(_ string, n, _ int) {
		done = append(done, n)
	})
	require.NoError(t, err)
	require.Len(t, s.recorded, 2)
	require.Equal(t, 3, done[len(done)-1])
	require.EqualValues(t, 0, a.Rows[0].Estimate.Allocated)
	require.EqualValues(t, len("expandable_segments:True"), a.Rows[2].Estimate.Allocated)
}

func TestUnknownRecordsAreListedWithTheReason(t *testing.T) {
	rec, onGPU := toyRecord(1, 1), toyRecord(1, 1)
	onGPU.GPU = "voodoo-2"
	s := &scripted{refuse: errors.New("unknown model")}
	a, err := Compare(t.Context(), []reference.Record{rec, onGPU}, s, nil)
	require.NoError(t, err)
	require.Empty(t, a.Rows)
	require.Equal(t, 2, a.Summary.Unknown)
	require.Equal(t, "unknown model", a.Unknown[0].Reason)
	require.Contains(t, a.Unknown[1].Reason, `unknown GPU "voodoo-2"`)
}

func TestRefusalIsRightIfItGivesPyTorchsReason(t *testing.T) {
	rec := toyRecord(1, 1)
	rec.Status, rec.Error, rec.Phases = reference.StatusError,
		"ValueError: Expected more than 1 value per channel when training", nil
	for said, want := range map[string]report.Verdicts{
		"head.norm: Expected more than 1 value per channel when training": {Right: 1},
		"batch too small": {Wrong: 1},
	} {
		s := &scripted{refuse: &step.RefusedError{Err: errors.New(said)}}
		a, err := Compare(t.Context(), []reference.Record{rec}, s, nil)
		require.NoError(t, err)
		require.Equal(t, want, a.Summary.Refusals)
		require.Zero(t, a.Summary.Unknown)
	}
	s := &scripted{outcome: func(models.Case, string) (Outcome, error) { return toyOutcome(1, 1), nil }}
	a, err := Compare(t.Context(), []reference.Record{rec}, s, nil)
	require.NoError(t, err)
	require.Equal(t, report.Verdicts{Wrong: 1}, a.Summary.Refusals, "running what PyTorch refuses is wrong")
}

func TestPhasesAreComparedOnlyIfTheyAreTheSame(t *testing.T) {
	rec := toyRecord(100*steptest.MiB, 100*steptest.MiB)
	o := toyOutcome(100*steptest.MiB, 100*steptest.MiB)
	o.Phases = append(o.Phases, reference.Phase{Step: 1, Name: "forward"}) // a step the record does not show
	require.Len(t, compareOne(t, rec, o).Phases, 1)
	o.Phases[0].Name = "loss"
	row := compareOne(t, rec, o)
	require.Empty(t, row.Phases)
	require.True(t, row.PhasesDiffer)
}

func TestInterruptedComparisonEndsWithTheContextsError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &scripted{outcome: func(models.Case, string) (Outcome, error) { return Outcome{}, nil }}
	_, err := Compare(ctx, []reference.Record{toyRecord(1, 1)}, s, nil)
	require.ErrorIs(t, err, context.Canceled)
}

// Errors 0 %, 1 %, ..., 19 % too low: median 9 % (rank 10 of 20), p95 18 %
// (rank 19), mean -9.5 %; those above 5 % are 14 of 20.
func TestSummaryDescribesTheErrors(t *testing.T) {
	var records []reference.Record
	for i := range 20 {
		rec := toyRecord(1000*steptest.MiB, 10_000*steptest.MiB)
		rec.Batch = i + 1
		rec.Stage = fmt.Sprintf("stage-%d", i%2)
		records = append(records, rec)
	}
	s := &scripted{outcome: func(c models.Case, _ string) (Outcome, error) {
		return toyOutcome(1000*steptest.MiB-10*steptest.MiB*int64(c.Batch-1), 10_000*steptest.MiB), nil
	}}
	a, err := Compare(t.Context(), records, s, nil)
	require.NoError(t, err)
	f := a.Summary.Allocated
	require.InDelta(t, 0.09, f.Median, 1e-9)
	require.InDelta(t, 0.17, f.P90, 1e-9)
	require.InDelta(t, 0.18, f.P95, 1e-9)
	require.InDelta(t, 0.19, f.Max, 1e-9)
	require.InDelta(t, -0.095, f.Mean, 1e-9)
	require.InDelta(t, 14.0/20, f.Underestimated, 1e-9)
	require.Zero(t, a.Summary.Reserved)
	require.Equal(t, report.Verdicts{Right: 20}, a.Summary.OOM)
	require.Len(t, a.Summary.ByStage, 2)
	require.Equal(t, 10, a.Summary.ByStage[0].Compared)
}

func TestRecorderTellsRefusalsFromUnknownCases(t *testing.T) {
	r := Recorder{models.NewRegistry([]models.Model{toy.Model()})}
	var refused *step.RefusedError
	_, err := r.Record(models.Case{Model: "toy", Batch: 1}, models.Description{}, steptest.Card(600), 3)
	require.ErrorAs(t, err, &refused)
	_, err = r.Record(models.Case{Model: "chair"}, models.Description{}, steptest.Card(600), 3)
	require.Error(t, err)
	require.False(t, errors.As(err, &refused))

	rec, err := r.Record(models.Case{Model: "toy", Batch: 8}, models.Description{}, steptest.Card(600), 3)
	require.NoError(t, err)
	o, err := rec.Replay(t.Context(), "")
	require.NoError(t, err)
	require.EqualValues(t, 184*steptest.MiB, o.Allocated)
	require.Equal(t, 2, o.Phases[len(o.Phases)-1].Step)
	_, err = rec.Replay(t.Context(), "nonsense")
	require.Error(t, err)
}
