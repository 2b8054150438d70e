package page

import (
	_ "embed" // the frame of pictures
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/profile"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
)

// Picture is a chart of a page as an SVG file, for papers and READMEs.
type Picture struct {
	Title    string
	Height   int
	Charts   []chartPicture
	Timeline *timelinePicture
	Legend   []placedEntry
}

// chartPicture is the chart of one device: of peaks, or a breakdown if Peaks is nil.
type chartPicture struct {
	// Top is the position of the chart, Depth the height of its rows, AxisTop the axis's position below Top, in pixels.
	Top, Depth, AxisTop int

	Heading string
	Peaks   *peakChart
	Rows    []rowPicture
}

// rowPicture is a row of a chart: a peak with its marks, or the parts of a bar.
type rowPicture struct {
	Top         int
	Name, Value string
	Peak        *peakRow
	Parts       []part
}

// placedEntry is an entry of a legend with its position. Key is a CSS class; it is empty for a mark.
type placedEntry struct {
	entry
	Key       string
	Left, Top int
}

// Sizes of pictures in pixels.
const (
	titleHeight   = 44
	headingHeight = 24
	rowHeight     = 36
	axisHeight    = 44
	legendColumns = 3
	legendWidth   = 245
	legendHeight  = 22
)

//go:embed picture.svg.tmpl
var pictureMarkup string

//go:embed charts.css
var chartStyle string

// pictureStyle adds the text style that a page sets outside of its charts.
const pictureStyle = `text { fill: var(--ink); font: 12px system-ui, sans-serif; }
.title { font-size: 16px; } .name { text-anchor: end; } .paper { fill: var(--card); } .track { fill: var(--track); }
.reserved { fill: none; stroke: var(--ink); stroke-dasharray: 3 2; } .peak { fill: var(--ink); }
`

// variable matches the definition of a color in the page's style, which lists the light colors first.
var variable = regexp.MustCompile(`--([a-z]+): (#\w+);`)

// pictureCSS returns the style of pictures. It replaces CSS variables by their colors, since few SVG viewers read them.
func pictureCSS() template.CSS {
	light, _, _ := strings.Cut(style, "}")
	var colors []string
	for _, m := range variable.FindAllStringSubmatch(light, -1) {
		colors = append(colors, "var(--"+m[1]+")", m[2])
	}
	return template.CSS(strings.NewReplacer(colors...).Replace(pictureStyle + chartStyle)) //nolint:gosec // it is ours
}

// Write writes the picture.
func (p *Picture) Write(w io.Writer) error {
	return execute(w, pictureMarkup, struct {
		*Picture
		Style template.CSS
	}{p, pictureCSS()})
}

// add appends a chart below the others.
func (p *Picture) add(c chartPicture) {
	c.Top, c.Depth = p.Height, len(c.Rows)*rowHeight
	c.AxisTop = headingHeight + c.Depth
	for i := range c.Rows {
		c.Rows[i].Top = headingHeight + i*rowHeight
	}
	p.Height += headingHeight + c.Depth
	if c.Peaks != nil {
		p.Height += axisHeight
	}
	p.Charts = append(p.Charts, c)
}

func (p *Picture) addLegend(entries []placedEntry) {
	for i := range entries {
		entries[i].Left = 16 + i%legendColumns*legendWidth
		entries[i].Top = p.Height + 12 + i/legendColumns*legendHeight
	}
	p.Legend = entries
	p.Height += 24 + (len(entries)+legendColumns-1)/legendColumns*legendHeight
}

// Peaks returns a picture of the reserved peak of each batch size: the estimate with its interval, the runs, and the
// memory of each GPU.
func Peaks(r *report.Report) (*Picture, error) {
	page := &Page{Runs: []*report.Report{r}}
	if err := page.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", r.Case.Model, err)
	}
	p := &Picture{Title: r.Case.String(), Height: titleHeight}
	var legend []entry
	for _, s := range page.series() {
		chart := page.peakChart(s, 0)
		c := chartPicture{Heading: "reserved at the peak by batch size, " + chart.Device, Peaks: &chart}
		for i, row := range chart.Rows {
			value := row.Value
			switch {
			case row.OOM:
				value = "does not fit"
			case value == "":
				value = row.Estimate
			}
			c.Rows = append(c.Rows, rowPicture{Name: row.Batch, Value: value, Peak: &chart.Rows[i]})
		}
		p.add(c)
		legend = lists.Union(legend, chart.Legend...)
	}
	p.addLegend(lists.Map(legend, func(e entry) placedEntry { return placedEntry{entry: e} }))
	return p, nil
}

