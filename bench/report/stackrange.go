package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
)

// StackRange is the need of a point with other releases of the libraries that it depends on, each changed alone. Its
// intervals hold the intervals of all, around the value of the point.
type StackRange struct {
	// Over are the oldest and the newest of the releases, of each library: "transformers 4.48 to 5.24".
	Over []string `json:"over"`
	// Releases are the releases that need another number of bytes than the point: "transformers 4.48".
	Releases  []string `json:"releases"`
	Allocated Interval `json:"allocated"`
	Reserved  Interval `json:"reserved"`
	Device    Interval `json:"device"`
	// Verdict is the verdict on the release that needs most.
	Verdict Verdict `json:"verdict"`
}

// Range sets the range of the point over releases, whose estimates of it are given by release. If widens is set, the point's own
// intervals are widened instead.
func (p *Point) Range(over []string, others map[string]*Estimate, widens bool) {
	e := p.Estimate
	if e == nil {
		return
	}
	r := StackRange{Over: over, Allocated: e.Allocated, Reserved: e.Reserved, Device: e.Device, Verdict: e.Verdict}
	most := e.Device.High
	for _, release := range slices.Sorted(maps.Keys(others)) {
		o := others[release]
		if o.Allocated.Bytes == e.Allocated.Bytes {
			continue
		}
		r.Releases = append(r.Releases, release)
		r.Allocated, r.Reserved, r.Device = r.Allocated.with(o.Allocated), r.Reserved.with(o.Reserved),
			r.Device.with(o.Device)
		if o.Device.High > most {
			most, r.Verdict = o.Device.High, o.Verdict
		}
	}
	switch {
	case r.Releases == nil:
	case widens:
		e.Allocated, e.Reserved, e.Device, e.Verdict = r.Allocated, r.Reserved, r.Device, r.Verdict
	default:
		p.StackRange = &r
	}
}

// with returns the interval widened to hold another one.
func (i Interval) with(other Interval) Interval {
	i.Low, i.High = min(i.Low, other.Low), max(i.High, other.High)
	return i
}

// stackNote returns the range over releases of the point with the largest batch; empty if none has one.
func (r *Report) stackNote() string {
	largest, ok := lists.Most(lists.Filter(r.Points, func(p Point) bool { return p.StackRange != nil }),
		func(p Point) int64 { return int64(p.Batch) })
	if !ok {
		return ""
	}
	s := largest.StackRange
	return fmt.Sprintf("other releases (%s): allocated %s to %s, device %s to %s, %s at batch %d; name yours: --stack "+
		"uv.lock.", strings.Join(s.Over, ", "), bytesize.Format(s.Allocated.Low), bytesize.Format(s.Allocated.High),
		bytesize.Format(s.Device.Low), bytesize.Format(s.Device.High), s.Verdict, largest.Batch)
}
