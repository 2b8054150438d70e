package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
)

// Sheets are the tables of a report.
func (r *Report) Sheets() []Sheet {
	switch {
	case r.Kind == Sweep && len(r.Devices) > 1:
		var sheets []Sheet
		for _, d := range r.Devices {
			sheets = append(sheets, r.on(d).sweepSheet())
		}
		return sheets
	case r.Kind == Sweep:
		return []Sheet{r.sweepSheet()}
	case len(r.Devices) > 1:
		return append([]Sheet{r.boardsSheet()}, r.lengthsSheets()...)
	default:
		return append([]Sheet{r.componentsSheet()}, r.lengthsSheets()...)
	}
}

// String says what the device is, in a few words.
func (d Device) String() string {
	kind := ""
	if d.Simulated {
		kind = "simulated "
	}
	s := fmt.Sprintf("%s%s with %s", kind, d.Title, bytesize.Format(d.Memory))
	if place := d.place(); place != "" {
		s += ", " + place
	}
	if d.Driver != "" {
		s += ", driver " + d.Driver
	}
	return s
}

// on is what the report says of one of its devices.
func (r *Report) on(d Device) *Report {
	part := *r
	part.Devices, part.Points = []Device{d}, nil
	for _, p := range r.Points {
		if p.Device == d.Name {
			part.Points = append(part.Points, p)
		}
	}
	return &part
}

// word for a run: a simulated one is never called measured.
func (d Device) run() string {
	if d.Simulated {
		return "simulated"
	}
	return "measured"
}

// notes are the lines below tables that show intervals.
func (r *Report) notes() []string {
	var notes []string
	for _, c := range r.Coefficients {
		if c.Name == "allocated_residual" {
			notes = append(notes, "[low, high]: 95 % of "+c.Source+" lie in such a range; device adds what is not known of the context.")
		}
	}
	if slices.ContainsFunc(r.Points, func(p Point) bool { return p.Run == nil && p.Verdict() == Slow }) {
		notes = append(notes, slowWords)
	}
	notes = append(notes, rankNotes(r.Case, slices.ContainsFunc(r.Points, func(p Point) bool { return p.Run != nil }))...)
	return append(append(notes, r.sideNotes()...), warningNotes(r.Warnings)...)
}

// rankNotes say what figures of several GPUs are of, and what runs of them are.
func rankNotes(c Case, runs bool) []string {
	if c.Strategy == nil {
		return nil
	}
	which := "the rank that needs most"
	if c.Strategy.Rank != nil {
		which = fmt.Sprintf("rank %d", *c.Strategy.Rank)
	}
	notes := []string{fmt.Sprintf("figures are of %s of %d; samples per second are of all. What NCCL takes (communication) is an assumption.", which, c.GPUs)}
	if runs {
		notes = append(notes, "a run has one rank on one board: its buffers are there, and collectives are copies of the same bytes; NCCL itself is not.")
	}
	return notes
}

// sideNotes say what streaming and expandable segments would save, and where the guide's figures stand.
func (r *Report) sideNotes() []string {
	return slices.DeleteFunc([]string{r.StreamingNote(), r.slackNote(), r.workspaceNote(), r.claimNote()}, func(note string) bool { return note == "" })
}

// workspaceNote says which workspaces of convolutions are cuDNN's own answers.
func (r *Report) workspaceNote() string {
	var parts []string
	modeled := false
	for _, p := range r.Points {
		if w := p.Workspaces; w != nil {
			parts = append(parts, fmt.Sprintf("batch %d: %d of %d", p.Batch, w.Asked, w.Asked+w.Modeled))
			modeled = modeled || w.Modeled > 0
		}
	}
	if parts == nil {
		return ""
	}
	note := "workspaces of convolutions as cuDNN itself said: " + strings.Join(parts, ", ")
	if modeled {
		note += "; the others are modeled (vprof cudnn ask asks for them)"
	}
	return note
}

