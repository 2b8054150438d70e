// Package accuracy compares estimates with what PyTorch needed: it replays the cases of reference records.
package accuracy

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/progress"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
)

// Smaller differences count as zero: no plan depends on so few bytes, and reserved bytes come in whole segments. They
// must also be less than a share of the reference, since they are a large part of a small step.
const (
	negligibleAllocated = 4 << 20
	negligibleReserved  = 20 << 20 // one segment of the large pool
	negligibleShare     = 0.02
)

// An Outcome is the result of replaying a case: peaks in bytes, as in a reference record.
type Outcome struct {
	OOM       bool
	Allocated int64
	Reserved  int64
	Phases    []reference.Phase
}

// A Replayer records cases and replays the recordings. Its methods may be called concurrently.
type Replayer interface {
	// Record records a case for a GPU. A [*step.RefusedError] means that PyTorch would not run it, any other error
	// that vprof does not know the case.
	Record(c models.Case, d models.Description, gpu device.GPU, steps int) (Replayable, error)
}

// Replayable is a recorded case that can be replayed under several allocator settings.
type Replayable interface {
	// Replay replays the recording under allocator settings.
	Replay(ctx context.Context, allocConf string) (Outcome, error)
}

// Compare estimates the memory of every record's case, on all cores, and returns the errors relative to PyTorch's
// measurement. Records of one case and GPU share a recording. progress is called with the number of finished records
// after each one; calls do not overlap.
func Compare(ctx context.Context, records []reference.Record, r Replayer,
	progress progress.Func,
) (*report.Accuracy, error) {
	results := make([]result, len(records))
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(runtime.GOMAXPROCS(0))
	done := progress.Counter("records", len(records))
	for _, group := range shareRecordings(records) {
		work.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			replayGroup(ctx, records, group, r, results)
			done(len(group))
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	return compareResults(records, results), nil
}

// result is the replayed outcome of one record, or the error of its recording or replay.
type result struct {
	outcome Outcome
	err     error
}

// recordingKey is equal for records that can share a recording. It lacks allocator settings, which only affect replays.
type recordingKey struct {
	c     models.CaseKey
	gpu   string
	steps int
	// ascendingAddresses reports whether the driver returns ascending addresses. A recording has one GPU.
	ascendingAddresses bool
}

// shareRecordings groups the indices of records that can share a recording, in the order of their first records.
func shareRecordings(records []reference.Record) [][]int {
	return lists.Groups(lists.Ascending(len(records)), func(i int) recordingKey {
		c := records[i].Case
		c.AllocConf, c.ConfigHash = "", records[i].Description().Hash()
		return recordingKey{c.Key(), records[i].GPU, stepsOf(&records[i]), records[i].Rising}
	})
}

// stepsOf returns the number of steps to record so that a replay is comparable with all records of a case. An OOM
// record has fewer steps, because PyTorch stopped.
func stepsOf(r *reference.Record) int {
	if r.Status == reference.StatusOK {
		return r.Steps()
	}
	return max(3, r.Steps())
}

func replayGroup(ctx context.Context, records []reference.Record, group []int, r Replayer, results []result) {
	first := &records[group[0]]
	fail := func(err error) {
		for _, i := range group {
			results[i].err = err
		}
	}
	gpu, err := device.Lookup(first.GPU)
	if err != nil {
		fail(err)
		return
	}
	gpu.Rising = first.Rising
	recording, err := r.Record(first.Case, first.Description(), gpu, stepsOf(first))
	if err != nil {
		fail(err)
		return
	}
	for _, i := range group {
		results[i].outcome, results[i].err = recording.Replay(ctx, records[i].AllocConf)
	}
}

// compareResults returns the rows of the report, each comparing a record with its result.
func compareResults(records []reference.Record, results []result) *report.Accuracy {
	a := &report.Accuracy{
		Schema: report.AccuracySchema, Rows: []report.AccuracyRow{},
		Unknown: []report.UnknownRecord{},
	}
	for i := range records {
		rec, res := &records[i], &results[i]
		row := rowOf(rec)
		var refused *step.RefusedError
		switch {
		case errors.As(res.err, &refused) && rec.Status == reference.StatusError:
			row.Estimate.Refused = refused.Error()
		case res.err != nil:
			a.Unknown = append(a.Unknown, report.UnknownRecord{AccuracyCase: row.AccuracyCase, Reason: res.err.Error()})
			continue
		default:
			fillEstimate(&row, rec, &res.outcome)
		}
		a.Rows = append(a.Rows, row)
	}
	a.Summarize()
	return a
}

func rowOf(rec *reference.Record) report.AccuracyRow {
	row := report.AccuracyRow{
		AccuracyCase: report.AccuracyCase{
			File: rec.File, Line: rec.Line, Case: rec.Model, Stage: rec.Stage, Batch: rec.Batch,
			AMP:           nonEmpty(string(rec.AMP)),
			Checkpointing: rec.Checkpointing, Accumulate: rec.Accumulate, Optimizer: nonEmpty(rec.Optimizer),
			GPU: rec.GPU, AllocConf: rec.AllocConf, Torch: rec.ReleaseName(),
		},
		Reference: report.AccuracySide{
			OOM: rec.Status == reference.StatusOOM, Allocated: rec.PeakAllocated, Reserved: rec.PeakReserved,
		},
	}
	if rec.Status == reference.StatusError {
		row.Reference.Refused = oomReason(rec.Error)
	}
	return row
}

// oomReason returns PyTorch's message of an OutOfMemoryError without the exception's name.
func oomReason(raised string) string {
	if name, rest, ok := strings.Cut(raised, ": "); ok && !strings.Contains(name, " ") {
		return rest
	}
	return raised
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// fillEstimate adds the outcome of the replay to a row. Bytes are compared only if PyTorch finished: the bytes of an
// OOM record are those before the failure, not the need.
func fillEstimate(row *report.AccuracyRow, rec *reference.Record, o *Outcome) {
	row.Estimate.OOM, row.Estimate.Allocated, row.Estimate.Reserved = o.OOM, o.Allocated, o.Reserved
	if rec.Status != reference.StatusOK {
		return
	}
	row.Error = compare(o.Allocated, rec.PeakAllocated, o.Reserved, rec.PeakReserved)
	if o.OOM {
		return
	}
	ours := samePhases(rec.Phases, o.Phases)
	if ours == nil {
		row.PhasesDiffer = true
		return
	}
	for i, ref := range rec.Phases {
		row.Phases = append(row.Phases, report.AccuracyPhase{
			Step: ref.Step + 1, Name: ref.Name,
			Reference: report.PhaseBytes{Allocated: ref.MaxAllocated, Reserved: ref.MaxReserved},
			Estimate:  report.PhaseBytes{Allocated: ours[i].MaxAllocated, Reserved: ours[i].MaxReserved},
			Error:     *compare(ours[i].MaxAllocated, ref.MaxAllocated, ours[i].MaxReserved, ref.MaxReserved),
		})
	}
}

// compare returns the relative errors of an estimate, negative where it is too low.
func compare(allocated, refAllocated, reserved, refReserved int64) *report.RelativeError {
	return &report.RelativeError{
		Allocated: relativeError(allocated, refAllocated, negligibleAllocated),
		Reserved:  relativeError(reserved, refReserved, negligibleReserved),
	}
}

func relativeError(estimate, reference, negligible int64) float64 {
	diff := estimate - reference
	share := float64(diff) / float64(max(1, reference))
	if max(diff, -diff) < negligible && math.Abs(share) < negligibleShare {
		return 0
	}
	return share
}

// samePhases returns the replay's phases if their names and order match the reference's steps; else nil.
func samePhases(ref, ours []reference.Phase) []reference.Phase {
	steps := map[int]bool{}
	for _, p := range ref {
		steps[p.Step] = true
	}
	ours = slices.DeleteFunc(slices.Clone(ours), func(p reference.Phase) bool { return !steps[p.Step] })
	same := slices.EqualFunc(ref, ours, func(a, b reference.Phase) bool { return a.Step == b.Step && a.Name == b.Name })
	if !same {
		return nil
	}
	return ours
}
