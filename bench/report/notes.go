package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
)

// notes returns the lines below tables that show intervals.
func (r *Report) notes() []string {
	var notes notes
	for _, c := range r.Coefficients {
		if c.Name == "allocated_residual" {
			notes.add("[low, high]: 95 %% of %s fell inside. The reserved range also covers allocator timing; "+
				"the device range also covers the unknown CUDA context.", c.Source)
		}
	}
	if slices.ContainsFunc(r.Points, func(p Point) bool { return p.Run == nil && p.Verdict() == Slow }) {
		notes.add(slowWords)
	}
	ran := slices.ContainsFunc(r.Points, func(p Point) bool { return p.Run != nil })
	return slices.Concat(notes, r.rankNotes(ran), r.sideNotes(), warningNotes(r.Warnings))
}

// rankNotes returns which rank the values of several GPUs are for, and what their runs leave out.
func (r *Report) rankNotes(runs bool) []string {
	c := r.Case
	if c.Strategy == nil {
		return nil
	}
	which := "the rank that needs most"
	if c.Strategy.Rank != nil {
		which = fmt.Sprintf("rank %d", *c.Strategy.Rank)
	}
	var notes notes
	if c.Strategy.Name == models.DeviceMap {
		notes.add("one process has its layers on %d GPUs; values are for %s.", c.GPUs,
			strings.Replace(which, "rank", "GPU", 1))
		return notes
	}
	notes.add("values are for %s of %d; samples per second are for all ranks. %s", which, c.GPUs, r.communicationNote())
	if c.Strategy.DeepSpeed() {
		notes.add("DeepSpeed steps follow its release 0.19.8, compared with its own allocations; the ranges come " +
			"from " +
			"records of PyTorch.")
	}
	if runs {
		notes.add("a run has one rank on one GPU: its buffers are allocated, collectives copy the same number of " +
			"bytes, and NCCL does not run.")
	}
	return notes
}

// communicationNote returns the source of the estimate of NCCL's own memory.
func (r *Report) communicationNote() string {
	for _, k := range r.Coefficients {
		if strings.HasPrefix(k.Name, "nccl_bytes:") && !strings.HasPrefix(k.Source, "assumption") {
			return fmt.Sprintf("NCCL's memory (communication) was learned: %s.", k.Source)
		}
	}
	return "NCCL's memory (communication) is an assumption."
}

// refusals returns the reasons why batch sizes are refused.
func (r *Report) refusals() []string {
	return lists.Union(nil, lists.Map(r.Refused, func(x Refusal) string { return "refused: " + x.Reason + "." })...)
}

// sideNotes returns the savings of streaming and of expandable segments, and the source of the guide's estimates.
func (r *Report) sideNotes() []string {
	all := []string{
		r.StreamingNote(), r.setUpNote(), r.slackNote(), r.loopNote(), r.stackNote(), r.evaluationNote(),
		r.workspaceNote(), r.claimNote(),
	}
	all = append(all, r.hostNotes()...)
	return slices.DeleteFunc(all, func(note string) bool { return note == "" })
}

