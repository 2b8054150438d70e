package plots

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
)

// lineColors tell devices apart.
var lineColors = []color.Color{palette[0], palette[4], palette[3], palette[5], palette[10]}

// Batch draws the reserved peak over the batch size: the estimate with its
// interval, the runs, and where each GPU ends.
func Batch(r *report.Report) (*plot.Plot, error) {
	p := newPlot(r.Case.String(), "batch size", "reserved at the peak (GiB)")
	if len(r.Points) == 0 {
		return nil, fmt.Errorf("%s: the run has no batch size in it", r.Case.Model)
	}
	last, entries := 0.0, 0.5
	for _, point := range r.Points {
		last = max(last, float64(point.Batch))
	}
	last *= 1.03 // room for the last mark
	all := gpus(r)
	for i, d := range all {
		name, limitColor := "", rgb(0xb3261e)
		if len(all) > 1 {
			name, limitColor = ", "+d.Title, lineColors[i%len(lineColors)]
		}
		if err := curve(p, r, d, lineColors[i%len(lineColors)], name); err != nil {
			return nil, err
		}
		free := d.Memory - d.Context
		limit, err := dashed(plotter.XY{Y: float64(free) / gib},
			plotter.XY{X: last, Y: float64(free) / gib}, limitColor)
		if err != nil {
			return nil, err
		}
		p.Add(limit)
		p.Legend.Add(fmt.Sprintf("%s, %s for PyTorch", d.Title, bytesize.Format(free)), limit)
		entries += 3
	}
	// Each entry of the legend takes a twentieth of the height.
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, last, 0, p.Y.Max/max(0.4, 1-0.05*entries)
	p.Legend.Left, p.Legend.Top = true, true
	return p, nil
}

// curve draws the estimates and runs of one GPU.
func curve(p *plot.Plot, r *report.Report, d report.Device, c color.Color, name string) error {
	var estimates, low, high, runs plotter.XYs
	for _, point := range r.Points {
		if point.Device != d.Name {
			continue
		}
		x := float64(point.Batch)
		if e := point.Estimate; e != nil {
			estimates = append(estimates, plotter.XY{X: x, Y: float64(e.Reserved.Bytes) / gib})
			low = append(low, plotter.XY{X: x, Y: float64(e.Reserved.Low) / gib})
			high = append(high, plotter.XY{X: x, Y: float64(e.Reserved.High) / gib})
		}
		if u := point.Run; u != nil && u.Fits {
			runs = append(runs, plotter.XY{X: x, Y: float64(u.Reserved) / gib})
		}
	}
	if len(estimates) > 0 {
		band, err := between(low, high)
		if err != nil {
			return err
		}
		red, green, blue, _ := c.RGBA()
		band.Color = color.NRGBA{uint8(red >> 8), uint8(green >> 8), uint8(blue >> 8), 0x50}
		line, dots, err := plotter.NewLinePoints(estimates)
		if err != nil {
			return err
		}
		line.Color, dots.Color, dots.Shape = c, c, draw.CircleGlyph{}
		p.Add(band, line, dots)
		p.Legend.Add("estimate, with its interval"+name, line, dots)
	}
	if len(runs) == 0 {
		return nil
	}
	marks, err := plotter.NewScatter(runs)
	if err != nil {
		return err
	}
	marks.Color, marks.Shape, marks.Radius = palette[2], draw.BoxGlyph{}, vg.Points(3.5)
	p.Add(marks)
	p.Legend.Add(d.Kind()+name, marks)
	return nil
}

// between returns the area from one line up to another.
func between(lower, upper plotter.XYs) (*plotter.Polygon, error) {
	area := append(plotter.XYs{}, upper...)
	for i := range lower {
		area = append(area, lower[len(lower)-1-i])
	}
	filled, err := plotter.NewPolygon(area)
	if err != nil {
		return nil, err
	}
	filled.Width = 0
	return filled, nil
}
