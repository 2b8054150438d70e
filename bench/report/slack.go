package report

import (
	"fmt"

	"github.com/vprof/vprof/internal/bytesize"
)

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
