package report

import (
	"fmt"
	"slices"
	"strconv"
)

// Releases are plans of one case by the rules of several releases of PyTorch. As a
// table they stand beside each other; in the other formats they are written one
// after the other, as [Several] is.
type Releases []*Report

// Sheets has a table for each board: what every release needs at each batch size,
// and how far that is from the first.
func (r Releases) Sheets() []Sheet {
	if len(r) == 0 {
		return nil
	}
	var sheets []Sheet
	for _, d := range r[0].Devices {
		sheets = append(sheets, r.on(d).sheet())
	}
	return sheets
}

// Lines implements [Document].
func (r Releases) Lines() []any { return Several(r).Lines() }

// Records implements [Document].
func (r Releases) Records() [][]string { return Several(r).Records() }

func (r Releases) on(d Device) Releases {
	parts := make(Releases, len(r))
	for i, release := range r {
		parts[i] = release.on(d)
	}
	return parts
}

// sheet is the table of one board.
func (r Releases) sheet() Sheet {
	c := r[0].Case
	c.Torch = ""
	s := sheetIn(fmt.Sprintf("%s; %s", c, r[0].Devices[0]), "batch> | {}", largest(r, (*Report).largestDevice))
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
		verdict := []string{string(p.Estimate.Verdict)}
		for _, release := range r[1:] {
			verdict = append(verdict, string(release.Points[at].Estimate.Verdict), "")
		}
		s.Row(batch, "verdict", verdict)
	}
	s.Note("percentages are relative to PyTorch %s; parts that are alike in all are left out.", r[0].Case.ReleaseName())
	for _, release := range r {
		s.Notes = append(s.Notes, warningNotes(release.Warnings)...)
	}
	return s
}

// largestDevice is the largest estimate of device bytes.
func (r *Report) largestDevice() int64 {
	return largest(r.Points, func(p Point) int64 { return p.Estimate.Device.Bytes })
}

// releasesPart is a count of bytes, or a component of one, by release.
type releasesPart struct {
	name  string
	bytes []int64
}

// parts are the totals of a batch size, and before them the components in which
// releases differ.
func (r Releases) parts(at int) []releasesPart {
	var parts []releasesPart
	add := func(name string, always bool, bytes func(*Estimate) int64) {
		part := releasesPart{name: name}
		for _, release := range r {
			part.bytes = append(part.bytes, bytes(release.Points[at].Estimate))
		}
		if always || len(slices.Compact(slices.Clone(part.bytes))) > 1 {
			parts = append(parts, part)
		}
	}
	// Estimates have the same components in the same order.
	for i, c := range r[0].Points[at].Estimate.Components {
		add(c.Name, false, func(e *Estimate) int64 { return e.Components[i].Bytes })
	}
	add("allocated", true, func(e *Estimate) int64 { return e.Allocated.Bytes })
	add("reserved", true, func(e *Estimate) int64 { return e.Reserved.Bytes })
	add("device", true, func(e *Estimate) int64 { return e.Device.Bytes })
	return parts
}

// cells are the bytes of a part by release, each but the first with its difference
// from the first.
func (p releasesPart) cells(col column) []string {
	cells := []string{col.amount(p.bytes[0])}
	for _, bytes := range p.bytes[1:] {
		difference := ""
		if p.bytes[0] != 0 {
			difference = fmt.Sprintf("%+.1f %%", 100*float64(bytes-p.bytes[0])/float64(p.bytes[0]))
		}
		cells = append(cells, col.amount(bytes), difference)
	}
	return cells
}
