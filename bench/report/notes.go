package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/models"
)

// intervalNote is the note on the source of intervals, and on the share of records within them.
const intervalNote = "[low, high]: from %s. The reserved range also covers allocator timing; the device range also " +
	"covers the unknown CUDA context."

// notes returns the lines below tables that show intervals.
func (r *Report) notes() []string {
	var notes phrase.List
	for _, c := range r.Coefficients {
		notes.If(c.Name == "allocated_residual", intervalNote, c.Source)
	}
	notes.If(slices.ContainsFunc(r.Points, func(p Point) bool { return p.Run == nil && p.Verdict() == Slow }),
		slowStepText)
	ran := slices.ContainsFunc(r.Points, func(p Point) bool { return p.Run != nil })
	return slices.Concat(notes, r.rankNotes(ran), r.sideNotes(), warningNotes(r.Warnings))
}

// rankNotes names the rank to which the values of several GPUs belong, and the memory that their runs do not include.
func (r *Report) rankNotes(runs bool) []string {
	c := r.Case
	if c.Strategy == nil {
		return nil
	}
	which := cmp.Or(phrase.IfKnown("rank %d", c.Strategy.Rank), "the rank that needs most")
	var notes phrase.List
	if c.Strategy.Name == models.DeviceMap {
		notes.Add("one process has its layers on %d GPUs; values are for %s.", c.GPUs,
			strings.Replace(which, "rank", "GPU", 1))
		return notes
	}
	notes.Add("values are for %s of %d; samples per second are for all ranks. %s", which, c.GPUs, r.communicationNote())
	notes.If(c.Strategy.IsDeepSpeed(), "DeepSpeed steps follow its release 0.19.8, compared with its own allocations; "+
		"the ranges come from records of PyTorch.")
	notes.If(runs, "a run has one rank on one GPU: its buffers are allocated, collectives copy the same number of "+
		"bytes, and NCCL does not run.")
	return notes
}

// communicationNote names the source of the estimate of NCCL's own memory.
func (r *Report) communicationNote() string {
	for _, k := range r.Coefficients {
		if strings.HasPrefix(k.Name, "nccl_bytes:") && !strings.HasPrefix(k.Source, "assumption") {
			return fmt.Sprintf("NCCL's memory (communication) was learned: %s.", k.Source)
		}
	}
	return "NCCL's memory (communication) is an assumption."
}

// refusals returns the reasons for refused batch sizes.
func (r *Report) refusals() []string {
	return lists.Union(nil, lists.Map(r.Refused, func(x Refusal) string { return "refused: " + x.Reason + "." })...)
}

// sideNotes returns the savings of streaming and of expandable segments, and the source of the guide's estimates.
func (r *Report) sideNotes() []string {
	var notes phrase.List
	notes.AddTexts(r.StreamingNote(), r.setupNote(), r.slackNote(), r.spillNote(), r.loopNote(), r.stackNote(),
		r.evaluationNote(), r.workspaceNote(), r.claimNote())
	return append(notes, r.hostNotes()...)
}

// setupNote explains a peak before the first step, and how GPUs that share a model avoid it.
func (r *Report) setupNote() string {
	early := slices.ContainsFunc(r.Points, func(p Point) bool {
		return p.Estimate != nil && !strings.Contains(p.Estimate.PeakPhase, ":")
	})
	switch {
	case !early:
		return ""
	case r.Case.Strategy != nil && r.Case.Strategy.Init == models.InitDevice:
		return "the peak is in set-up, where each GPU has the whole model before it is sharded; created on the meta " +
			"device or in host memory (init=meta), it arrives shard by shard."
	}
	return "the peak is in set-up, before the first step: steps themselves need less."
}

// workspaceNote counts the convolutions whose workspaces cuDNN itself reported.
func (r *Report) workspaceNote() string {
	var answers workspaceCounts
	for _, p := range r.Points {
		answers.add(p.Batch, p.Workspaces)
	}
	return answers.note()
}

// workspaceCounts collects, by batch size, the number of convolutions that cuDNN itself answered.
type workspaceCounts struct {
	batches []int
	of      []Workspaces
}

// add adds the answers for a batch size; w is nil if cuDNN was not asked about the model.
func (a *workspaceCounts) add(batch int, w *Workspaces) {
	if w != nil && !slices.Contains(a.batches, batch) {
		a.batches, a.of = append(a.batches, batch), append(a.of, *w)
	}
}

// note summarizes all answers in a sentence; empty if there are none.
func (a *workspaceCounts) note() string {
	var parts []string
	modeled := false
	for i, w := range a.of {
		parts = append(parts, fmt.Sprintf("batch %d: %d of %d", a.batches[i], w.FromCuDNN, w.FromCuDNN+w.Modeled))
		modeled = modeled || w.Modeled > 0
	}
	if parts == nil {
		return ""
	}
	return "workspaces of convolutions that cuDNN itself reported: " + strings.Join(parts, ", ") +
		phrase.If(modeled, "; the others are modeled (vprof capture ask requests them)")
}

// notes returns the note as the notes of a sheet; empty if there are no answers.
func (a *workspaceCounts) notes() []string {
	if note := a.note(); note != "" {
		return []string{note + "."}
	}
	return nil
}

