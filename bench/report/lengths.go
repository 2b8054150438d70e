package report

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/phrase"
)

// Lengths is the result of epochs over samples of different lengths on a GPU, replayed in one allocator.
type Lengths struct {
	// Simulated is true: no GPU was used.
	Simulated bool `json:"simulated"`
	// Source is the file or the distribution of the lengths, Setting the model's setting that the lengths are values
	// of, and Limit the length at which samples are cut.
	Source  string `json:"source"`
	Setting string `json:"setting"`
	Limit   int64  `json:"limit"`
	// Batching is the way batches are made: padded, grouped or packed. Lengths of batches are multiples of Multiple;
	// absent for one.
	Batching string `json:"batching" jsonschema:"enum=padded,enum=grouped,enum=packed"`
	Multiple int64  `json:"multiple,omitempty"`
	// Samples is the number of samples of an epoch. Mean, Longest and the quantiles are their lengths after cutting,
	// and Cut is the number of cut samples. P99 and P999 are the quantiles of 99 and 99.9 %.
	Samples int64   `json:"samples"`
	Mean    float64 `json:"mean_length"`
	P95     int64   `json:"p95_length"`
	P99     int64   `json:"p99_length,omitempty"`
	P999    int64   `json:"p999_length,omitempty"`
	Longest int64   `json:"longest"`
	Cut     int64   `json:"cut_samples,omitempty"`
	// Padding is the share of the batches' positions that no sample fills.
	Padding float64 `json:"padding_share"`
	// Steps counts the optimizer steps of an epoch, and Replayed the replayed ones, which include the longest batch.
	Steps    int `json:"steps"`
	Replayed int `json:"replayed_steps"`
	// Rounded is the multiple to which lengths were rounded up, so that fewer are recorded; absent if none were.
	Rounded int64 `json:"rounded_to,omitempty"`
	// Worst is the estimate of a process that begins with the worst batch, whose samples have the length WorstLength.
	WorstLength int64     `json:"worst_length"`
	Worst       *Estimate `json:"worst"`
	// Epochs is the result of the epochs, Expandable the result with expandable segments; absent if that is the same.
	Epochs Epochs `json:"epochs"`
	// MostDevice is the estimated device bytes at the peak of reserved bytes; absent if epochs run out of memory.
	MostDevice *Interval `json:"most_device,omitempty"`
	Expandable *Epochs   `json:"expandable,omitempty"`
}

// Epochs are replayed epochs, each with its own order of samples.
type Epochs struct {
	Count int `json:"count"`
	// OutOfMemory is the number of epochs that ran out of memory. Low and High are the limits of the 95 % interval of
	// its probability (Clopper and Pearson).
	OutOfMemory int     `json:"out_of_memory"`
	Low         float64 `json:"probability_low"`
	High        float64 `json:"probability_high"`
	// FirstOOM and MedianOOM are the first and the median step at which epochs ran out of memory, counted from one, and
	// ShortestOOM the length of the shortest batch at which one did; absent if none did.
	FirstOOM    int   `json:"first_oom_step,omitempty"`
	MedianOOM   int   `json:"median_oom_step,omitempty"`
	ShortestOOM int64 `json:"shortest_oom_length,omitempty"`
	// Slow is the number of runs that completed only by freeing cached memory.
	Slow int `json:"slow,omitempty"`
	// Most is the peak of reserved bytes in all epochs.
	Most     int64        `json:"most_reserved_bytes"`
	Reserved []ReservedBy `json:"reserved"`
}

// ReservedBy is the peak of reserved bytes up to a step: the median and the maximum of the epochs that reached it.
type ReservedBy struct {
	Step   int   `json:"step"`
	Epochs int   `json:"epochs"`
	Median int64 `json:"median_reserved_bytes"`
	Most   int64 `json:"most_reserved_bytes"`
}

// RanShortOfMemory reports whether an epoch ran out of memory or freed cached memory.
func (e *Epochs) RanShortOfMemory() bool { return e.OutOfMemory > 0 || e.Slow > 0 }

// lengthsSheets returns a table of the epochs of each point that has any.
func (r *Report) lengthsSheets() []Sheet {
	var sheets []Sheet
	for _, p := range r.Points {
		if p.Lengths != nil {
			d, _ := r.Find(p.Device)
			sheets = append(sheets, p.Lengths.sheet(p.Batch, d))
		}
	}
	return sheets
}

