package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/vprof/vprof/profiler/planner/steptime"
)

// draw returns an SVG of estimated against measured step times, with logarithmic axes.
func draw(text string, steps []measurement) string {
	k, err := steptime.ReadKernels(text)
	check(err)
	const side, margin = 480.0, 56.0
	const first, last = 1.0, 5.3 // powers of ten of milliseconds
	at := func(ms float64) float64 {
		return margin + (side-2*margin)*(math.Log10(ms)-first)/(last-first)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif"
 font-size="12"><title>Estimated against measured step times</title>
`, side, side)
	fmt.Fprintf(&b, "<rect width=%q height=%q fill=\"white\"/>\n",
		fmt.Sprint(side), fmt.Sprint(side))
	line := func(x1, y1, x2, y2 float64, style string) {
		fmt.Fprintf(&b, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, side-y1, x2, side-y2, style)
	}
	write := func(x, y float64, anchor, words string) {
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=%q>%s</text>\n", x, side-y, anchor, words)
	}
	const grid = `stroke="#ddd"`
	for p := first; p <= last; p++ {
		v := at(math.Pow(10, p))
		line(v, margin, v, side-margin, grid)
		line(margin, v, side-margin, v, grid)
		write(v, margin-18, "middle", fmt.Sprintf("%g ms", math.Pow(10, p)))
		write(margin-6, v-4, "end", fmt.Sprintf("%g", math.Pow(10, p)))
	}
	low, high := math.Pow(10, first), math.Pow(10, last)
	line(at(low), at(low), at(high), at(high), `stroke="#444"`)
	for _, f := range []float64{0.8, 1.25} {
		line(at(low*max(1, 1/f)), at(low*max(1, f)), at(high*min(1, 1/f)), at(high*min(1, f)),
			`stroke="#444" stroke-dasharray="4 4"`)
	}
	colors := []string{
		"#1b6ca8", "#c8553d", "#3a7d44", "#8e5aa8", "#b8860b",
		"#4b9fa5", "#7a4a2b", "#d477a6", "#6b6b6b",
	}
	seen := map[string]int{}
	for i := range steps {
		m := &steps[i]
		if _, ok := seen[m.gpu.Name]; !ok {
			seen[m.gpu.Name] = len(seen)
			y := side - margin - 16*float64(len(seen))
			fmt.Fprintf(&b, "<circle cx=\"%g\" cy=\"%g\" r=\"4\" fill=%q/>\n",
				margin+12, side-y-4, colors[seen[m.gpu.Name]%len(colors)])
			write(margin+22, y, "start", m.gpu.Name)
		}
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill=%q fill-opacity="0.8">`,
			at(1e3*m.seconds), side-at(1e3*m.estimate(k)), colors[seen[m.gpu.Name]%len(colors)])
		fmt.Fprintf(&b, "<title>%s</title></circle>\n", m.label)
	}
	write(side/2, 14, "middle", "measured step time; dashed: 25 % off")
	fmt.Fprintf(&b, `<text x="14" y="%g" text-anchor="middle" transform="rotate(-90 14 %g)">`, side/2, side/2)
	b.WriteString("estimated by vprof time</text>\n</svg>\n")
	return b.String()
}
