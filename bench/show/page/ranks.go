package page

import (
	"fmt"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/profile"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/profiler/program"
)

// ranksOf returns the chart of components with a bar for each rank that differs.
func ranksOf(ranks report.Ranks) *breakdown {
	if len(ranks) == 0 {
		return nil
	}
	s := deviceSeries{device: ranks[0].Plan.Devices[0]}
	for _, r := range ranks {
		s.points = append(s.points, r.Plan.Points[0])
	}
	b := newBreakdown(s, 0)
	b.Unit = "rank"
	for i, r := range ranks {
		b.Rows[i].Batch = r.String()
	}
	return &b
}

// streamLane shows the allocated memory of a CUDA stream over a step.
type streamLane struct {
	Name, Most string
	// Path is an SVG path in a box of laneWidth and laneHeight.
	Path string
}

// The size of the box of a lane's path, and the largest number of points of a path.
const (
	laneWidth, laneHeight = 1000, 40
	lanePoints            = 400
)

// newLanes returns the allocated bytes over time on each stream, all on one scale; nil if the step has one stream.
func newLanes(p *profile.Profile, from, to int) []streamLane {
	names := p.Program.Streams
	if len(names) < 2 {
		return nil
	}
	every := max(1, countEvents(p.Program.Instructions[from:to])/lanePoints)
	held, most := make([]int64, len(names)), make([]int64, len(names))
	var steps [][]int64 // the most of each stream within each point of time
	at := 0
	for i, in := range p.Program.Instructions[:to] {
		if in.Kind != program.Alloc && in.Kind != program.Free {
			continue
		}
		b := &p.Program.Buffers[in.Arg]
		if in.Kind == program.Alloc {
			held[b.Stream] += b.Bytes
		} else {
			held[b.Stream] -= b.Bytes
		}
		if i < from {
			continue
		}
		if at%every == 0 {
			steps = append(steps, make([]int64, len(names)))
		}
		at++
		last := steps[len(steps)-1]
		for s, n := range held {
			last[s], most[s] = max(last[s], n), max(most[s], n)
		}
	}
	var out []streamLane
	for s, name := range names {
		if most[s] > 0 {
			out = append(out, streamLane{name, bytesize.Format(most[s]), lanePath(steps, s, most[s])})
		}
	}
	return out
}

// lanePath returns the SVG path of a stream's bytes as a stepped area whose height is the stream's share of most.
func lanePath(steps [][]int64, stream int, most int64) string {
	var path strings.Builder
	fmt.Fprintf(&path, "M0 %d", laneHeight)
	width := float64(laneWidth) / float64(len(steps))
	for i, held := range steps {
		y := laneHeight * (1 - float64(held[stream])/float64(most))
		fmt.Fprintf(&path, "L%.1f %.1fL%.1f %.1f", width*float64(i), y, width*float64(i+1), y)
	}
	fmt.Fprintf(&path, "L%d %dz", laneWidth, laneHeight)
	return path.String()
}
