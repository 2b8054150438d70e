package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
)

// StackRange is the range of needs that other users may see: with other releases of libraries, each changed alone, and
// with data, loops and trainers that differ from the case as in published runs. Its intervals contain the intervals of
// all releases, around the value of the point, widened by the errors of published runs.
type StackRange struct {
	// ReleaseRanges are the oldest and the newest of the releases, of each library: "transformers 4.48 to 5.24".
	ReleaseRanges []string `json:"over"`
	// Releases are the releases that need another number of bytes than the point: "transformers 4.48".
	Releases  []string `json:"releases"`
	Allocated Interval `json:"allocated"`
	Reserved  Interval `json:"reserved"`
	Device    Interval `json:"device"`
	// Intervals names the records that the margins come from, and the share of them within the margins of the others.
	Intervals string `json:"intervals"`
	// Verdict is the verdict on the release with the largest need, and tight at best if the range exceeds the memory.
	Verdict Verdict `json:"verdict"`
}

// ReportedMargins holds how far published runs were outside of intervals, as shares of allocated and reserved bytes,
// the lower ones negative, and the source of these numbers.
type ReportedMargins struct {
	Allocated, Reserved [2]float64
	Source              string
}

// SetStackRange sets the range of the point over releases. others are its estimates by release, reported the margins of
// published runs, and memory the bytes of the GPU. Without reported, it widens the point's own intervals.
func (p *Point) SetStackRange(over []string, others map[string]*Estimate, reported *ReportedMargins, memory int64) {
	e := p.Estimate
	if e == nil {
		return
	}
	r := StackRange{
		ReleaseRanges: over, Releases: []string{}, Allocated: e.Allocated, Reserved: e.Reserved, Device: e.Device,
		Verdict: e.Verdict,
	}
	most := e.Device.High
	for _, release := range slices.Sorted(maps.Keys(others)) {
		o := others[release]
		if o.Allocated.Bytes == e.Allocated.Bytes {
			continue
		}
		r.Releases = append(r.Releases, release)
		r.Allocated, r.Reserved, r.Device = r.Allocated.union(o.Allocated), r.Reserved.union(o.Reserved),
			r.Device.union(o.Device)
		if o.Device.High > most {
			most, r.Verdict = o.Device.High, o.Verdict
		}
	}
	if reported == nil {
		e.Allocated, e.Reserved, e.Device, e.Verdict = r.Allocated, r.Reserved, r.Device, r.Verdict
		return
	}
	r.Allocated = r.Allocated.widened(reported.Allocated, e.Allocated.Bytes)
	r.Reserved = r.Reserved.widened(reported.Reserved, e.Reserved.Bytes)
	r.Device = r.Device.widened(reported.Reserved, e.Reserved.Bytes)
	r.Intervals = reported.Source
	if r.Device.High > memory {
		r.Verdict = r.Verdict.Worse(Tight)
	}
	p.StackRange = &r
}

func (i Interval) widened(shares [2]float64, of int64) Interval {
	i.Low, i.High = max(0, i.Low+int64(shares[0]*float64(of))), i.High+int64(shares[1]*float64(of))
	return i
}

// union returns the interval widened to contain another one.
func (i Interval) union(other Interval) Interval {
	i.Low, i.High = min(i.Low, other.Low), max(i.High, other.High)
	return i
}

// stackNote describes the range over releases of the point with the largest batch; empty if no point has a range.
func (r *Report) stackNote() string {
	largest, _ := lists.Largest(lists.Filter(r.Points, func(p Point) bool { return p.StackRange != nil }),
		func(p Point) int64 { return int64(p.Batch) })
	return releasesNote(largest.StackRange, largest.StackRange.need("", largest.Batch))
}

// releasesNote names the releases of a range, before the needs of all ranges over them; empty without a range.
func releasesNote(s *StackRange, needs ...string) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("the values above are for the newest known releases. With others (%s), loops or trainers that "+
		"differ, as in runs that others report: %s; from %s. Name your releases: --stack uv.lock.",
		strings.Join(s.ReleaseRanges, ", "), strings.Join(needs, "; "), s.Intervals)
}

// need returns the range of a batch in words, after what it is of.
func (s *StackRange) need(of string, batch int) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%sbatch %d may need %s to %s allocated and %s to %s on the device: %s", of, batch,
		bytesize.Format(s.Allocated.Low), bytesize.Format(s.Allocated.High), bytesize.Format(s.Device.Low),
		bytesize.Format(s.Device.High), s.Verdict)
}
