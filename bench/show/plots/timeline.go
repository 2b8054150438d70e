package plots

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/vprof/vprof/bench/show/profile"
	"github.com/vprof/vprof/profiler/program"
)

// columns is how many points a timeline is drawn with: more cannot be told apart.
const columns = 1500

// moment is the memory after an allocation or free, by class.
type moment struct {
	instruction     int
	classes         program.Breakdown
	total, reserved int64
}

// Timeline draws the allocated bytes over the allocations and frees of the
// step with the peak, stacked by class, with its phases, the reserved bytes and
// the peak.
func Timeline(pr *profile.Profile) (*plot.Plot, error) {
	step, from, to := pr.PeakStep()
	p := newPlot(fmt.Sprintf("%v, batch %d, step %d (simulated)", pr.Case, pr.Batch, step), "allocations and frees",
		"allocated (GiB)")
	all := moments(pr, from, to)
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: the step allocates nothing", pr.Case.Model)
	}
	seen := highest(all)
	if err := stackClasses(p, all, seen); err != nil {
		return nil, err
	}
	var reserved, peak plotter.XYs
	for _, i := range seen {
		reserved = append(reserved, plotter.XY{X: float64(i), Y: float64(all[i].reserved) / gib})
		if all[i].instruction == pr.Run.Peak.Instruction {
			peak = append(peak, plotter.XY{X: float64(i), Y: float64(all[i].total) / gib})
		}
	}
	line, err := plotter.NewLine(reserved)
	if err != nil {
		return nil, err
	}
	line.Dashes = []vg.Length{vg.Points(3), vg.Points(2)}
	p.Add(line)
	p.Legend.Add("reserved", line)
	mark, err := plotter.NewScatter(peak)
	if err != nil {
		return nil, err
	}
	mark.Shape, mark.Radius = draw.PyramidGlyph{}, vg.Points(4)
	p.Add(mark)
	p.Legend.Add("peak", mark)
	p.Legend.Top, p.Legend.YOffs = true, -vg.Points(30) // below the reserved bytes
	p.Y.Min, p.Y.Max = 0, 1.12*p.Y.Max                  // room for the names of phases
	return p, markPhases(p, pr, all)
}

// moments returns those of the instructions from up to to.
func moments(pr *profile.Profile, from, to int) []moment {
	var all []moment
	for i, classes := range pr.ByClass() {
		at := pr.Run.Timeline[i]
		if at.Instruction >= from && at.Instruction < to {
			all = append(all, moment{at.Instruction, classes, at.Usage.Allocated, at.Usage.Reserved})
		}
	}
	return all
}

// highest returns the moments to draw: of each column the one with most memory, so
// that no peak is lost.
func highest(all []moment) []int {
	n := min(columns, len(all))
	out := make([]int, n)
	for c := range n {
		begin, end := c*len(all)/n, (c+1)*len(all)/n
		out[c] = begin
		for i := begin; i < end; i++ {
			if all[i].total > all[out[c]].total {
				out[c] = i
			}
		}
	}
	return out
}

// stackClasses draws an area for each class that holds anything.
func stackClasses(p *plot.Plot, all []moment, seen []int) error {
	lower := make(plotter.XYs, len(seen))
	for x, i := range seen {
		lower[x].X = float64(i)
	}
	var names []string
	var areas []plot.Thumbnailer
	for c := range program.NumClasses {
		upper, holds := append(plotter.XYs{}, lower...), false
		for x, i := range seen {
			upper[x].Y += float64(all[i].classes[c]) / gib
			holds = holds || all[i].classes[c] > 0
		}
		if !holds {
			continue
		}
		area, err := between(lower, upper)
		if err != nil {
			return err
		}
		area.Color = palette[c]
		p.Add(area)
		names, areas = append(names, program.Class(c).String()), append(areas, area)
		lower = upper
	}
	for i := range names { // from the top of the stack
		p.Legend.Add(names[len(names)-1-i], areas[len(names)-1-i])
	}
	return nil
}

// markPhases draws a line where a phase begins, and its name where there is room.
func markPhases(p *plot.Plot, pr *profile.Profile, all []moment) error {
	at := func(instruction int) float64 {
		n := 0
		for n < len(all) && all[n].instruction < instruction {
			n++
		}
		return float64(n)
	}
	first, last := all[0].instruction, all[len(all)-1].instruction+1
	for _, s := range pr.Spans() {
		begin, end := at(s.From), at(s.To)
		if s.To <= first || s.From >= last || end <= begin {
			continue
		}
		line, err := dashed(plotter.XY{X: begin}, plotter.XY{X: begin, Y: p.Y.Max}, rgb(0xb9bdc4))
		if err != nil {
			return err
		}
		line.Dashes = nil
		p.Add(line)
		if end-begin < float64(len(all))/12 {
			continue
		}
		label, err := plotter.NewLabels(plotter.XYLabels{
			XYs:    plotter.XYs{{X: begin, Y: p.Y.Max}},
			Labels: []string{" " + s.Name},
		})
		if err != nil {
			return err
		}
		label.TextStyle[0].YAlign, label.TextStyle[0].Font.Size = text.YTop, vg.Points(9)
		p.Add(label)
	}
	return nil
}
