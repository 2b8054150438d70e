package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/printable"
)

// Bars is a bar chart below a table: a bar for each share, with a mark at the limit. Formats for programs omit it.
type Bars struct {
	// Title names the quantity whose shares are shown.
	Title string
	Bars  []Bar
}

// Bar is a share of the limit; more than 1 is beyond it.
type Bar struct {
	Label string
	Share float64
	Tone  Tone
}

// Tone is the meaning of a color, which the text next to it repeats.
type Tone uint8

// The tones.
const (
	PlainTone Tone = iota
	GoodTone
	DoubtfulTone
	BadTone
)

// colorize colors a text green, yellow or red.
func (t Tone) colorize(s string, color bool) string {
	if !color || t == PlainTone {
		return s
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", [...]int{GoodTone: 32, DoubtfulTone: 33, BadTone: 31}[t], s)
}

const (
	// barCells is the length in characters of a bar that ends at the limit, cellsAboveGPU the largest length beyond it.
	barCells      = 36
	cellsAboveGPU = 9
)

// blockRunes are bars shorter than a character.
var blockRunes = [...]string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}

// String returns the bar with the mark of the limit. A bar that is longer than the line ends in an arrow.
func (b Bar) String() string {
	units := int(b.Share*barCells*8 + 0.5)
	if b.Share > 0 && units == 0 {
		units = 1
	}
	within, beyond := min(units, barCells*8), max(0, units-barCells*8)
	line := barText(within, barCells) + "│"
	if beyond > cellsAboveGPU*8 {
		return line + strings.Repeat("█", cellsAboveGPU-1) + "▶"
	}
	return line + barText(beyond, cellsAboveGPU)
}

// barText draws eighths of characters, padded with spaces.
func barText(units, width int) string {
	s := strings.Repeat("█", units/8) + blockRunes[units%8]
	return s + strings.Repeat(" ", width-(units+7)/8)
}

func (b Bars) render(out *strings.Builder, l Layout) {
	if len(b.Bars) == 0 {
		return
	}
	width := 0
	for _, bar := range b.Bars {
		width = max(width, len(bar.Label))
	}
	if l.Width > 0 && width+barCells+cellsAboveGPU+len("   │ 100 % ") > l.Width {
		return
	}
	fmt.Fprintf(out, " %s\n", printable.Line(b.Title))
	for _, bar := range b.Bars {
		fmt.Fprintf(out, " %*s  %s %4.0f %%\n", width, printable.Line(bar.Label),
			bar.Tone.colorize(bar.String(), l.Color), 100*bar.Share)
	}
}

// gpuBarShare is the share of a GPU's memory above which a bar shows 100 %: no memory is left for anything else.
const gpuBarShare = 0.995

// mostBars is the largest number of bars that a reader can take in.
const mostBars = 30

// bars returns a bar for each point: its share of the device's memory.
func (r *Report) bars() Bars {
	if len(r.Devices) == 0 || len(r.Devices) > 1 && len(r.Points) > mostBars {
		return Bars{}
	}
	b := Bars{Title: "share of each GPU's memory"}
	if d := r.Devices[0]; len(r.Devices) == 1 {
		b.Title = "share of the " + bytesize.Format(d.Memory) + " of the " + d.Title
	}
	for _, p := range r.Points {
		d, _ := r.Find(p.Device)
		if d.Memory <= 0 {
			continue
		}
		label := "batch " + strconv.Itoa(p.Batch)
		if len(r.Devices) > 1 {
			label = r.tableName(d) + ", " + label
		}
		bytes, tone := p.need()
		share := float64(bytes) / float64(d.Memory)
		if share >= gpuBarShare {
			tone = BadTone
		}
		b.Bars = append(b.Bars, Bar{label, share, tone})
	}
	return b
}

// Verdict returns whether the point fits its device: by its run if it has one, or by its estimate.
func (p Point) Verdict() Verdict {
	switch {
	case p.Run == nil:
		return p.Estimate.Verdict
	case p.Estimate == nil:
		return p.Run.VerdictGiven("")
	}
	return p.Run.VerdictGiven(p.Estimate.Verdict)
}

// FittingBatch returns the batch size of a point that fits its device, and zero for others.
func (p Point) FittingBatch() int64 {
	if p.Verdict() != Fits {
		return 0
	}
	return int64(p.Batch)
}

var verdictTones = map[Verdict]Tone{
	Fits: GoodTone, Tight: DoubtfulTone, Slow: DoubtfulTone, Unrecorded: DoubtfulTone,
	DoesNotFit: BadTone,
}

// need returns a point's device bytes, from its run or estimate, and a color: green only if safe, not if it just fits.
func (p Point) need() (int64, Tone) {
	tone := verdictTones[p.Verdict()]
	if tone == GoodTone && p.Estimate != nil && p.Estimate.Unsafe != "" {
		tone = DoubtfulTone
	}
	if p.Run != nil && (p.Run.Fits || p.Estimate == nil) {
		return p.Run.Device, tone
	}
	return p.Estimate.Device.Bytes, tone
}
