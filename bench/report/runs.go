package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
)

// Runs are reports of one command that was run several times: on different boards, or as
// different ranks. As a table each is a row; in the other formats they are written one after
// the other, as [Several] is.
type Runs []*Report

// Document is the one report, or all of them.
func (r Runs) Document() Document {
	if len(r) == 1 {
		return r[0]
	}
	return r
}

// Lines implements [Document].
func (r Runs) Lines() []any { return Several(r).Lines() }

// Records implements [Document].
func (r Runs) Records() [][]string { return Several(r).Records() }

// Sheets is a table with a row for each run.
func (r Runs) Sheets() []Sheet {
	s := sheetIn(strings.Join(r[0].Script.Command, " "),
		"GPU | rank>? | peak {}: allocated> | peak {}: reserved> | peak {}: device> | at | result",
		largest(r, func(one *Report) int64 {
			if run := one.only(); run != nil {
				return run.Device
			}
			return 0
		}))
	ranks := slices.ContainsFunc(r, func(one *Report) bool { return one.Script.GPUs > 1 })
	for _, one := range r {
		rank, peaks := "", []string{"", "", "", ""}
		if ranks {
			rank = strconv.Itoa(one.Script.Rank)
		}
		if run := one.only(); run != nil {
			peaks = []string{
				s.unit.amount(run.Allocated), s.unit.amount(run.Reserved), s.unit.amount(run.Device), run.PeakPhase,
			}
		}
		s.Row(one.Devices[0].GPU+", "+one.Devices[0].run(), rank, peaks, one.Script.Result)
	}
	s.Notes = r.notes()
	return []Sheet{s.filled()}
}

// notes are what is to be said of the runs, each once, and how simulated and measured ones compare.
func (r Runs) notes() []string {
	var notes notes
	for _, one := range r {
		for _, note := range one.besides() {
			if !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
		}
	}
	for _, one := range r {
		if one.Script.Result != "fits" {
			notes.add("%s: %s", one.Devices[0].Name, one.Script.verdict(one))
		}
	}
	if len(r) == 2 && r[0].Devices[0].Simulated && !r[1].Devices[0].Simulated {
		if line := compared(r[0], r[1]); line != "" {
			notes = append(notes, line)
		}
	}
	return notes
}

// compared says in a line how far a simulated run was from a measured one, without a path or
// a name of the user's, so that it can be sent on; empty if one of them has no figures.
func compared(simulated, measured *Report) string {
	s, m := simulated.only(), measured.only()
	if s == nil || m == nil {
		return ""
	}
	parts := make([]string, 0, 3)
	for _, f := range []struct {
		name string
		s, m int64
	}{{"allocated", s.Allocated, m.Allocated}, {"reserved", s.Reserved, m.Reserved}, {"device", s.Device, m.Device}} {
		off := 100 * float64(f.s-f.m) / float64(max(f.m, 1))
		parts = append(parts, fmt.Sprintf("%s %s simulated, %s measured (%+.2f %%)",
			f.name, bytesize.Format(f.s), bytesize.Format(f.m), off))
	}
	return fmt.Sprintf("vprof %s, %s, PyTorch %s: %s",
		measured.Tool.Version, measured.Devices[0].Title, measured.Script.Torch, strings.Join(parts, "; "))
}

// only is the run of a report of one; nil if nothing trained.
func (r *Report) only() *Run {
	if len(r.Points) == 0 {
		return nil
	}
	return r.Points[0].Run
}