// warningNotes is a line for each warning.
func warningNotes(warnings []Warning) []string {
	var notes []string
	for _, w := range warnings {
		line := "warning: " + w.What
		if w.Hint != "" {
			line += "; " + w.Hint
		}
		notes = append(notes, line)
	}
	return notes
}

// sweepSheet has a row for every batch size: the estimate, and beside it what
// the run needed.
func (r *Report) sweepSheet() Sheet {
	var highest []int64
	for _, p := range r.Points {
		if p.Estimate != nil {
			highest = append(highest, p.Estimate.Device.High)
		}
		if p.Run != nil {
			highest = append(highest, p.Run.Device)
		}
	}
	word := "simulated"
	s := Sheet{Title: r.Case.String()}
	if len(r.Devices) > 0 {
		word = r.Devices[0].run()
		s.Title += "; " + r.Devices[0].String()
	}
	c := columnOf(highest...)
	s.Columns = []Column{{Head: "batch", Right: true}}
	estimated := []string{"allocated", "reserved", "device"}
	if r.Case.Dataset > 0 {
		estimated = append(estimated, "streamed")
	}
	minor := map[string]int{"allocated": 5, "reserved": 4, "streamed": 1}
	for _, head := range estimated {
		s.Columns = append(s.Columns, Column{Head: head, Group: c.head("estimate"), Right: true, Minor: minor[head]})
	}
	for _, head := range []string{"allocated", "reserved", "device"} {
		s.Columns = append(s.Columns, Column{Head: head, Group: c.head(word), Right: true, Minor: minor[head]})
	}
	claimed := r.claimed()
	if claimed {
		s.Columns = append(s.Columns, Column{Head: "guide " + c.scale.Unit(), Right: true, Minor: 2})
	}
	s.Columns = append(s.Columns, Column{Head: "error", Right: true, Minor: 2},
		Column{Head: r.stepHead(), Right: true, Minor: 3}, Column{Head: r.Case.BatchUnit + "s/s", Right: true, Minor: 3},
		Column{Head: "peak in", Minor: 2}, Column{Head: "fits"})
	for _, p := range r.Points {
		row := append([]string{strconv.Itoa(p.Batch)}, estimateCells(p.Estimate, c)...)
		if r.Case.Dataset > 0 {
			row = append(row, streamedCell(p, c))
		}
		row = append(row, runCells(p.Run, c)...)
		if claimed {
			row = append(row, p.claim(c))
		}
		row = append(row, errorCell(p))
		row = append(row, timeCells(p.Run)...)
		s.Rows = append(s.Rows, append(row, peakCell(p), fitsCell(p)))
	}
	s.Bars = r.bars()
	s.Notes = append(r.findingNotes(word), r.notes()...)
	return s
}

func estimateCells(e *Estimate, c column) []string {
	if e == nil {
		return []string{"-", "-", "-"}
	}
	return []string{c.scale.Format(e.Allocated.Bytes), c.scale.Format(e.Reserved.Bytes), c.interval(e.Device)}
}

func runCells(u *Run, c column) []string {
	switch {
	case u == nil:
		return []string{"-", "-", "-"}
	case !u.Fits:
		return []string{"OOM", "OOM", "OOM"}
	}
	return []string{c.scale.Format(u.Allocated), c.scale.Format(u.Reserved), c.scale.Format(u.Device)}
}

// Error is how far the estimate of the device's bytes is from what the run
// needed, as a share of that; the kernels that stood for PyTorch's are left out.
// It is false for a point without both, and for a run that had to give cached
// memory back: that held less than it would have on a board with room, of which
// the estimate speaks.
func (p Point) Error() (float64, bool) {
	if p.Estimate == nil || p.Run == nil || !p.Run.Fits || p.Run.Retries > 0 || p.Run.Device == 0 {
		return 0, false
	}
	needed := p.Run.Device - p.Run.Kernels
	expected := p.Estimate.Device.Bytes
	for _, c := range p.Estimate.Components {
		if c.Name == communication { // one board alone does not communicate
			expected -= c.Bytes
		}
	}
	return float64(expected-needed) / float64(needed), true
}

