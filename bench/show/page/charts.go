package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
)

// deviceSeries holds the points of all runs on one device, by batch size.
type deviceSeries struct {
	device report.Device
	points []report.Point
}

func (p *Page) series() []deviceSeries {
	var all []deviceSeries
	at := map[string]int{}
	for _, r := range p.Runs {
		for _, point := range r.Points {
			i, seen := at[point.Device]
			if !seen {
				i = len(all)
				at[point.Device] = i
				d, _ := r.Find(point.Device)
				all = append(all, deviceSeries{device: d})
			}
			all[i].points = append(all[i].points, point)
		}
	}
	for _, s := range all {
		slices.SortStableFunc(s.points, func(a, b report.Point) int { return cmp.Compare(a.Batch, b.Batch) })
	}
	return all
}

func (p *Page) verdict() (sentence string, good, bad bool) {
	if s := p.Runs[0].Script; s != nil {
		return p.Runs[0].Case.Model + ": " + strings.Join(p.Runs[0].Sheets()[0].Answer, " "),
			s.Result == "fits" && s.Unsafe == "" && !s.Growth.Fills(), s.Result == "out of memory"
	}
	all := p.series()
	var clauses []string
	good = true
	for _, s := range all {
		clause, verdict := s.verdict(p.Runs[0].Case.Model)
		clauses = append(clauses, clause)
		good = good && verdict == report.Fits
		bad = verdict == report.DoesNotFit && len(all) == 1
	}
	return strings.Join(clauses, "; ") + ".", good, bad
}

// doubtTexts explain the verdicts other than "fits" and "does not fit".
var doubtTexts = map[report.Verdict]string{
	report.Tight:      "is not safe: the upper end of its estimate exceeds that",
	report.Slow:       "fits slowly: only because PyTorch frees cached memory",
	report.Unrecorded: "may fit: torch.compile changes its need, which is not recorded",
}

// doubtText explains a point's verdict; empty if that is "fits" or "does not fit".
func doubtText(p *report.Point) string {
	if p.Verdict() == report.Fits && p.Estimate != nil && p.Estimate.Unsafe != "" {
		return "fits, but is not safe: " + p.Estimate.Unsafe.String()
	}
	return doubtTexts[p.Verdict()]
}

func (s deviceSeries) verdict(model string) (clause string, v report.Verdict) {
	var best, unsure, failed *report.Point
	for i := range s.points {
		p := &s.points[i]
		switch {
		case doubtText(p) != "":
			unsure = p
		case p.Verdict() == report.Fits:
			best, unsure = p, nil
		default:
			failed = cmp.Or(failed, p)
		}
	}
	gpu := s.device.String()
	switch {
	case best == nil && unsure == nil:
		return fmt.Sprintf("%s does not fit a %s, not even with batch %d", model, gpu, s.points[0].Batch),
			report.DoesNotFit
	case best == nil:
		return fmt.Sprintf("%s on a %s: batch %d %s", model, gpu, unsure.Batch, doubtText(unsure)), report.Tight
	}
	need := deviceBytes(*best)
	clause = fmt.Sprintf("%s fits a %s up to batch %d, which needs %s and leaves %s", model, gpu, best.Batch,
		bytesize.Format(need), bytesize.Format(max(0, s.device.Memory-need)))
	if unsure != nil {
		clause += fmt.Sprintf("; batch %d %s", unsure.Batch, doubtText(unsure))
	}
	switch {
	case failed == nil:
	case failed.Run != nil && failed.Run.OOM != nil:
		clause += fmt.Sprintf("; batch %d runs out of memory in %s", failed.Batch, phaseText(failed.Run.OOM.Phase))
	default:
		clause += fmt.Sprintf("; batch %d does not fit", failed.Batch)
	}
	return clause, report.Fits
}

// phaseText formats a phase (STEP:PHASE) in words.
func phaseText(phase string) string {
	step, name, ok := strings.Cut(phase, ":")
	if !ok {
		return "set-up"
	}
	return name + " of step " + step
}

// deviceBytes returns the device bytes of a point's run, or else of its estimate.
func deviceBytes(p report.Point) int64 {
	if p.Run != nil {
		return p.Run.Device
	}
	return p.Estimate.Device.Bytes
}

// peakChart is the chart of the reserved peak of each batch size on one device. Positions are shares of the chart's
// width.
type peakChart struct {
	Device string
	Rows   []peakRow
	Ticks  []axisTick
	// Limit is the position of the GPU's memory limit.
	Limit      float64
	LimitLabel string
	// Legend explains the kinds of marks in the chart.
	Legend []entry
}

// entry is an entry of a chart's legend.
type entry struct{ Kind, Text string }

