// Package plots draws runs as SVG or PNG, for papers and READMEs.
package plots

import (
	"fmt"
	"image/color"
	"io"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/vprof/vprof/bench/profile"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/program"
)

// Width and Height are the size of every drawing.
const (
	Width  = 18 * vg.Centimeter
	Height = 11 * vg.Centimeter
)

// gib is the scale of every axis of memory.
const gib = 1 << 30

// palette has a color for each class, and then for what estimates add, that
// people with any color vision can tell apart (Okabe and Ito's, darkened).
var palette = []color.Color{
	rgb(0x0072b2), rgb(0x7a7f87), rgb(0xd55e00), rgb(0xb85c94), rgb(0x009e73),
	rgb(0xe3d400), rgb(0xe69f00), rgb(0x56b4e9), rgb(0xb9bdc4), rgb(0x4a4e55),
}

func rgb(hex uint32) color.Color {
	return color.RGBA{uint8(hex >> 16), uint8(hex >> 8), uint8(hex), 255}
}

// Batch draws the reserved peak over the batch size: the estimate with its
// interval, the runs, and where the board ends.
func Batch(r *report.Report) (*plot.Plot, error) {
	p := newPlot(r.Case.String(), "batch size", "reserved at the peak (GiB)")
	if len(r.Points) == 0 {
		return nil, fmt.Errorf("%s: the run has no batch size in it", r.Case.Model)
	}
	var estimates, runs plotter.XYs
	var low, high plotter.XYs
	last, word := 0.0, "simulated"
	for _, point := range r.Points {
		x := float64(point.Batch)
		last = max(last, x)
		if e := point.Estimate; e != nil {
			estimates = append(estimates, plotter.XY{X: x, Y: float64(e.Reserved.Bytes) / gib})
			low = append(low, plotter.XY{X: x, Y: float64(e.Reserved.Low) / gib})
			high = append(high, plotter.XY{X: x, Y: float64(e.Reserved.High) / gib})
		}
		if u := point.Run; u != nil && u.Fits {
			runs = append(runs, plotter.XY{X: x, Y: float64(u.Reserved) / gib})
			if !u.Simulated {
				word = "measured"
			}
		}
	}
	if len(estimates) > 0 {
		band := append(plotter.XYs{}, low...)
		for i := range high {
			band = append(band, high[len(high)-1-i])
		}
		interval, err := plotter.NewPolygon(band)
		if err != nil {
			return nil, err
		}
		interval.Color, interval.Width = color.NRGBA{0x56, 0xb4, 0xe9, 0x80}, 0
		line, dots, err := plotter.NewLinePoints(estimates)
		if err != nil {
			return nil, err
		}
		line.Color, dots.Color, dots.Shape = palette[0], palette[0], draw.CircleGlyph{}
		p.Add(interval, line, dots)
		p.Legend.Add("estimate, with its interval", line, dots)
	}
	if len(runs) > 0 {
		marks, err := plotter.NewScatter(runs)
		if err != nil {
			return nil, err
		}
		marks.Color, marks.Shape, marks.Radius = palette[2], draw.BoxGlyph{}, vg.Points(3.5)
		p.Add(marks)
		p.Legend.Add(word, marks)
	}
	for _, d := range r.Devices {
		limit, err := plotter.NewLine(plotter.XYs{{X: 0, Y: float64(d.Memory-d.Context) / gib}, {X: last, Y: float64(d.Memory-d.Context) / gib}})
		if err != nil {
			return nil, err
		}
		limit.Color, limit.Dashes = rgb(0xb3261e), []vg.Length{vg.Points(5), vg.Points(3)}
		p.Add(limit)
		p.Legend.Add(d.Title, limit)
	}
	p.X.Min, p.Y.Min, p.Y.Max = 0, 0, 1.05*p.Y.Max
	p.Legend.Left, p.Legend.Top = true, true
	return p, nil
}