// communication is the component of what NCCL takes.
const communication = "communication"

func errorCell(p Point) string {
	share, ok := p.Error()
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%+.1f %%", 100*share)
}

func timeCells(u *Run) []string {
	if u == nil || u.Step == nil {
		return []string{"-", "-"}
	}
	step := threeDigits(1e3 * u.Step.Seconds)
	if u.Step.Most > u.Step.Least {
		step += fmt.Sprintf(" (%s to %s)", threeDigits(1e3*u.Step.Least), threeDigits(1e3*u.Step.Most))
	}
	return []string{step, threeDigits(u.Step.SamplesPerSecond)}
}

// threeDigits shows a figure that is not negative as exactly as a timing is.
func threeDigits(v float64) string {
	return strconv.FormatFloat(v, 'f', min(max(2-int(math.Floor(math.Log10(max(v, 1e-9)))), 0), 4), 64)
}

func peakCell(p Point) string {
	switch {
	case p.Run != nil && p.Run.OOM != nil:
		return p.Run.OOM.Phase
	case p.Run != nil:
		return p.Run.PeakPhase
	case p.Estimate != nil:
		return p.Estimate.PeakPhase
	}
	return "-"
}

func fitsCell(p Point) string {
	switch {
	case p.Run != nil:
		word := map[Verdict]string{Fits: "yes", DoesNotFit: "no"}[p.Verdict()]
		if word == "" {
			word = string(p.Verdict())
		}
		if p.Run.Shared {
			word += ", beside others"
		}
		return word
	case p.Estimate != nil:
		return string(p.Estimate.Verdict)
	}
	return "-"
}

// findingNotes say what fits at most, what hardly fits, what failed first, what
// was left out because of it, and what the times mean.
func (r *Report) findingNotes(word string) []string {
	var notes []string
	if l := r.Largest; l != nil {
		notes = append(notes, l.String()+".")
	}
	for _, p := range r.Points {
		switch {
		case p.Run == nil:
		case p.Run.OOM != nil:
			notes = append(notes, fmt.Sprintf("batch %d is out of memory (%s): %s.", p.Batch, word, p.Run.OOM))
		case p.Run.Retries > 0:
			notes = append(notes, fmt.Sprintf("batch %d fits only since PyTorch gives back cached memory, %s in these steps; that is slow.", p.Batch, timesOver(p.Run.Retries)))
		}
	}
	if r.Stopped != nil && len(r.Stopped.Left) > 0 {
		left := make([]string, len(r.Stopped.Left))
		for i, b := range r.Stopped.Left {
			left[i] = strconv.Itoa(b)
		}
		notes = append(notes, fmt.Sprintf("not run: batch %s (%s).", strings.Join(left, ", "), r.Stopped.Reason))
	}
	if note := r.stepNote(); note != "" {
		notes = append(notes, note)
	}
	if note := r.besidesNote(); note != "" {
		notes = append(notes, note)
	}
	if i := slices.IndexFunc(r.Points, func(p Point) bool { return p.Run != nil && p.Run.Verified > 0 }); i >= 0 {
		notes = append(notes, fmt.Sprintf("verified: each tensor's pattern was found again, %d at batch %d.", r.Points[i].Run.Verified, r.Points[i].Batch))
	}
	return notes
}

// driven is the device below which there is a driver, if the report has one.
func (r *Report) driven() (Device, bool) {
	i := slices.IndexFunc(r.Devices, func(d Device) bool { return d.CUDA != "" })
	if i < 0 {
		return Device{}, false
	}
	return r.Devices[i], true
}

// stepHead is the head of step times. What ran on a GPU are kernels that stand for
// PyTorch's.
func (r *Report) stepHead() string {
	if d, ok := r.driven(); ok && !d.Simulated {
		return "synthetic ms/step"
	}
	return "ms/step"
}