// legendTexts explain the kinds of marks, in the order of legends.
var legendTexts = []entry{
	{"estimate", "estimate, with its interval"},
	{"simulated", "simulated"},
	{"measured", "measured"},
	{"reference", "PyTorch itself (reference record)"},
	{"claim", "estimate in the guide"},
	{"limit", "end of the GPU's memory"},
}

// peakRow is the row of a batch size.
type peakRow struct {
	Batch string
	// OOM reports whether the batch does not fit, Unsure whether its verdict is neither that nor "fits". Value is the
	// run's reserved memory as text.
	OOM             bool
	Unsure          report.Verdict
	Value, Estimate string
	Interval        *barSpan
	// Claim is the range of the guide's estimate; nil without one.
	Claim *barSpan
	Marks []barMark
	// Label describes the row in words.
	Label string
}

// barSpan is a horizontal range of a chart.
type barSpan struct{ From, Width float64 }

// barMark marks a value in a row. Its kind is estimate, simulated, measured, reference or claim.
type barMark struct {
	Kind string
	At   float64
	// Lane is the mark's distance from the top of the row, in pixels. Marks of different kinds often have nearly the
	// same value and must not hide each other.
	Lane  int
	Label string
}

// markLanes are the vertical positions of the kinds of marks.
var markLanes = map[string]int{"reference": 7, "claim": 7, "estimate": 17, "simulated": 27, "measured": 27}

// axisTick is a labeled position on an axis.
type axisTick struct {
	At    float64
	Label string
}

// peaksTop returns the end of the axis of the chart of peaks, in bytes.
func (s deviceSeries) peaksTop() int64 {
	limit := s.device.Memory - s.device.Context
	top := limit
	for _, point := range s.points {
		if point.Estimate != nil {
			top = max(top, point.Estimate.Reserved.High)
		}
		if point.Run != nil {
			top = max(top, point.Run.Reserved)
		}
	}
	// The axis ends soon after the GPU's memory, so that other bars stay legible beside a plan far beyond it.
	return min(top+top/25, 4*limit)
}

// peakChart returns the chart of peaks on one device; least is the smallest end of its axis in bytes.
func (p *Page) peakChart(s deviceSeries, least int64) peakChart {
	limit := s.device.Memory - s.device.Context
	top := max(least, s.peaksTop())
	share := func(n int64) float64 { return min(1, float64(n)/float64(top)) }
	c := peakChart{
		Device: s.device.String(), Limit: share(limit), Ticks: ticks(top),
		LimitLabel: fmt.Sprintf("%s for PyTorch", bytesize.Format(limit)),
	}
	for _, point := range s.points {
		c.Rows = append(c.Rows, p.peakRow(s.device, point, share))
	}
	for _, e := range legendTexts {
		if e.Kind == "limit" || slices.ContainsFunc(c.Rows, func(r peakRow) bool { return r.has(e.Kind) }) {
			c.Legend = append(c.Legend, e)
		}
	}
	return c
}

func (r peakRow) has(kind string) bool {
	return slices.ContainsFunc(r.Marks, func(m barMark) bool { return m.Kind == kind })
}

func (p *Page) peakRow(d report.Device, point report.Point, share func(int64) float64) peakRow {
	row := peakRow{Batch: fmt.Sprint(point.Batch), OOM: point.Verdict() == report.DoesNotFit}
	if v := point.Verdict(); doubtTexts[v] != "" {
		row.Unsure = v
	}
	add := func(kind string, n int64, what string) {
		row.Marks = append(row.Marks, barMark{kind, share(n), markLanes[kind], what + " " + bytesize.Format(n)})
	}
	if e := point.Estimate; e != nil {
		row.Interval = &barSpan{share(e.Reserved.Low), share(e.Reserved.High) - share(e.Reserved.Low)}
		add("estimate", e.Reserved.Bytes, "estimate")
		row.Estimate = "est. " + bytesize.Format(e.Reserved.Bytes)
	}
	if u := point.Run; u != nil && u.Fits {
		add(u.Kind(), u.Reserved, u.Kind())
		row.Value = bytesize.Format(u.Reserved)
	}
	for _, r := range p.References {
		if r.Batch == point.Batch && r.GPU == d.GPU && r.Status == reference.StatusOK {
			add("reference", r.PeakReserved, "PyTorch")
		}
	}
	if claim, ok := claimedRange(point, d.Context); ok {
		c := point.Claims[0]
		row.Claim = &barSpan{share(claim.Low), share(claim.High) - share(claim.Low)}
		row.Marks = append(row.Marks, barMark{
			"claim", (share(claim.Low) + share(claim.High)) / 2, markLanes["claim"],
			"guide " + c.Quote + phrase.If(c.Quantity == "device", " (drawn less the context)") + ", " + c.Where,
		})
	}
	words := lists.Map(row.Marks, func(m barMark) string { return m.Label })
	row.Label = fmt.Sprintf("batch %d: %s", point.Batch, strings.Join(words, ", "))
	row.Label += phrase.If(row.OOM || row.Unsure != "", ", %s", string(point.Verdict()))
	return row
}