// Breakdown draws what the device's memory is made of, a stacked bar for each
// batch size.
func Breakdown(r *report.Report) (*plot.Plot, error) {
	p := newPlot(r.Case.String(), "batch size", "device memory at the peak (GiB)")
	var names []string
	values := map[string]plotter.Values{}
	var labels []string
	for _, point := range r.Points {
		parts := point.Components()
		for _, c := range parts {
			if values[c.Name] == nil {
				names = append(names, c.Name)
				values[c.Name] = make(plotter.Values, len(r.Points))
			}
			values[c.Name][len(labels)] = float64(c.Bytes) / gib
		}
		labels = append(labels, fmt.Sprint(point.Batch))
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: the run has no components in it", r.Case.Model)
	}
	width := min(vg.Points(40), Width*7/10/vg.Length(len(labels)))
	var below *plotter.BarChart
	for i, name := range names {
		bars, err := plotter.NewBarChart(values[name], width)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = palette[i%len(palette)], vg.Points(0.3)
		bars.LineStyle.Color = color.White
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
		p.Legend.Add(name, bars)
	}
	p.NominalX(labels...)
	p.Legend.Left, p.Legend.Top = true, true
	return p, nil
}

// Timeline draws the allocated bytes over the allocations and frees of the
// step with the peak, stacked by class.
func Timeline(pr *profile.Profile) (*plot.Plot, error) {
	step, from, to := pr.PeakStep()
	p := newPlot(fmt.Sprintf("%v, batch %d, step %d (simulated)", pr.Case, pr.Batch, step), "allocations and frees", "allocated (GiB)")
	var stack [program.NumClasses]plotter.XYs
	peak := plotter.XYs{{}}
	base := plotter.XYs{}
	n := 0.0
	for i, classes := range pr.ByClass() {
		at := pr.Run.Timeline[i]
		if at.Instruction < from || at.Instruction >= to {
			continue
		}
		sum := 0.0
		for c, bytes := range classes {
			sum += float64(bytes) / gib
			stack[c] = append(stack[c], plotter.XY{X: n, Y: sum})
		}
		base = append(base, plotter.XY{X: n})
		if at.Instruction == pr.Run.Peak.Instruction {
			peak[0] = plotter.XY{X: n, Y: sum}
		}
		n++
	}
	if len(base) == 0 {
		return nil, fmt.Errorf("%s: the step allocates nothing", pr.Case.Model)
	}
	for c, upper := range stack {
		area := append(plotter.XYs{}, upper...)
		for i := range base {
			area = append(area, base[len(base)-1-i])
		}
		base = upper
		filled, err := plotter.NewPolygon(area)
		if err != nil {
			return nil, err
		}
		filled.Color, filled.Width = palette[c], 0
		p.Add(filled)
		p.Legend.Add(program.Class(c).String(), filled)
	}
	mark, err := plotter.NewScatter(peak)
	if err != nil {
		return nil, err
	}
	mark.Shape, mark.Radius = draw.TriangleGlyph{}, vg.Points(4)
	p.Add(mark)
	p.Legend.Add("peak", mark)
	p.Legend.Top = true
	p.Y.Min, p.Y.Max = 0, 1.05*p.Y.Max
	return p, nil
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Legend.TextStyle.Font.Size, p.Legend.Padding = vg.Points(9), vg.Points(2)
	p.Add(plotter.NewGrid())
	return p
}

// Write writes a drawing as "svg" or "png".
func Write(w io.Writer, p *plot.Plot, format string) error {
	var to vg.CanvasWriterTo
	switch strings.ToLower(format) {
	case "svg":
		to = vgsvg.New(Width, Height)
	case "png":
		to = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(Width, Height), vgimg.UseDPI(144))}
	default:
		return fmt.Errorf("there is no format %q; use svg or png", format)
	}
	p.Draw(draw.New(to))
	_, err := to.WriteTo(w)
	return err
}
