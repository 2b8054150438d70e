package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
)

// verdictText returns the verdict on an estimate in words: "safe", "does not fit", "not safe: over the limit".
func (e *Estimate) verdictText() string {
	switch {
	case e.Unsafe == "" && e.Verdict == Fits:
		return "safe"
	case e.Unsafe == "" && e.Verdict == Tight:
		return "safe, tight"
	case e.Unsafe != "" && (e.Verdict == Fits || e.Verdict == Tight || e.Verdict == Slow && e.Unsafe == "oom"):
		return "not safe: " + e.Unsafe.String()
	}
	return string(e.Verdict)
}

func (e *Estimate) isSafe() bool { return e.Unsafe == "" && (e.Verdict == Fits || e.Verdict == Tight) }

// planAnswer summarizes a plan for one device in a sentence: the largest safe batch, and the smallest that is not.
func (r *Report) planAnswer() []string {
	if len(r.Points) == 0 || len(r.Devices) != 1 {
		return nil
	}
	points := byBatch(r.Points)
	memory := " of " + bytesize.Format(r.Devices[0].Memory)
	var parts []string
	unsafe := slices.IndexFunc(points, func(p Point) bool { return !p.Estimate.isSafe() })
	safe := points
	if unsafe >= 0 {
		safe = points[:unsafe]
	}
	if n := len(safe); n > 0 {
		p, what := safe[n-1], "safe: batch %d needs %s%s"
		if n > 1 {
			what = "safe up to batch %d, which needs %s%s"
		}
		parts, memory = append(parts, fmt.Sprintf(what, p.Batch, bytesize.Format(p.Estimate.Device.Bytes), memory)), ""
	}
	if unsafe >= 0 {
		p := points[unsafe]
		words := strings.TrimPrefix(p.Estimate.verdictText(), "not safe: ")
		part := fmt.Sprintf("not safe: batch %d needs %s%s: %s", p.Batch, bytesize.Format(p.Estimate.Device.Bytes),
			memory, words)
		if d := p.Estimate.Decides; d != nil && (d.What != "training" || words == p.Estimate.Unsafe.String()) {
			part += " (" + d.String() + ")"
		}
		parts = append(parts, part)
	}
	return []string{strings.Join(parts, "; ") + "."}
}

func byBatch(points []Point) []Point {
	return slices.SortedStableFunc(slices.Values(points), func(a, b Point) int { return a.Batch - b.Batch })
}

// sweepAnswer summarizes a sweep in a sentence: the largest batch that ran, and the smallest that did not.
func (r *Report) sweepAnswer(word string) []string {
	if r.Largest != nil {
		return []string{r.Largest.String() + "."}
	}
	points := byBatch(lists.Filter(r.Points, func(p Point) bool { return p.Run != nil }))
	var parts []string
	if ran, ok := lists.Largest(points, Point.FittingBatch); ok {
		parts = append(parts, fmt.Sprintf("the largest that fits is batch %d (%s, %s)", ran.Batch,
			bytesize.Format(ran.Run.Device), word))
		if e := ran.Estimate; e != nil && !e.isSafe() {
			parts = append(parts, fmt.Sprintf("batch %d is not safe: %v", ran.Batch, e.Unsafe))
		}
	}
	if failed, ok := lists.First(points, func(p Point) bool { return p.FittingBatch() == 0 }); ok {
		parts = append(parts, fmt.Sprintf("batch %d %s", failed.Batch, failed.Verdict()))
	}
	if parts == nil {
		return nil
	}
	return []string{strings.Join(parts, "; ") + "."}
}
