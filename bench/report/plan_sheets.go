package report

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/vprof/vprof/internal/bytesize"
)

// componentsSheet has a column for every batch size and a row for every
// component of the device's memory.
func (r *Report) componentsSheet() Sheet {
	s := Sheet{Title: r.Case.String(), Columns: []Column{{}}, Bars: r.bars(), Notes: r.notes()}
	if len(r.Devices) > 0 {
		s.Title += "; " + r.Devices[0].String()
	}
	if len(r.Points) == 0 {
		return s
	}
	var high []int64
	for _, p := range r.Points {
		high = append(high, p.Estimate.Device.High)
	}
	c := columnOf(high...)
	s.Columns[0].Head = c.scale.Unit() + " at the peak"
	for i := range r.Points[0].Estimate.Components {
		s.Rows = append(s.Rows, []string{r.Points[0].Estimate.Components[i].Name})
	}
	totals := []string{"allocated", "reserved", "device", "peak in", "verdict"}
	if r.Case.Dataset > 0 {
		totals = slices.Insert(totals, 3, "device, streamed")
	}
	claimed := r.claimed()
	if claimed {
		totals = slices.Insert(totals, len(totals)-2, "guide")
	}
	unsafe := slices.ContainsFunc(r.Points, func(p Point) bool { return p.Estimate.Unsafe != "" })
	if unsafe {
		totals = append(totals, "safe")
	}
	for _, name := range totals {
		s.Rows = append(s.Rows, []string{name})
		s.Totals++
	}
	for _, p := range r.Points {
		e := p.Estimate
		s.Columns = append(s.Columns, Column{Head: "batch " + strconv.Itoa(p.Batch), Right: true})
		var cells []string
		for _, part := range e.Components {
			cells = append(cells, c.scale.Format(part.Bytes))
		}
		cells = append(cells, c.interval(e.Allocated), c.interval(e.Reserved), c.interval(e.Device))
		if r.Case.Dataset > 0 {
			cells = append(cells, streamedCell(p, c))
		}
		if claimed {
			cells = append(cells, p.claim(c))
		}
		cells = append(cells, e.PeakPhase, string(e.Verdict))
		if unsafe {
			cells = append(cells, e.Unsafe.safe())
		}
		for i, cell := range cells {
			s.Rows[i] = append(s.Rows[i], cell)
		}
	}
	return s
}

// boardsSheet has a row for every board and a column for every batch size.
func (r *Report) boardsSheet() Sheet {
	s := Sheet{
		Title: r.Case.String(), Bars: r.bars(), Notes: warningNotes(r.Warnings),
	}
	var high, total []int64
	for _, d := range r.Devices {
		total = append(total, d.Memory)
	}
	batches := map[int]int{} // batch to column
	for _, p := range r.Points {
		high = append(high, p.Estimate.Device.High)
		if _, seen := batches[p.Batch]; !seen {
			batches[p.Batch] = len(batches)
		}
	}
	c, m := columnOf(high...), columnOf(total...)
	s.Columns = m.columns("gpu | memory {}>")
	heads := make([]Column, len(batches))
	for b, i := range batches {
		heads[i] = Column{Head: "batch " + strconv.Itoa(b), Group: c.head("device"), Right: true}
	}
	s.Columns = append(s.Columns, heads...)
	claims := map[int]int{} // batch to column, of those that a guide says something of
	for _, p := range r.Points {
		if _, seen := claims[p.Batch]; len(p.Claims) > 0 && !seen {
			claims[p.Batch] = len(s.Columns)
			s.Columns = append(s.Columns, Column{
				Head:  "batch " + strconv.Itoa(p.Batch),
				Group: c.head("guide"), Right: true,
			})
		}
	}
	for _, d := range r.Devices {
		row := make([]string, len(s.Columns))
		row[0], row[1] = r.called(d), m.scale.Format(d.Memory)
		for _, p := range r.Points {
			if p.Device != d.Name {
				continue
			}
			row[2+batches[p.Batch]] = c.scale.Format(p.Estimate.Device.Bytes) + mark(p.Estimate.Verdict)
			if at, ok := claims[p.Batch]; ok {
				row[at] = p.claim(c)
			}
		}
		s.Rows = append(s.Rows, row)
	}
	s.Notes = append([]string{marks}, append(r.sideNotes(), s.Notes...)...)
	return s
}

// mark is what a cell shows of a verdict besides the number.
func mark(v Verdict) string {
	return map[Verdict]string{Fits: "  ", Tight: " ?", Slow: " ~", Unrecorded: " ?", DoesNotFit: " !"}[v]
}

// ExpandableSegments is the allocator setting that spares most of the cache's slack,
// as PYTORCH_CUDA_ALLOC_CONF has it. It changes neither results nor, noticeably, speed.
const ExpandableSegments = "expandable_segments:True"

// slackWords says what expandable segments would change in an estimate.
func slackWords(e *Estimate, expandable Interval) string {
	return fmt.Sprintf("%s of its %s are slack of the caching allocator; with PYTORCH_CUDA_ALLOC_CONF=%s it needs %s",
		bytesize.Format(e.slack()), bytesize.Format(e.Device.Bytes), ExpandableSegments,
		bytesize.Format(expandable.Bytes))
}

// slack is what the caching allocator holds beyond allocated bytes.
func (e *Estimate) slack() int64 { return e.Reserved.Bytes - e.Allocated.Bytes }

// slackNote says what expandable segments would spare where that is most; empty
// where slack does not matter.
func (r *Report) slackNote() string {
	var most Point
	for _, p := range r.Points {
		if p.spared() > most.spared() {
			most = p
		}
	}
	if most.Expandable == nil {
		return ""
	}
	where := fmt.Sprintf("batch %d", most.Batch)
	if d, ok := r.Find(most.Device); ok && len(r.Devices) > 1 {
		where += " on " + r.called(d)
	}
	return where + ": " + slackWords(most.Estimate, *most.Expandable) + "."
}

// spared is what expandable segments would spare of the estimate's device bytes; zero
// where that is not worth saying.
func (p Point) spared() int64 {
	if p.Estimate == nil || p.Expandable == nil {
		return 0
	}
	return p.Estimate.Device.Bytes - p.Expandable.Bytes
}