func warningNotes(warnings []Warning) []string {
	var notes phrase.List
	for _, w := range warnings {
		notes.Add("warning: %s", w)
	}
	return notes
}

// findingNotes describes the largest batch that fits, the first that failed, skipped batches, and the meaning of times.
func (r *Report) findingNotes(word string) []string {
	var notes phrase.List
	notes.If(r.Agreement != nil, "%s.", r.Agreement)
	notes = append(notes, r.refusals()...)
	for _, p := range r.Points {
		switch {
		case p.Run == nil:
		case p.Run.OOM != nil:
			notes.Add("batch %d is out of memory (%s): %s.", p.Batch, word, p.Run.OOM)
		case p.Run.Retries > 0:
			notes.Add("batch %d fits only because PyTorch frees cached memory, %s in these steps; that is slow.",
				p.Batch, multipleText(p.Run.Retries))
		}
	}
	if r.Stopped != nil && len(r.Stopped.Left) > 0 {
		left := strings.Trim(strings.ReplaceAll(fmt.Sprint(r.Stopped.Left), " ", ", "), "[]")
		notes.Add("not run: batch %s (%s).", left, r.Stopped.Reason)
	}
	notes.AddTexts(r.stepNote(), r.otherMemoryNote())
	if i := slices.IndexFunc(r.Points, func(p Point) bool { return p.Run != nil && p.Run.Verified > 0 }); i >= 0 {
		notes.Add("verified: the pattern of each tensor was read back, %d at batch %d.",
			r.Points[i].Run.Verified, r.Points[i].Batch)
	}
	return notes
}

// stepNote explains what the step times measure; empty if there are no times.
func (r *Report) stepNote() string {
	i := slices.IndexFunc(r.Points, func(p Point) bool { return p.Run != nil && p.Run.Step != nil })
	if i < 0 {
		return ""
	}
	d, driven := r.realDevice()
	switch u := r.Points[i].Run; {
	case u.Simulated && driven:
		return "ms/step is the clock of a simulated driver; no GPU ran."
	case u.Simulated:
		return "ms/step is a lower bound for this GPU; nothing ran."
	default:
		note := fmt.Sprintf("synthetic ms/step: kernels with PyTorch's memory traffic and arithmetic, the median "+
			"of %d after %d to warm up", u.Repeat, u.WarmUp)
		slowest := &Timing{}
		for _, p := range r.Points {
			if p.Run == nil || p.Run.Step == nil {
				continue
			}
			if s := p.Run.Step; slowest.SMMHz == 0 || s.SMMHz < slowest.SMMHz {
				slowest = s
			}
		}
		return note + phrase.If(slowest.SMMHz > 0, "; clocks of %s down to %d MHz", d.Name, slowest.SMMHz) +
			phrase.Prefix(" for ", strings.Join(slowest.Slowdowns, ", ")) + "."
	}
}

// otherMemoryNote lists the parts of measured device bytes besides the reserved ones; empty if nothing was measured.
func (r *Report) otherMemoryNote() string {
	var first, highest *Run
	batch := 0
	for _, p := range r.Points {
		if p.Run == nil || p.Run.Simulated {
			continue
		}
		if first == nil {
			first, highest, batch = p.Run, p.Run, p.Batch
		}
		if p.Run.Device > highest.Device {
			highest, batch = p.Run, p.Batch
		}
	}
	if first == nil {
		return ""
	}
	added, rest := highest.Granularity, highest.Unexplained
	return "device: besides the reserved bytes the GPU shows " + bytesize.Format(first.Context) + " of context" +
		phrase.If(first.Kernels > 0, " and %s of synthetic kernels, which the error leaves out",
			bytesize.Format(first.Kernels)) +
		phrase.If(added != 0 || rest != 0, "; batch %d: %s added by the driver to segments, %s unexplained", batch,
			bytesize.Format(added), bytesize.Format(rest)) +
		phrase.If(first.OtherProcessBytes > 0, "; the %s of other processes are not included",
			bytesize.Format(first.OtherProcessBytes)) +
		phrase.If(highest.Process > 0, "; NVML reports up to %s for this process", bytesize.Format(highest.Process)) +
		"."
}

const slowStepText = "fits slowly: only because PyTorch frees cached memory and allocates it again."

// markMeanings has the signs of cells in tables, and their meaning.
var markMeanings = [][2]string{
	{"*", "not safe: over the share of the memory that may be filled, or because of a smaller batch or an evaluation"},
	{"?", "over the memory: the upper end of the estimate exceeds it"},
	{"~", "fits slowly: only because PyTorch frees cached memory"},
	{"!", "does not fit"},
	{refusedCell, "refused"},
	{"+", "at least: the search ended there"},
}

// refusedCell is the cell of a case that cannot be trained.
const refusedCell = "x"

// legend explains the signs of a table's cells, each once: "? tight: ...; ! does not fit."; empty without signs.
func legend(signs []string) string {
	shown := lists.Filter(markMeanings, func(m [2]string) bool {
		return slices.ContainsFunc(signs, func(s string) bool { return strings.TrimSpace(s) == m[0] })
	})
	words := lists.Map(shown, func(m [2]string) string { return m[0] + " " + m[1] })
	return phrase.If(len(words) > 0, "%s.", strings.Join(words, "; "))
}

// multipleText formats a number of repeated events.
func multipleText(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