// stepNote says what the step times are; empty without any.
func (r *Report) stepNote() string {
	i := slices.IndexFunc(r.Points, func(p Point) bool { return p.Run != nil && p.Run.Step != nil })
	if i < 0 {
		return ""
	}
	d, driven := r.driven()
	switch u := r.Points[i].Run; {
	case u.Simulated && driven:
		return "ms/step is what the clock of a simulated driver says; no GPU ran."
	case u.Simulated:
		return "ms/step is the time below which the board cannot be; nothing ran."
	default:
		note := fmt.Sprintf("synthetic ms/step: kernels with the traffic and the arithmetic of PyTorch's, the median of %d after %d to warm up", u.Repeat, u.WarmUp)
		slowest := &Timing{}
		for _, p := range r.Points {
			if p.Run == nil || p.Run.Step == nil {
				continue
			}
			if s := p.Run.Step; slowest.SMMHz == 0 || s.SMMHz < slowest.SMMHz {
				slowest = s
			}
		}
		if slowest.SMMHz > 0 {
			note += fmt.Sprintf("; clocks of %s down to %d MHz", d.Name, slowest.SMMHz)
		}
		if len(slowest.Slowdowns) > 0 {
			note += " for " + strings.Join(slowest.Slowdowns, ", ")
		}
		return note + "."
	}
}

// besidesNote says what measured device bytes have besides the reserved ones;
// empty if nothing was measured.
func (r *Report) besidesNote() string {
	var first, highest *Run
	for _, p := range r.Points {
		if p.Run == nil || p.Run.Simulated {
			continue
		}
		if first == nil {
			first, highest = p.Run, p.Run
		}
		if p.Run.Process > highest.Process {
			highest = p.Run
		}
	}
	if first == nil {
		return ""
	}
	note := "device: besides the reserved bytes the GPU shows " + bytesize.Format(first.Context) + " of context"
	if first.Kernels > 0 {
		note += " and " + bytesize.Format(first.Kernels) + " of the kernels that stand for PyTorch's, which the error leaves out"
	}
	if first.Others > 0 {
		note += "; the " + bytesize.Format(first.Others) + " of other processes are not in it"
	}
	if highest.Process > 0 {
		note += "; NVML shows up to " + bytesize.Format(highest.Process) + " of this process"
	}
	return note + "."
}

// String says what was found in a few words.
func (l *Largest) String() string {
	switch {
	case l.Batch == 0:
		return fmt.Sprintf("no batch fits: %d does not", l.Fails)
	case l.Fails == 0:
		return fmt.Sprintf("largest batch tried: %d fits", l.Batch)
	}
	return fmt.Sprintf("largest batch that fits: %d; %d does not", l.Batch, l.Fails)
}

// String says which tensor of which op and phase failed.
func (o *OOM) String() string {
	where := o.Op
	if o.Node != "" {
		where += " of " + o.Node
	}
	if o.Module != "" {
		where += " in " + o.Module
	}
	if o.Line != "" {
		where += " (" + o.Line + ")"
	}
	return fmt.Sprintf("phase %s, %s asked for %s of %s with %s left", o.Phase, where, bytesize.Format(o.Want), o.Class, bytesize.Format(o.Free))
}