// setUpNote explains a peak before the first step, and how GPUs that share a model avoid it.
func (r *Report) setUpNote() string {
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

// workspaceNote returns how many workspaces of convolutions cuDNN itself reported.
func (r *Report) workspaceNote() string {
	var answers workspaceAnswers
	for _, p := range r.Points {
		answers.add(p.Batch, p.Workspaces)
	}
	return answers.note()
}

// workspaceAnswers collects, by batch size, for how many convolutions cuDNN itself answered.
type workspaceAnswers struct {
	batches []int
	of      []Workspaces
}

// add adds the answers for a batch size; nil if cuDNN was not asked about the model.
func (a *workspaceAnswers) add(batch int, w *Workspaces) {
	if w != nil && !slices.Contains(a.batches, batch) {
		a.batches, a.of = append(a.batches, batch), append(a.of, *w)
	}
}

// note returns a sentence about all of them, empty without any.
func (a *workspaceAnswers) note() string {
	var parts []string
	modeled := false
	for i, w := range a.of {
		parts = append(parts, fmt.Sprintf("batch %d: %d of %d", a.batches[i], w.Asked, w.Asked+w.Modeled))
		modeled = modeled || w.Modeled > 0
	}
	if parts == nil {
		return ""
	}
	note := "workspaces of convolutions that cuDNN itself reported: " + strings.Join(parts, ", ")
	if modeled {
		note += "; the others are modeled (vprof capture ask requests them)"
	}
	return note
}

// notes returns the note as the notes of a sheet, none without answers.
func (a *workspaceAnswers) notes() []string {
	if note := a.note(); note != "" {
		return []string{note + "."}
	}
	return nil
}

// warningNotes returns a line for each warning.
func warningNotes(warnings []Warning) []string {
	var notes notes
	for _, w := range warnings {
		notes.add("warning: %s", w)
	}
	return notes
}

// findingNotes returns what fits at most, what hardly fits, what failed first, what was left out because of it, and
// what the times mean.
func (r *Report) findingNotes(word string) []string {
	var notes notes
	if r.Agreement != nil {
		notes.add("%s.", r.Agreement)
	}
	notes = append(notes, r.refusals()...)
	for _, p := range r.Points {
		switch {
		case p.Run == nil:
		case p.Run.OOM != nil:
			notes.add("batch %d is out of memory (%s): %s.", p.Batch, word, p.Run.OOM)
		case p.Run.Retries > 0:
			notes.add("batch %d fits only because PyTorch frees cached memory, %s in these steps; that is slow.",
				p.Batch, timesOver(p.Run.Retries))
		}
	}
	if r.Stopped != nil && len(r.Stopped.Left) > 0 {
		left := strings.Trim(strings.ReplaceAll(fmt.Sprint(r.Stopped.Left), " ", ", "), "[]")
		notes.add("not run: batch %s (%s).", left, r.Stopped.Reason)
	}
	for _, note := range []string{r.stepNote(), r.besidesNote()} {
		if note != "" {
			notes.add("%s", note)
		}
	}
	if i := slices.IndexFunc(r.Points, func(p Point) bool { return p.Run != nil && p.Run.Verified > 0 }); i >= 0 {
		notes.add("verified: the pattern of each tensor was read back, %d at batch %d.",
			r.Points[i].Run.Verified, r.Points[i].Batch)
	}
	return notes
}

// stepNote returns what the step times measure; empty without any.
func (r *Report) stepNote() string {
	i := slices.IndexFunc(r.Points, func(p Point) bool { return p.Run != nil && p.Run.Step != nil })
	if i < 0 {
		return ""
	}
	d, driven := r.driven()
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
		if slowest.SMMHz > 0 {
			note += fmt.Sprintf("; clocks of %s down to %d MHz", d.Name, slowest.SMMHz)
		}
		if len(slowest.Slowdowns) > 0 {
			note += " for " + strings.Join(slowest.Slowdowns, ", ")
		}
		return note + "."
	}
}

// besidesNote returns the parts of measured device bytes other than the reserved ones; empty if nothing was measured.
func (r *Report) besidesNote() string {
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
	note := "device: besides the reserved bytes the GPU shows " + bytesize.Format(first.Context) + " of context"
	if first.Kernels > 0 {
		note += " and " + bytesize.Format(first.Kernels) +
			" of synthetic kernels, which the error leaves out"
	}
	if added, rest := highest.Granularity, highest.Unexplained; added != 0 || rest != 0 {
		note += fmt.Sprintf("; batch %d: %s added by the driver to segments, %s unexplained", batch,
			bytesize.Format(added), bytesize.Format(rest))
	}
	if first.Others > 0 {
		note += "; the " + bytesize.Format(first.Others) + " of other processes are not included"
	}
	if highest.Process > 0 {
		note += "; NVML reports up to " + bytesize.Format(highest.Process) + " for this process"
	}
	return note + "."
}

// slowWords explains [Slow].
const slowWords = "fits slowly: only because PyTorch frees cached memory and allocates it again."

// marks explains the marks.
const marks = "* not safe: over the share of the memory that may be filled, or because of a smaller batch or an " +
	"evaluation; ? tight: the upper end of the estimate exceeds the GPU's memory; ~ fits slowly: only because " +
	"PyTorch frees cached memory; ! does not fit."

// timesOver returns a count of events in words.
func timesOver(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