// Breakdown returns a picture of the components of each GPU's memory, with a bar for each batch size.
func Breakdown(r *report.Report) (*Picture, error) {
	p := &Picture{Title: r.Case.String(), Height: titleHeight}
	var all []breakdown
	for _, s := range (&Page{Runs: []*report.Report{r}}).series() {
		b := newBreakdown(s, 0)
		c := chartPicture{Heading: "device memory at the peak by batch size, " + b.Device}
		for _, row := range b.Rows {
			c.Rows = append(c.Rows, rowPicture{Name: row.Batch, Value: bytesize.Format(row.Total), Parts: row.Parts})
		}
		p.add(c)
		all = append(all, b)
	}
	entries := lists.Map(legend(all), func(c part) placedEntry { return placedEntry{entry{Text: c.Name}, c.Key, 0, 0} })
	if len(entries) == 0 {
		return nil, fmt.Errorf("%s: the run has no memory components to draw; make it with vprof plan or sweep",
			r.Case.Model)
	}
	p.addLegend(entries)
	return p, nil
}

// timelinePicture is a chart of the allocated memory over a step. Positions are shares of its width and height.
type timelinePicture struct {
	Ticks, Phases []axisTick
	Areas         []area
	Reserved      string
	Peak          barSpan // its position: From the left, Width from the top
}

// area is the SVG path of a class in the stacked chart.
type area struct{ Name, Key, Path string }

// The size of a timeline in pixels, and the number of points beyond which they are merged.
const (
	timelineWidth, timelineHeight = 660, 320
	timelineColumns               = 1500
)

// moment holds the bytes of each class after an allocation or free.
type moment struct {
	classes         []int64
	total, reserved int64
}

// Timeline returns a picture of the allocated bytes over a step, stacked by class, with the peak, the phases and the
// reserved bytes.
func Timeline(pr *profile.Profile) (*Picture, error) {
	step, from, to := pr.PeakStep()
	data := timeline(pr, from, to)
	all := moments(&data)
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: the step allocates nothing, so there is nothing to draw", pr.Case.Model)
	}
	p := &Picture{
		Title:  fmt.Sprintf("%v, batch %d, step %d (simulated)", pr.Case, pr.Batch, step),
		Height: titleHeight + timelineHeight + axisHeight,
	}
	var top int64
	for _, m := range all {
		top = max(top, m.reserved, m.total)
	}
	top += top / 8 // room for the names of phases
	seen := columnPeaks(all)
	at := func(i int) float64 { return float64(i) / float64(len(all)) }
	down := func(bytes int64) float64 { return 1 - float64(bytes)/float64(max(1, top)) }
	line := func(bytes func(moment) int64) string {
		var path strings.Builder
		for _, i := range seen {
			fmt.Fprintf(&path, "L%.1f %.1f", timelineWidth*at(i), timelineHeight*down(bytes(all[i])))
		}
		return "M" + path.String()[1:]
	}
	t := &timelinePicture{
		Reserved: line(func(m moment) int64 { return m.reserved }),
		Peak:     barSpan{at(data.Peak), down(all[data.Peak].total)},
	}
	for _, mark := range ticks(top) {
		t.Ticks = append(t.Ticks, axisTick{1 - mark.At, mark.Label})
	}
	for _, phase := range data.Phases {
		mark := axisTick{At: at(phase.From)}
		if phase.To-phase.From > len(all)/12 { // room for its name
			mark.Label = phase.Name
		}
		t.Phases = append(t.Phases, mark)
	}
	var entries []placedEntry
	for c := program.NumClasses - 1; c >= 0; c-- { // the highest area lies behind the others
		through := func(m moment) (sum int64) {
			for _, bytes := range m.classes[:c+1] {
				sum += bytes
			}
			return sum
		}
		name := program.Class(c).String()
		if !hasClass(all, c) {
			continue
		}
		path := line(through) + fmt.Sprintf("L%.1f %dL0 %dz", timelineWidth*at(seen[len(seen)-1]), timelineHeight,
			timelineHeight)
		t.Areas = append(t.Areas, area{name, cssKey(name), path})
		entries = append(entries, placedEntry{entry: entry{Text: name}, Key: cssKey(name)})
	}
	p.Timeline = t
	p.addLegend(entries)
	return p, nil
}

func hasClass(all []moment, class int) bool {
	return slices.ContainsFunc(all, func(m moment) bool { return m.classes[class] > 0 })
}

// moments returns the bytes of each class after each event of a step.
func moments(d *stepData) []moment {
	now := moment{classes: d.Start}
	for _, bytes := range d.Start {
		now.total += bytes
	}
	all := make([]moment, len(d.Events))
	changes := d.Reserved
	for i, b := range d.Events {
		sign := int64(1)
		if b < 0 {
			b, sign = -1-b, -1
		}
		now.classes = append([]int64(nil), now.classes...)
		now.classes[d.Class[b]] += sign * d.Bytes[b]
		now.total += sign * d.Bytes[b]
		for len(changes) > 0 && changes[0][0] <= int64(i) {
			now.reserved, changes = changes[0][1], changes[1:]
		}
		all[i] = now
	}
	return all
}

// columnPeaks returns the index of the moment with the most bytes in each column of pixels, so that no peak is lost.
func columnPeaks(all []moment) []int {
	n := min(timelineColumns, len(all))
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
