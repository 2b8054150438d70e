package plots

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/vprof/vprof/bench/report"
)

// Breakdown draws what the device's memory is made of, a stacked bar for each
// batch size.
func Breakdown(r *report.Report) (*plot.Plot, error) {
	p := newPlot(r.Case.String(), "batch size", "device memory at the peak (GiB)")
	var names, labels []string
	values := map[string]plotter.Values{}
	several := len(boards(r)) > 1
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