func (l *Lengths) sheet(batch int, d Device) Sheet {
	s := Sheet{
		Title:   fmt.Sprintf("An epoch over samples of different lengths; %s", d),
		Columns: []Column{{Head: fmt.Sprintf("epoch at batch %d", batch)}, {Head: "simulated"}},
	}
	row := func(name, format string, args ...any) { s.Row(name, fmt.Sprintf(format, args...)) }
	cut := phrase.If(l.Cut > 0, "; %d cut off at %d", l.Cut, l.Limit)
	row("lengths", "%s, %s", l.Source, l.Batching)
	row("samples", "%d, of length %.0f on average, 95 %% up to %d, 99 %% up to %d, 99.9 %% up to %d, the longest %d%s",
		l.Samples, l.Mean, l.P95, l.P99, l.P999, l.Longest, cut)
	row("padding", "%.0f %% of all positions", 100*l.Padding)
	epochs := cmp.Or(phrase.If(l.Epochs.Count > 1, "in each of %d epochs", l.Epochs.Count), "in one epoch")
	row("steps", "%d, of which %d are replayed %s", l.Steps, l.Replayed, epochs)
	row("worst batch alone", "%d x %d: %s reserved, %s on the device: %s; the figures below describe it", batch,
		l.WorstLength, bytesize.Format(l.Worst.Reserved.Bytes), bytesize.Format(l.Worst.Device.Bytes), l.Worst.Verdict)
	row("reserved, median", "%s", l.Epochs.reservedText())
	if l.MostDevice != nil {
		row("at most", "%s reserved, %s on the device", bytesize.Format(l.Epochs.Most),
			bytesize.Format(l.MostDevice.Bytes))
	}
	row("out of memory", "%s", l.Epochs.text())
	if l.Expandable != nil {
		row("with "+ExpandableSegments, "%s", l.Expandable.text())
	}
	s.Notes = l.notes()
	return s
}

// reservedText describes the growth of the cache.
func (e *Epochs) reservedText() string {
	var parts []string
	for i, g := range e.Reserved {
		parts = append(parts, fmt.Sprintf("%s by %s%d", bytesize.Format(g.Median), phrase.If(i == 0, "step "), g.Step))
	}
	if len(parts) == 0 {
		return "none got through the first step"
	}
	return strings.Join(parts, ", ")
}

// outcome describes the result of the epochs in a clause.
func (e *Epochs) outcome() string {
	switch {
	case e.Low != e.High:
		return "memory runs out in " + e.text()
	case e.OutOfMemory > 0:
		return fmt.Sprintf("memory runs out at step %d, as all batches have one length", e.FirstOOM)
	case e.Slow > 0:
		return "epochs get through only since PyTorch gives cached memory back, as all batches have one length"
	}
	return "epochs get through, as all batches have one length"
}

// text returns the probability that memory runs out.
func (e *Epochs) text() string {
	if e.Low == e.High { // nothing is left to chance
		text := "no"
		if e.OutOfMemory > 0 {
			text = fmt.Sprintf("yes, at step %d", e.FirstOOM)
		} else if e.Slow > 0 {
			text = "no, but only since PyTorch gives cached memory back"
		}
		return text + ": all batches have one length"
	}
	text := fmt.Sprintf("%d of %d epochs, so with a probability of %.0f to %.0f %%", e.OutOfMemory, e.Count,
		100*e.Low, 100*e.High)
	return text + phrase.If(e.OutOfMemory > 0, "; at step %d first, %d in the median, with batches of length %d and "+
		"more", e.FirstOOM, e.MedianOOM, e.ShortestOOM) +
		phrase.If(e.Slow > 0, "; %d more finish only because PyTorch frees cached memory", e.Slow)
}

func (l *Lengths) notes() []string {
	notes := phrase.List{"simulated: training steps in one allocator, in random orders of a fixed seed; the range " +
		"is a 95 % interval of the probability (Clopper-Pearson) over the order of samples alone."}
	if l.Epochs.Low == l.Epochs.High {
		notes[0] = "simulated: training steps in one allocator."
	}
	notes.If(l.Epochs.OutOfMemory > 0 && l.Worst.Verdict != DoesNotFit && l.Worst.Verdict != Slow, "the worst batch "+
		"fits a process that begins with it; later, batches of other lengths have fragmented the cache, and memory "+
		"runs out.")
	notes.If(l.Replayed < l.Steps && l.Epochs.Low != l.Epochs.High,
		"of %d steps the first %d are replayed, with the longest batch added at the end.", l.Steps, l.Replayed)
	notes.If(l.Rounded > 0, "lengths are rounded up to multiples of %d, so that few enough are recorded.", l.Rounded)
	return notes
}

// check returns an error for values that no writer of the schema produces.
func (l *Lengths) check() error {
	if l == nil {
		return nil
	}
	e := &l.Epochs
	switch {
	case l.Worst == nil:
		return errors.New("lengths: the worst batch is missing; export the result again")
	case e.Count < 1 || e.OutOfMemory < 0 || e.OutOfMemory > e.Count:
		return fmt.Errorf("lengths: %d of %d epochs ran out of memory: need 1 or more epochs, and no more failures "+
			"than epochs", e.OutOfMemory, e.Count)
	}
	return l.Worst.check()
}