// componentsSheet has a column for every batch size and a row for every
// component of the device's memory.
func (r *Report) componentsSheet() Sheet {
	s := Sheet{Title: r.Case.String(), Columns: []Column{{}}, Bars: r.bars(), Notes: r.notes()}
	if len(r.Devices) > 0 {
		s.Title += "; " + r.Devices[0].String()
	}
	if len(r.Points) == 0 {
		return s
	}
	var high []int64
	for _, p := range r.Points {
		high = append(high, p.Estimate.Device.High)
	}
	c := columnOf(high...)
	s.Columns[0].Head = c.scale.Unit() + " at the peak"
	for i := range r.Points[0].Estimate.Components {
		s.Rows = append(s.Rows, []string{r.Points[0].Estimate.Components[i].Name})
	}
	totals := []string{"allocated", "reserved", "device", "peak in", "verdict"}
	if r.Case.Dataset > 0 {
		totals = slices.Insert(totals, 3, "device, streamed")
	}
	claimed := r.claimed()
	if claimed {
		totals = slices.Insert(totals, len(totals)-2, "guide")
	}
	for _, name := range totals {
		s.Rows = append(s.Rows, []string{name})
		s.Totals++
	}
	for _, p := range r.Points {
		e := p.Estimate
		s.Columns = append(s.Columns, Column{Head: "batch " + strconv.Itoa(p.Batch), Right: true})
		var cells []string
		for _, part := range e.Components {
			cells = append(cells, c.scale.Format(part.Bytes))
		}
		cells = append(cells, c.interval(e.Allocated), c.interval(e.Reserved), c.interval(e.Device))
		if r.Case.Dataset > 0 {
			cells = append(cells, streamedCell(p, c))
		}
		if claimed {
			cells = append(cells, p.claim(c))
		}
		cells = append(cells, e.PeakPhase, string(e.Verdict))
		for i, cell := range cells {
			s.Rows[i] = append(s.Rows[i], cell)
		}
	}
	return s
}

// boardsSheet has a row for every board and a column for every batch size.
func (r *Report) boardsSheet() Sheet {
	s := Sheet{
		Title: r.Case.String(), Bars: r.bars(), Notes: warningNotes(r.Warnings),
		Columns: []Column{{Head: "gpu"}},
	}
	var high, total []int64
	for _, d := range r.Devices {
		total = append(total, d.Memory)
	}
	batches := map[int]int{} // batch to column
	for _, p := range r.Points {
		high = append(high, p.Estimate.Device.High)
		if _, seen := batches[p.Batch]; !seen {
			batches[p.Batch] = len(batches)
		}
	}
	c, m := columnOf(high...), columnOf(total...)
	s.Columns = append(s.Columns, Column{Head: m.head("memory"), Right: true})
	heads := make([]Column, len(batches))
	for b, i := range batches {
		heads[i] = Column{Head: "batch " + strconv.Itoa(b), Group: c.head("device"), Right: true}
	}
	s.Columns = append(s.Columns, heads...)
	claims := map[int]int{} // batch to column, of those that a guide says something of
	for _, p := range r.Points {
		if _, seen := claims[p.Batch]; len(p.Claims) > 0 && !seen {
			claims[p.Batch] = len(s.Columns)
			s.Columns = append(s.Columns, Column{Head: "batch " + strconv.Itoa(p.Batch), Group: c.head("guide"), Right: true})
		}
	}
	for _, d := range r.Devices {
		row := make([]string, len(s.Columns))
		row[0], row[1] = r.called(d), m.scale.Format(d.Memory)
		for _, p := range r.Points {
			if p.Device != d.Name {
				continue
			}
			row[2+batches[p.Batch]] = c.scale.Format(p.Estimate.Device.Bytes) + mark(p.Estimate.Verdict)
			if at, ok := claims[p.Batch]; ok {
				row[at] = p.claim(c)
			}
		}
		s.Rows = append(s.Rows, row)
	}
	s.Notes = append([]string{marks}, append(r.sideNotes(), s.Notes...)...)
	return s
}

// slowWords says what [Slow] means.
const slowWords = "fits slowly: only since PyTorch gives cached memory back to the driver and asks for it again."

// marks says what the marks mean.
const marks = "? tight: the upper end of what it may need is more than the board has; ~ fits slowly: only since PyTorch gives back cached memory; ! does not fit."

// mark is what a cell shows of a verdict besides the number.
func mark(v Verdict) string {
	return map[Verdict]string{Fits: "  ", Tight: " ?", Slow: " ~", DoesNotFit: " !"}[v]
}

// timesOver says how often something happened.
func timesOver(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
