package report

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
)

// componentsSheet returns a column for every batch size and a row for every component of the device's memory.
func (r *Report) componentsSheet() Sheet {
	s := sheetIn(r.Case.String(), "{} at the peak | allocated | in later steps? | reserved | device | "+
		"device, streamed? | guide? | peak in | verdict",
		largest(r.Points, func(p Point) int64 { return p.Estimate.Device.High }))
	if len(r.Devices) > 0 {
		s.Title += "; " + r.Devices[0].String()
	}
	s.Bars, s.Notes = r.bars(), slices.Concat(r.refusals(), r.notes())
	if len(r.Points) == 0 {
		s.Columns = s.Columns[:1]
		s.Columns[0].Head = ""
		return s
	}
	names := r.componentNames()
	for i, name := range names {
		s.Columns = slices.Insert(s.Columns, 1+i, Column{Head: name})
	}
	s.Answer = r.planAnswer()
	for _, p := range r.Points {
		e := p.Estimate
		parts := lists.Map(names, func(name string) string { return s.unit.amount(component(e, name)) })
		later := phrase.If(p.LastStep > 0, "%s", s.unit.amount(p.LastStep))
		s.Row("batch "+strconv.Itoa(p.Batch), parts, e.Allocated, later, e.Reserved, e.Device, streamedCell(p, s.unit),
			p.claim(s.unit), e.PeakPhase, e.verdictText())
	}
	s = s.withoutEmptyColumns().transposed()
	s.Totals = len(s.Rows) - len(names)
	return s
}

// gpusSheet returns a row for every GPU and a column for every batch size.
func (r *Report) gpusSheet() Sheet {
	c := columnFor(largest(r.Points, func(p Point) int64 { return p.Estimate.Device.High }))
	s := sheetIn(r.Case.String(), "gpu | memory {}>", largest(r.Devices, func(d Device) int64 { return d.Memory }))
	signs := lists.Map(r.Points, func(p Point) string { return p.Estimate.mark() })
	var notes phrase.List
	notes.AddTexts(legend(signs))
	s.Bars, s.Notes = r.bars(), slices.Concat(notes, r.refusals(), r.sideNotes(), warningNotes(r.Warnings))
	var needs, claims []int // batch sizes, and the ones that a guide estimates
	for _, p := range r.Points {
		needs = lists.Union(needs, p.Batch)
		if len(p.Claims) > 0 {
			claims = lists.Union(claims, p.Batch)
		}
	}
	for _, refused := range r.Refused {
		needs = lists.Union(needs, refused.Batch)
	}
	slices.Sort(needs)
	for i, b := range slices.Concat(needs, claims) {
		group := c.head("device")
		if i >= len(needs) {
			group = c.head("guide")
		}
		s.Columns = append(s.Columns, Column{Head: "batch " + strconv.Itoa(b), Group: group, Right: true})
	}
	for _, d := range r.Devices {
		need, claim := make([]string, len(needs)), make([]string, len(claims))
		for _, p := range r.Points {
			if p.Device != d.Name {
				continue
			}
			need[slices.Index(needs, p.Batch)] = c.amount(p.Estimate.Device.Bytes) + p.Estimate.mark()
			if i := slices.Index(claims, p.Batch); i >= 0 {
				claim[i] = p.claim(c)
			}
		}
		for _, refused := range r.forDevice(d).Refused {
			need[slices.Index(needs, refused.Batch)] = "refused"
		}
		s.Row(r.tableName(d), d.Memory, need, claim)
	}
	return s
}

// mark returns the sign of a verdict in a cell.
func (e *Estimate) mark() string {
	if e.Unsafe != "" && e.Verdict == Fits {
		return " *"
	}
	return e.Verdict.mark()
}

func (v Verdict) mark() string {
	return map[Verdict]string{Fits: "  ", Tight: " ?", Slow: " ~", Unrecorded: " ?", DoesNotFit: " !"}[v]
}

// ExpandableSegments is the allocator setting (PYTORCH_CUDA_ALLOC_CONF) that avoids most of the cache's slack. It
// changes neither results nor, noticeably, speed.
const ExpandableSegments = "expandable_segments:True"

// AllocConf is the beginning of the environment variable with the settings of PyTorch's allocator.
const AllocConf = "PYTORCH_CUDA_ALLOC_CONF="

// expandableText describes what expandable segments would change in an estimate.
func expandableText(e *Estimate, expandable Interval) string {
	slack, most := e.Reserved.Bytes-e.Allocated.Bytes, e.Reserved.High-e.Allocated.Bytes
	return fmt.Sprintf("%s%s of its %s are slack of the caching allocator; with "+AllocConf+"%s it needs %s",
		bytesize.Format(slack),
		phrase.If(most > 2*slack, " (up to %s in another order of allocations)", bytesize.Format(most)),
		bytesize.Format(e.Device.Bytes), ExpandableSegments, bytesize.Format(expandable.Bytes))
}

// slackNote describes what expandable segments would save at the batch where that is most; empty if nothing.
func (r *Report) slackNote() string {
	most, ok := lists.Largest(r.Points, Point.sparedBytes)
	if !ok {
		return ""
	}
	where, then := fmt.Sprintf("batch %d", most.Batch), ""
	if d, ok := r.Find(most.Device); ok {
		where += phrase.If(len(r.Devices) > 1, " on %s", r.tableName(d))
	}
	if decides := most.Estimate.Decides; decides != nil && decides.What == "training" {
		then = ", which is " + phrase.If(most.ExpandableUnsafe != "", "not safe: ") + most.ExpandableUnsafe.String()
	}
	return where + ": " + expandableText(most.Estimate, *most.Expandable) + then + "."
}

// spillNote describes what Windows and WSL2 do with the smallest batch that does not fit; empty if all fit.
func (r *Report) spillNote() string {
	at := slices.IndexFunc(r.Points, func(p Point) bool { return p.Spill != nil })
	if at < 0 {
		return ""
	}
	p := r.Points[at]
	s := p.Spill
	if s.Shared > 0 && s.Bytes > s.Shared {
		return fmt.Sprintf("batch %d does not run under Windows or WSL2 either: %s would spill to the host, of "+
			"whose memory drivers share half (%s).", p.Batch, bytesize.Format(s.Bytes), bytesize.Format(s.Shared))
	}
	return fmt.Sprintf("batch %d under Windows or WSL2: %s spill to the host's memory, %s a step over the bus%s.",
		p.Batch, bytesize.Format(s.Bytes), bytesize.Format(s.Moved),
		phrase.If(s.Slowdown > 0, "; about %.2g times as long, estimated", s.Slowdown))
}

// sparedBytes returns the device bytes that expandable segments would save; zero if they are too few to mention.
func (p Point) sparedBytes() int64 {
	if p.Estimate == nil || p.Expandable == nil {
		return 0
	}
	return p.Estimate.Device.Bytes - p.Expandable.Bytes
}
