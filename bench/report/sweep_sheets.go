package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
)

// sweepSheet returns a row for every batch size: the estimate and the run.
func (r *Report) sweepSheet() Sheet {
	word, title, own := "simulated", r.Case.String(), ">"
	if len(r.Points) > 0 && !slices.ContainsFunc(r.Points, func(p Point) bool { return p.Estimate != nil }) {
		title, own = r.Case.Model, ">?" // a command, which has a precision of its own, and no estimates
	}
	if len(r.Devices) > 0 {
		word = r.Devices[0].Kind()
		title += "; " + r.Devices[0].String()
	}
	replayed := word
	if word == measured {
		replayed = "replayed" // by the allocator of vprof's own, whatever the GPU did
	}
	s := sheetIn(title, "batch> | estimate {}: allocated"+own+"-5 | estimate {}: reserved"+own+"-4 | "+
		"estimate {}: device"+own+" | "+
		"estimate {}: streamed>?-1 | "+replayed+" {}: allocated>-5 | "+replayed+" {}: reserved>-4 | "+
		word+" {}: device> | guide {}>?-2 | error>?-2 | "+r.stepTimeColumn()+own+"-3 | "+
		r.Case.BatchUnit+"s/s"+r.speedMark()+own+"-3 | peak in-2 | fits", largest(r.Points, Point.highestBytes))
	_, driven := r.realDevice()
	for _, p := range r.Points {
		wrong := "-"
		if driven { // on a simulated GPU the run is what the estimate was made of
			wrong = errorCell(p)
		}
		s.Row(p.Batch, estimateCells(p.Estimate, s.unit), streamedCell(p, s.unit), runCells(p.Run, s.unit),
			p.claim(s.unit), wrong, timeCells(p.Run), peakCell(p), r.fitsCell(p))
	}
	s.Rows = r.refusedRows(s.Rows, len(s.Columns))
	s.Bars, s.Answer = r.bars(), r.sweepAnswer(word)
	s.Notes = append(r.findingNotes(word), r.notes()...)
	return s.withoutEmptyColumns()
}

// highestBytes returns the largest number of device bytes, which determines the unit of the columns.
func (p Point) highestBytes() (most int64) {
	if p.Estimate != nil {
		most = p.Estimate.Device.High
	}
	if p.Run != nil {
		most = max(most, p.Run.Device)
	}
	return most
}

// refusedRows inserts a row for each refused batch size in the order of sizes.
func (r *Report) refusedRows(rows [][]string, columns int) [][]string {
	for _, refused := range r.Refused {
		row := slices.Repeat([]string{"-"}, columns)
		row[0], row[columns-1] = strconv.Itoa(refused.Batch), "refused"
		at := slices.IndexFunc(r.Points, func(p Point) bool { return p.Batch > refused.Batch })
		before := slices.IndexFunc(rows, func(other []string) bool {
			return at >= 0 && other[0] == strconv.Itoa(r.Points[at].Batch)
		})
		if before < 0 {
			before = len(rows)
		}
		rows = slices.Insert(rows, before, row)
	}
	return rows
}

func estimateCells(e *Estimate, c byteColumn) []string {
	if e == nil {
		return []string{"-", "-", "-"}
	}
	return []string{c.amount(e.Allocated.Bytes), c.amount(e.Reserved.Bytes), c.interval(e.Device)}
}

func runCells(u *Run, c byteColumn) []string {
	switch {
	case u == nil:
		return []string{"-", "-", "-"}
	case !u.Fits:
		return []string{"OOM", "OOM", "OOM"}
	}
	return []string{c.amount(u.Allocated), c.amount(u.Reserved), c.amount(u.Device)}
}

// Error returns the relative error of the estimated device bytes compared with the run, without the kernels that
// replaced PyTorch's. It is false if the point has no estimate or run, or if the run freed cached memory: it then used
// less than on a GPU with enough memory, to which the estimate applies.
func (p Point) Error() (float64, bool) {
	if p.Estimate == nil || p.Run == nil || !p.Run.Fits || p.Run.Retries > 0 || p.Run.Device == 0 {
		return 0, false
	}
	needed := p.Run.Device - p.Run.Kernels
	expected := p.Estimate.Device.Bytes - component(p.Estimate, communication) // one GPU alone does not communicate
	return float64(expected-needed) / float64(needed), true
}