// claimedRange returns the range of reserved bytes that a guide estimates for a point: device bytes without the
// context.
func claimedRange(p report.Point, context int64) (report.ByteRange, bool) {
	if len(p.Claims) == 0 || p.Claims[0].Bytes == nil {
		return report.ByteRange{}, false
	}
	r := *p.Claims[0].Bytes
	if p.Claims[0].Quantity == "device" {
		r.Low, r.High = max(0, r.Low-context), max(0, r.High-context)
	}
	return r, true
}

// ticks returns about five round numbers of bytes up to top.
func ticks(top int64) []axisTick {
	step := int64(1 << 20)
	for _, factor := range []int64{2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2} {
		if top/step < 6 {
			break
		}
		step *= factor
	}
	var out []axisTick
	for n := int64(0); n <= top; n += step {
		label := strings.Replace(bytesize.Format(n), ".00 ", " ", 1)
		out = append(out, axisTick{float64(n) / float64(top), label})
	}
	return out
}

// breakdown is the chart of the components of a device's memory, with a row for each batch size or rank.
type breakdown struct {
	Device string
	// Unit is the meaning of a row: "batch", "rank", or "configuration" if there are several devices.
	Unit string
	Rows []breakdownRow
}

type breakdownRow struct {
	Batch string
	Total int64
	Parts []part
}

// part is a component in a bar. Positions are shares of the largest bar.
type part struct {
	Name, Key   string
	Bytes       int64
	From, Width float64
	// Share is the component's share of the bar's total.
	Share float64
}

// partsTop returns the total of the largest bar of components, in bytes.
func (s deviceSeries) partsTop() int64 {
	var top int64
	for _, p := range s.points {
		var total int64
		for _, c := range p.Components() {
			total += c.Bytes
		}
		top = max(top, total)
	}
	return top
}

// newBreakdown returns the chart of components; least is the smallest end of its axis in bytes.
func newBreakdown(s deviceSeries, least int64) breakdown {
	b := breakdown{Device: s.device.String(), Unit: "batch"}
	for _, p := range s.points {
		b.Rows = append(b.Rows, newBar(fmt.Sprint(p.Batch), p.Components()))
	}
	b.scale(max(least, s.partsTop()))
	return b
}

// newBar returns a bar whose components are placed one after the other, in bytes.
func newBar(name string, components []report.Component) breakdownRow {
	row := breakdownRow{Batch: name}
	for _, c := range components {
		row.Parts = append(row.Parts, part{Name: c.Name, Key: cssKey(c.Name), Bytes: c.Bytes, From: float64(row.Total)})
		row.Total += c.Bytes
	}
	return row
}

// scale converts positions in bytes to shares of an axis that ends at top bytes.
func (b *breakdown) scale(top int64) {
	for _, row := range b.Rows {
		for i := range row.Parts {
			p := &row.Parts[i]
			p.From /= float64(top)
			p.Width = float64(p.Bytes) / float64(top)
			p.Share = float64(p.Bytes) / float64(max(1, row.Total))
		}
	}
}

// legend returns the components that occur in a bar.
func legend(all []breakdown) []part {
	var parts []part
	for _, b := range all {
		for _, row := range b.Rows {
			parts = append(parts, row.Parts...)
		}
	}
	return lists.Map(lists.Groups(parts, func(p part) string { return p.Key }), func(of []part) part { return of[0] })
}

// cssKey returns the CSS class for a component or a class of memory.
func cssKey(name string) string { return "c-" + strings.ReplaceAll(name, " ", "-") }

// timeTable is the table of step times on one device, by batch size.
type timeTable struct {
	Device string
	// Bound reports whether the times are lower bounds, from a simulated GPU.
	Bound bool
	Rows  []timeRow
}

// timeRow is the row of a batch size; Share is its throughput divided by the highest one.
type timeRow struct {
	Batch, Time, Rate string
	Share             float64
}

func newTimeTable(s deviceSeries, unit string) timeTable {
	t := timeTable{Device: s.device.String(), Bound: s.device.Simulated}
	var most float64
	for _, p := range s.points {
		if p.Run == nil || p.Run.Step == nil {
			continue
		}
		step := p.Run.Step
		most = max(most, step.SamplesPerSecond)
		t.Rows = append(t.Rows, timeRow{
			fmt.Sprint(p.Batch), fmt.Sprintf("%.3g ms", 1e3*step.Seconds),
			fmt.Sprintf("%.4g %ss/s", step.SamplesPerSecond, unit), step.SamplesPerSecond,
		})
	}
	for i := range t.Rows {
		t.Rows[i].Share /= most
	}
	return t
}
