package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/vprof/vprof/models"
)

// Ranks are plans of the ranks of one case that differ, the one that needs most first. As
// a table the ranks stand below each other; in the other formats their plans are written
// one after the other, as [Several] is.
type Ranks []RankPlan

// RankPlan is the plan of ranks that hold the same.
type RankPlan struct {
	models.RankRange
	Plan *Report `json:"plan"`
}

// Sort puts the ranks that need most at their largest batch first.
func (r Ranks) Sort() {
	need := func(p RankPlan) int64 { return p.Plan.Points[len(p.Plan.Points)-1].Estimate.Device.Bytes }
	slices.SortStableFunc(r, func(a, b RankPlan) int { return -cmp.Compare(need(a), need(b)) })
}

func (r Ranks) plans() Several {
	out := make(Several, len(r))
	for i, p := range r {
		out[i] = p.Plan
	}
	return out
}

// Lines implements [Document].
func (r Ranks) Lines() []any { return r.plans().Lines() }

// Records implements [Document].
func (r Ranks) Records() [][]string { return r.plans().Records() }

// Sheets has a table for each board.
func (r Ranks) Sheets() []Sheet {
	if len(r) == 0 {
		return nil
	}
	var sheets []Sheet
	for _, d := range r[0].Plan.Devices {
		part := make(Ranks, len(r))
		for i, p := range r {
			part[i] = RankPlan{p.RankRange, p.Plan.on(d)}
		}
		sheets = append(sheets, part.sheet())
	}
	return sheets
}

// sheet is the table of one board: of the components, those in which ranks differ.
func (r Ranks) sheet() Sheet {
	first := r[0].Plan
	c := first.Case
	strategy := *c.Strategy
	strategy.Rank = nil
	c.Strategy = &strategy
	s := sheetIn(fmt.Sprintf("%s; %s", c, first.Devices[0]), "batch> | {} of rank",
		largest(r, func(p RankPlan) int64 { return p.Plan.largestDevice() }))
	differ := r.differing()
	for _, name := range append(slices.Clone(differ), "allocated", "reserved", "device") {
		s.Columns = append(s.Columns, Column{Head: name, Right: true})
	}
	s.Columns = append(s.Columns, Column{Head: "verdict"})
	for at := range first.Points {
		batch := strconv.Itoa(first.Points[at].Batch)
		for _, p := range r {
			e := p.Plan.Points[at].Estimate
			var parts []string
			for _, name := range differ {
				parts = append(parts, s.unit.amount(component(e, name)))
			}
			s.Row(batch, p.RankRange, parts, e.Allocated.Bytes, e.Reserved.Bytes, e.Device.Bytes, e.Verdict)
			batch = ""
		}
	}
	s.Note("all that differ of %d ranks, the one that needs most first; components that are alike in all are left out.",
		c.GPUs)
	if strategy.Replicate > 1 {
		s.Note("each of %d replicas has such ranks.", strategy.Replicate)
	}
	s.Notes = slices.Concat(s.Notes, []string{first.communicationNote()}, warningNotes(first.Warnings))
	return s
}

// differing are the names of the components that are not alike in all ranks.
func (r Ranks) differing() []string {
	var names []string
	for at, point := range r[0].Plan.Points {
		for _, c := range point.Estimate.Components {
			differs := slices.ContainsFunc(r, func(p RankPlan) bool {
				return component(p.Plan.Points[at].Estimate, c.Name) != c.Bytes
			})
			if differs && !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
			}
		}
	}
	return names
}

// component are the bytes of a component of an estimate.
func component(e *Estimate, name string) int64 {
	for _, c := range e.Components {
		if c.Name == name {
			return c.Bytes
		}
	}
	return 0
}
