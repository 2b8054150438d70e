package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/models"
)

// Runs are reports of one command on different GPUs or as different ranks. A table has a row for each; the other
// formats write one after the other, like [Sweeps].
type Runs []*Report

// Document returns the report if there is only one, else all of them.
func (r Runs) Document() Document {
	if len(r) == 1 {
		return r[0]
	}
	return r
}

// Data returns the values that JSON files hold, for [Document].
func (r Runs) Data() Data { return Sweeps(r).Data() }

// Sheets returns a table with a row for each run.
func (r Runs) Sheets() []Sheet {
	s := sheetIn(strings.Join(r[0].Script.Command, " "),
		"GPU | rank>? | peak {}: allocated> | peak {}: reserved> | peak {}: device> | at | result",
		largest(r, func(one *Report) int64 {
			if run := one.onlyRun(); run != nil {
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
		if run := one.onlyRun(); run != nil {
			peaks = []string{
				s.unit.amount(run.Allocated), s.unit.amount(run.Reserved), s.unit.amount(run.Device), run.PeakPhase,
			}
		}
		s.Row(one.Devices[0].GPU+", "+one.Devices[0].Kind(), rank, peaks, one.Script.Result)
	}
	s.Notes = r.notes()
	return []Sheet{s.withoutEmptyColumns()}
}

// notes returns the notes of all runs, each once, and a comparison of simulated with measured ones.
func (r Runs) notes() []string {
	var notes phrase.List
	for _, one := range r {
		notes = lists.Union(notes, one.otherNotes()...)
	}
	for _, one := range r {
		notes.If(one.Script.Result != "fits", "%s: %s", one.Devices[0].Name, one.Script.verdict(one))
	}
	if len(r) == 2 && r[0].Devices[0].Simulated && !r[1].Devices[0].Simulated {
		if line := comparedText(r[0], r[1]); line != "" {
			notes = append(notes, line)
		}
	}
	return notes
}

// comparedText describes in a line the difference of a simulated run from a measured one, without the user's paths and
// names, so that it can be shared. It is empty if one of them has no peaks.
func comparedText(simulated, measured *Report) string {
	s, m := simulated.onlyRun(), measured.onlyRun()
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

// onlyRun returns the run of a report with one run; nil if nothing trained.
func (r *Report) onlyRun() *Run {
	if len(r.Points) == 0 {
		return nil
	}
	return r.Points[0].Run
}

// Ranks are plans of one case's ranks, one for each kind of rank; the rank that needs most is first. Tables show one
// rank after the other; the other formats write one plan after the other, like [Sweeps].
type Ranks []RankPlan

// RankPlan is the plan of ranks with equal memory.
type RankPlan struct {
	models.RankRange
	Plan *Report `json:"plan"`
}

// Sort puts the ranks that need most at their largest batch first.
func (r Ranks) Sort() {
	need := func(p RankPlan) int64 { return p.Plan.Points[len(p.Plan.Points)-1].Estimate.Device.Bytes }
	slices.SortStableFunc(r, func(a, b RankPlan) int { return -cmp.Compare(need(a), need(b)) })
}

// Data returns the values that JSON files hold, for [Document].
func (r Ranks) Data() Data {
	return Sweeps(lists.Map(r, func(p RankPlan) *Report { return p.Plan })).Data()
}

// Sheets returns a table for each GPU.
func (r Ranks) Sheets() []Sheet {
	if len(r) == 0 {
		return nil
	}
	var sheets []Sheet
	for _, d := range r[0].Plan.Devices {
		part := lists.Map(r, func(p RankPlan) RankPlan { return RankPlan{p.RankRange, p.Plan.forDevice(d)} })
		sheets = append(sheets, Ranks(part).sheet())
	}
	return sheets
}

// sheet returns the table of one GPU, with the components in which ranks differ.
func (r Ranks) sheet() Sheet {
	first := r[0].Plan
	c := first.Case
	strategy := *c.Strategy
	strategy.Rank = nil
	c.Strategy = &strategy
	s := sheetIn(fmt.Sprintf("%s; %s", c, first.Devices[0]), "batch> | {} of rank",
		largest(r, func(p RankPlan) int64 { return p.Plan.largestDevice() }))
	differ := r.differingComponents()
	for _, name := range append(slices.Clone(differ), "allocated", "reserved", "device") {
		s.Columns = append(s.Columns, Column{Head: name, Right: true})
	}
	s.Columns = append(s.Columns, Column{Head: "verdict"})
	for at := range first.Points {
		batch := strconv.Itoa(first.Points[at].Batch)
		for _, p := range r {
			e := p.Plan.Points[at].Estimate
			parts := lists.Map(differ, func(name string) string { return s.unit.amount(component(e, name)) })
			s.Row(batch, p.RankRange, parts, e.Allocated.Bytes, e.Reserved.Bytes, e.Device.Bytes, e.verdictText())
			batch = ""
		}
	}
	s.Notes.Add("all ranks of %d that differ, the one that needs most first; components that are equal in all are "+
		"left out.", c.GPUs)
	s.Notes.If(strategy.Replicate > 1, "each of %d replicas has such ranks.", strategy.Replicate)
	s.Notes = slices.Concat(s.Notes, []string{first.communicationNote()}, warningNotes(first.Warnings))
	return s
}

// differingComponents returns the names of the components that differ between ranks.
func (r Ranks) differingComponents() []string {
	var names []string
	for at, point := range r[0].Plan.Points {
		for _, c := range point.Estimate.Components {
			differs := slices.ContainsFunc(r, func(p RankPlan) bool {
				return component(p.Plan.Points[at].Estimate, c.Name) != c.Bytes
			})
			if differs {
				names = lists.Union(names, c.Name)
			}
		}
	}
	return names
}

func component(e *Estimate, name string) int64 {
	c, _ := lists.First(e.Components, func(c Component) bool { return c.Name == name })
	return c.Bytes
}

// Releases are plans of one case by the rules of several releases of PyTorch. A table has a column for each; the other
// formats write one after the other, like [Sweeps].
type Releases []*Report

// Sheets returns a table for each GPU: the need with each release and batch size, and its difference from the first.
func (r Releases) Sheets() []Sheet {
	if len(r) == 0 {
		return nil
	}
	return lists.Map(r[0].Devices, func(d Device) Sheet { return r.forDevice(d).sheet() })
}

// Data returns the values that JSON files hold, for [Document].
func (r Releases) Data() Data { return Sweeps(r).Data() }

func (r Releases) forDevice(d Device) Releases {
	return lists.Map(r, func(release *Report) *Report { return release.forDevice(d) })
}

// sheet returns the table of one GPU.
func (r Releases) sheet() Sheet {
	s := sheetIn(fmt.Sprintf("%s; %s", r[0].Case.StringWithoutRelease(), r[0].Devices[0]), "batch> | {}",
		largest(r, (*Report).largestDevice))
	for i, release := range r {
		s.Columns = append(s.Columns, Column{Head: "PyTorch " + release.Case.ReleaseName(), Right: true})
		if i > 0 {
			s.Columns = append(s.Columns, Column{Right: true})
		}
	}
	for at, p := range r[0].Points {
		batch := strconv.Itoa(p.Batch)
		for _, part := range r.parts(at) {
			s.Row(batch, part.name, part.cells(s.unit))
			batch = ""
		}
		verdict := []string{p.Estimate.verdictText()}
		for _, release := range r[1:] {
			verdict = append(verdict, release.Points[at].Estimate.verdictText(), "")
		}
		s.Row(batch, "verdict", verdict)
	}
	s.Notes.Add("percentages are relative to PyTorch %s; parts that are equal in all are left out.",
		r[0].Case.ReleaseName())
	for _, release := range r {
		s.Notes = append(s.Notes, warningNotes(release.Warnings)...)
	}
	return s
}

func (r *Report) largestDevice() int64 {
	return largest(r.Points, func(p Point) int64 { return p.Estimate.Device.Bytes })
}

// componentByRelease is a count of bytes, or one of its components, by release.
type componentByRelease struct {
	name  string
	bytes []int64
}

// parts returns the totals of a batch size, after the components in which releases differ.
func (r Releases) parts(at int) []componentByRelease {
	var parts []componentByRelease
	add := func(name string, always bool, bytes func(*Estimate) int64) {
		each := lists.Map(r, func(release *Report) int64 { return bytes(release.Points[at].Estimate) })
		if always || len(slices.Compact(slices.Clone(each))) > 1 {
			parts = append(parts, componentByRelease{name, each})
		}
	}
	for _, c := range r[0].Points[at].Estimate.Components {
		add(c.Name, false, func(e *Estimate) int64 { return component(e, c.Name) })
	}
	add("allocated", true, func(e *Estimate) int64 { return e.Allocated.Bytes })
	add("reserved", true, func(e *Estimate) int64 { return e.Reserved.Bytes })
	add("device", true, func(e *Estimate) int64 { return e.Device.Bytes })
	return parts
}

// cells formats the bytes of a part by release, each but the first with its difference from the first.
func (p componentByRelease) cells(col byteColumn) []string {
	cells := []string{col.amount(p.bytes[0])}
	for _, bytes := range p.bytes[1:] {
		difference := 100 * float64(bytes-p.bytes[0]) / float64(p.bytes[0])
		cells = append(cells, col.amount(bytes), phrase.If(p.bytes[0] != 0, "%+.1f %%", difference))
	}
	return cells
}
