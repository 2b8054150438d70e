package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/phrase"
)

// Data implements [Document]: the rows, then the unknown records, with a reason in the last column of CSV.
func (a *Accuracy) Data() Data {
	var rows [][]any
	for i := range a.Rows {
		r := &a.Rows[i]
		rows = append(rows, []any{r, extraValues{"amp": ampName(r.AMP), "reason": r.Estimate.Refused}})
	}
	for i := range a.Unknown {
		rows = append(rows, []any{&a.Unknown[i], extraValues{"amp": ampName(a.Unknown[i].AMP)}})
	}
	csv := Rows(`file line case stage batch amp checkpointing accumulate optimizer gpu alloc_conf torch
		reference_oom reference_allocated_bytes reference_reserved_bytes
		estimate_oom estimate_allocated_bytes estimate_reserved_bytes error_allocated error_reserved reason`, rows)
	return Data{append(AsLines(a.Rows), AsLines(a.Unknown)...), csv}
}

func percent(f float64) string { return fmt.Sprintf("%.2f%%", 100*f) }

// Sheets returns the summary, the errors by phase, the worst records, and the unknown ones.
func (a *Accuracy) Sheets() []Sheet {
	sheets := []Sheet{a.summarySheet()}
	if len(a.Rows) > 0 {
		sheets = append(sheets, a.phaseSheet(), a.worstSheet(10))
	}
	if len(a.Unknown) > 0 {
		sheets = append(sheets, a.unknownSheet())
	}
	return sheets
}

func (a *Accuracy) summarySheet() Sheet {
	s := Sheet{
		Title:   fmt.Sprintf("peaks of %d records against PyTorch", a.Summary.Compared),
		Columns: Columns(" | records> | " + errorColumns + " | OOM right>"),
		Totals:  1,
	}
	add := func(kind string, groups []AccuracyGroup) {
		for _, g := range groups {
			s.Row(kind+g.Name, errorCells(g.Compared, g.AccuracyErrors))
		}
	}
	add("", a.Summary.ByModel)
	add("amp ", a.Summary.ByAMP)
	add("stage ", a.Summary.ByStage)
	add("gpu ", a.Summary.ByGPU)
	if len(a.Summary.ByTorch) > 1 {
		add("PyTorch ", a.Summary.ByTorch)
	}
	s.Row("all", errorCells(a.Summary.Compared, a.Summary.AccuracyErrors))
	s.Notes.Add("median, p95 and max of the absolute relative error, mean with its sign; <-5%%: share of estimates " +
		"more than 5 %% too low.")
	s.Notes.Add("differences below 4 MiB allocated, or 20 MiB reserved, and 2 %% of the reference count as zero.")
	if r := a.Summary.Refusals; r.Right+r.Wrong > 0 {
		s.Notes.Add("PyTorch refuses a further %d; vprof refuses %d of them for the same reason.", r.Right+r.Wrong,
			r.Right)
	}
	if n := a.Summary.Unknown; n > 0 {
		s.Notes.Add("%d could not be estimated and are listed below.", n)
	}
	return s
}

const errorColumns = "allocated: median> | allocated: p90> | allocated: p95> | allocated: max> | allocated: mean> | " +
	"allocated: <-5%> | reserved: median> | reserved: p90> | reserved: p95> | reserved: max> | reserved: mean> | " +
	"reserved: <-5%>"

func errorCells(n int, f AccuracyErrors) []string {
	cells := []string{strconv.Itoa(n)}
	for _, e := range []ErrorStatistics{f.Allocated, f.Reserved} {
		cells = append(cells, percent(e.Median), percent(e.P90), percent(e.P95), percent(e.Max), percent(e.Mean),
			percent(e.Underestimated))
	}
	all := f.OOM.Right + f.OOM.Wrong
	return append(cells, cmp.Or(phrase.If(all > 0, "%d/%d", f.OOM.Right, all), "-"))
}

func (a *Accuracy) phaseSheet() Sheet {
	s := Sheet{Title: "peaks within phases", Columns: Columns("phase | phases> | " + errorColumns)}
	for _, g := range a.Summary.ByPhase {
		cells := errorCells(g.Compared, g.AccuracyErrors)
		s.Row(g.Name, cells[:len(cells)-1])
	}
	n := a.Summary.PhasesDiffer
	s.Notes.If(n > 0, "%d records ran other phases than the estimate.", n)
	return s
}

// worstSheet returns the n records with the largest errors, wrong OOM verdicts first.
func (a *Accuracy) worstSheet(n int) Sheet {
	rows := slices.DeleteFunc(slices.Clone(a.Rows), func(r AccuracyRow) bool { return severity(&r) == 0 })
	slices.SortStableFunc(rows, func(x, y AccuracyRow) int { return cmp.Compare(severity(&y), severity(&x)) })
	s := Sheet{Title: "furthest off", Columns: Columns("record | case | allocated: PyTorch> | allocated: estimate> | " +
		"allocated: error> | reserved: PyTorch> | reserved: estimate> | reserved: error>")}
	if len(rows) == 0 && len(a.Rows) > 0 {
		s.Notes = []string{"no record is off."}
	}
	for _, r := range rows[:min(n, len(rows))] {
		var errs [2]string
		if r.Error != nil {
			errs = [2]string{percent(r.Error.Allocated), percent(r.Error.Reserved)}
		}
		s.Row(fmt.Sprintf("%s:%d", r.File, r.Line), r.AccuracyCase,
			sideCell(r.Reference, r.Reference.Allocated), sideCell(r.Estimate, r.Estimate.Allocated), errs[0],
			sideCell(r.Reference, r.Reference.Reserved), sideCell(r.Estimate, r.Estimate.Reserved), errs[1])
	}
	return s
}

// severity returns the size of a row's errors, by which rows are sorted; zero is no error.
func severity(r *AccuracyRow) float64 {
	switch {
	case r.Reference.Refused != "" && !strings.Contains(r.Estimate.Refused, r.Reference.Refused):
		return math.Inf(1)
	case r.Reference.OOM != r.Estimate.OOM:
		return math.Inf(1)
	case r.Error == nil:
		return 0
	}
	return max(math.Abs(r.Error.Allocated), math.Abs(r.Error.Reserved))
}

func sideCell(s AccuracySide, bytes int64) string {
	switch {
	case s.Refused != "":
		return "refused"
	case s.OOM:
		return "OOM at " + bytesize.Format(bytes)
	}
	return bytesize.Format(bytes)
}

// String returns the case in a few words.
func (c AccuracyCase) String() string {
	words := phrase.List{c.Case, c.Stage, "b" + strconv.Itoa(c.Batch), ampName(c.AMP)}
	words.If(c.Checkpointing, "checkpointing")
	words.If(c.Accumulate > 1, "x%d", c.Accumulate)
	words.AddTexts(phrase.IfKnown("%s", c.Optimizer), c.AllocConf)
	return strings.Join(append(words, c.GPU, "PyTorch "+c.Torch), " ")
}

func (a *Accuracy) unknownSheet() Sheet {
	s := Sheet{Title: "unknown", Columns: Columns("record | case | reason")}
	for _, u := range a.Unknown {
		s.Row(fmt.Sprintf("%s:%d", u.File, u.Line), u.AccuracyCase, u.Reason)
	}
	return s
}