func errorCell(p Point) string {
	share, ok := p.Error()
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%+.1f %%", 100*share)
}

func timeCells(u *Run) []string {
	if u == nil || u.Step == nil {
		return []string{"-", "-"}
	}
	step := formatThreeDigits(1e3*u.Step.Seconds) + phrase.If(u.Step.Most > u.Step.Least, " (%s to %s)",
		formatThreeDigits(1e3*u.Step.Least), formatThreeDigits(1e3*u.Step.Most))
	return []string{step, formatThreeDigits(u.Step.SamplesPerSecond)}
}

// formatThreeDigits formats a nonnegative value with the precision of timings.
func formatThreeDigits(v float64) string {
	return strconv.FormatFloat(v, 'f', min(max(2-int(math.Floor(math.Log10(max(v, 1e-9)))), 0), 4), 64)
}

func peakCell(p Point) string {
	switch {
	case p.Run != nil && p.Run.OOM != nil:
		return p.Run.OOM.Phase
	case p.Run != nil:
		return p.Run.PeakPhase
	case p.Estimate != nil:
		return p.Estimate.PeakPhase
	}
	return "-"
}

func (r *Report) fitsCell(p Point) string {
	switch {
	case p.Run != nil:
		word := map[Verdict]string{Fits: "yes", DoesNotFit: "no"}[p.Verdict()]
		return cmp.Or(word, string(p.Verdict())) + phrase.If(p.Run.Shared, ", beside others") +
			phrase.If(word == "yes" && (p.Estimate != nil && !p.Estimate.isSafe() ||
				r.Largest != nil && r.Largest.Safe && p.Batch > r.Largest.Batch), ", not safe")
	case p.Estimate != nil:
		return p.Estimate.verdictText()
	}
	return "-"
}

func (r *Report) realDevice() (Device, bool) {
	return lists.First(r.Devices, func(d Device) bool { return d.CUDA != "" })
}

// IsBare reports whether Context was read from a driver. It then has no libraries of PyTorch.
func (d Device) IsBare() bool { return d.CUDA != "" || !d.Simulated }

// stepTimeColumn returns the head of the column of step times. On a real GPU they are times of synthetic kernels.
func (r *Report) stepTimeColumn() string {
	switch d, driven := r.realDevice(); {
	case driven && !d.Simulated:
		return "synthetic ms/step"
	case driven:
		return "ms/step"
	}
	return "ms/step ≥" // [Report.stepNote] reports why
}

// speedMark returns a mark for rates that the GPU does not exceed.
func (r *Report) speedMark() string {
	if _, driven := r.realDevice(); driven {
		return ""
	}
	return " ≤"
}

// Sweeps are reports that are written as one document: one table after the other, and CSV with the columns of all.
type Sweeps []*Report

// Sheets returns the tables of the report, for [Document].
func (s Sweeps) Sheets() []Sheet {
	var all []Sheet
	for _, r := range s {
		all = append(all, r.Sheets()...)
	}
	return all
}

// Data implements [Document]. Cells of columns that a report does not have are empty.
func (s Sweeps) Data() Data {
	var all Data
	var head []string
	parts := make([]Data, len(s))
	for i, r := range s {
		parts[i] = r.Data()
		all.Lines = append(all.Lines, parts[i].Lines...)
		head = lists.Union(head, parts[i].CSV[0]...)
	}
	all.CSV = [][]string{head}
	for _, part := range parts {
		for _, row := range part.CSV[1:] {
			wide := make([]string, len(head))
			for i, cell := range row {
				wide[slices.Index(head, part.CSV[0][i])] = cell
			}
			all.CSV = append(all.CSV, wide)
		}
	}
	return all
}
