// Package plots draws runs as SVG or PNG, for papers and READMEs.
package plots

import (
	"fmt"
	"image/color"
	"io"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/printable"
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
	rgb(0xe3d400), rgb(0xe69f00), rgb(0x56b4e9), rgb(0x8c6d31), rgb(0xb9bdc4), rgb(0x4a4e55),
}

func rgb(hex uint32) color.Color {
	return color.RGBA{uint8(hex >> 16), uint8(hex >> 8), uint8(hex), 255}
}

// margin is the free space around a drawing; on the right it is twice that.
const margin = vg.Length(8)

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Legend.TextStyle.Font.Size, p.Legend.Padding = vg.Points(9), vg.Points(2)
	p.Add(plotter.NewGrid())
	return p
}

// svg is a canvas whose text is escaped for XML and terminals: names come from files.
type svg struct{ *vgsvg.Canvas }

func (c svg) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	if _, err := c.Canvas.WriteTo(&b); err != nil {
		return 0, err
	}
	n, err := io.WriteString(w, printable.Text(b.String()))
	return int64(n), err
}

// Write writes a drawing as "svg" or "png".
func Write(w io.Writer, p *plot.Plot, format string) error {
	var to vg.CanvasWriterTo
	switch strings.ToLower(format) {
	case "svg":
		to = svg{vgsvg.New(Width, Height)}
	case "png":
		to = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(Width, Height), vgimg.UseDPI(144))}
	default:
		return fmt.Errorf("there is no format %q; use svg or png", format)
	}
	// The last label of an axis and a title need room.
	p.Draw(draw.Crop(draw.New(to), margin, -2*margin, margin, -margin))
	_, err := to.WriteTo(w)
	return err
}

// dashed returns a straight line in dashes.
func dashed(from, to plotter.XY, c color.Color) (*plotter.Line, error) {
	line, err := plotter.NewLine(plotter.XYs{from, to})
	if err != nil {
		return nil, err
	}
	line.Color, line.Dashes = c, []vg.Length{vg.Points(5), vg.Points(3)}
	return line, nil
}

// GPUs are the devices of a report that have points.
func gpus(r *report.Report) []report.Device {
	return slices.DeleteFunc(slices.Clone(r.Devices), func(d report.Device) bool {
		return !slices.ContainsFunc(r.Points, func(p report.Point) bool { return p.Device == d.Name })
	})
}

// Breakdown draws what the device's memory is made of, a stacked bar for each
// batch size.
func Breakdown(r *report.Report) (*plot.Plot, error) {
	p := newPlot(r.Case.String(), "batch size", "device memory at the peak (GiB)")
	var names, labels []string
	values := map[string]plotter.Values{}
	several := len(gpus(r)) > 1
	for i, point := range r.Points {
		for _, c := range point.Components() {
			if values[c.Name] == nil {
				names = append(names, c.Name)
				values[c.Name] = make(plotter.Values, len(r.Points))
			}
			values[c.Name][i] = float64(c.Bytes) / gib
		}
		label := fmt.Sprint(point.Batch)
		if several {
			label += "\n" + point.Device
		}
		labels = append(labels, label)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: the run has no components in it", r.Case.Model)
	}
	width := min(vg.Points(40), Width*7/10/vg.Length(len(labels)))
	stack := make([]*plotter.BarChart, len(names))
	for i, name := range names {
		bars, err := plotter.NewBarChart(values[name], width)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = palette[i%len(palette)], vg.Points(0.3)
		bars.LineStyle.Color = color.White
		if i > 0 {
			bars.StackOn(stack[i-1])
		}
		stack[i] = bars
		p.Add(bars)
	}
	// The legend is in the order of the stack, from the top.
	for i := range names {
		last := len(names) - 1 - i
		p.Legend.Add(names[last], stack[last])
	}
	p.NominalX(labels...)
	p.X.Min, p.X.Max = -0.6, float64(len(labels))-0.4
	p.Y.Min, p.Y.Max = 0, 1.05*p.Y.Max
	p.Legend.Left, p.Legend.Top = true, true
	return p, nil
}
