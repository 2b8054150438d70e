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
			notes.add("[low, high] holds 95 %% of %s; of reserved also replays with slightly different sizes, "+
				"later frees and falling addresses, of device also what is unknown of the CUDA context.", c.Source)
		}
	}
	if slices.ContainsFunc(r.Points, func(p Point) bool { return p.Run == nil && p.Verdict() == Slow }) {
		notes.add(slowWords)
	}
	ran := slices.ContainsFunc(r.Points, func(p Point) bool { return p.Run != nil })
	return slices.Concat(notes, r.rankNotes(ran), r.sideNotes(), warningNotes(r.Warnings))
}

// rankNotes say what figures of several GPUs are of, and what runs of them are.
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
		notes.add("one process has the layers on %d GPUs; figures are of %s.", c.GPUs,
			strings.Replace(which, "rank", "GPU", 1))
		return notes
	}
	notes.add("figures are of %s of %d; samples per second are of all. %s", which, c.GPUs, r.communicationNote())
	if c.Strategy.DeepSpeed() {
		notes.add("DeepSpeed's steps are those of its release 0.19.8, held against its own allocations; the ranges " +
			"are those of PyTorch's own.")
	}
	if runs {
		notes.add("a run has one rank on one GPU: its buffers are there, and collectives are copies of the same " +
			"bytes; NCCL itself is not.")
	}
	return notes
}

// communicationNote says what is known of NCCL's own memory.
func (r *Report) communicationNote() string {
	for _, k := range r.Coefficients {
		if strings.HasPrefix(k.Name, "nccl_bytes:") && !strings.HasPrefix(k.Source, "assumption") {
			return fmt.Sprintf("What NCCL takes (communication) was learned: %s.", k.Source)
		}
	}
	return "What NCCL takes (communication) is an assumption."
}

// refusals say why batch sizes are refused.
func (r *Report) refusals() []string {
	return lists.Union(nil, lists.Map(r.Refused, func(x Refusal) string { return "refused: " + x.Reason + "." })...)
}

// sideNotes say what streaming and expandable segments would save, and where the guide's figures stand.
func (r *Report) sideNotes() []string {
	all := []string{
		r.StreamingNote(), r.setUpNote(), r.slackNote(), r.loopNote(), r.evaluationNote(),
		r.workspaceNote(), r.claimNote(),
	}
	all = append(all, r.hostNotes()...)
	return slices.DeleteFunc(all, func(note string) bool { return note == "" })
}

// setUpNote explains a peak before the first step, and how GPUs that share a model avoid it.
func (r *Report) setUpNote() string {
	early := slices.ContainsFunc(r.Points, func(p Point) bool {
		return p.Estimate != nil && strings.HasPrefix(p.Estimate.PeakPhase, "-1:")
	})
	switch {
	case !early:
		return ""
	case r.Case.Strategy != nil && r.Case.Strategy.Init == models.InitDevice:
		return "the peak is in set-up, where each GPU has the whole model before it is sharded; made on the meta " +
			"device " +
			"or in the host's memory (init=meta), it comes shard by shard."
	}
	return "the peak is in set-up, before the first step: steps themselves need less."
}

// workspaceNote says which workspaces of convolutions are cuDNN's own answers.
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
	note := "workspaces of convolutions as cuDNN itself said: " + strings.Join(parts, ", ")
	if modeled {
		note += "; the others are modeled (vprof capture ask asks for them)"
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

// findingNotes say what fits at most, what hardly fits, what failed first, what
// was left out because of it, and what the times mean.
func (r *Report) findingNotes(word string) []string {
	var notes notes
	if r.Agreement != nil {
		notes.add("%s.", r.Agreement)
	}
	if r.Largest != nil {
		notes.add("%s.", r.Largest)
	}
	notes = append(notes, r.refusals()...)
	for _, p := range r.Points {
		switch {
		case p.Run == nil:
		case p.Run.OOM != nil:
			notes.add("batch %d is out of memory (%s): %s.", p.Batch, word, p.Run.OOM)
		case p.Run.Retries > 0:
			notes.add("batch %d fits only since PyTorch gives back cached memory, %s in these steps; that is slow.",
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
		notes.add("verified: each tensor's pattern was found again, %d at batch %d.",
			r.Points[i].Run.Verified, r.Points[i].Batch)
	}
	return notes
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
		return "ms/step is the time below which the GPU cannot be; nothing ran."
	default:
		note := fmt.Sprintf("synthetic ms/step: kernels with the traffic and the arithmetic of PyTorch's, the "+
			"median of %d after %d to warm up", u.Repeat, u.WarmUp)
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
			" of the kernels that stand for PyTorch's, which the error leaves out"
	}
	if added, rest := highest.Granularity, highest.Unexplained; added != 0 || rest != 0 {
		note += fmt.Sprintf("; batch %d: %s that the driver adds to segments, %s unexplained", batch,
			bytesize.Format(added), bytesize.Format(rest))
	}
	if first.Others > 0 {
		note += "; the " + bytesize.Format(first.Others) + " of other processes are not in it"
	}
	if highest.Process > 0 {
		note += "; NVML shows up to " + bytesize.Format(highest.Process) + " of this process"
	}
	return note + "."
}

// slowWords says what [Slow] means.
const slowWords = "fits slowly: only since PyTorch gives cached memory back to the driver and asks for it again."

// marks says what the marks mean.
const marks = "? tight: the upper end of what it may need is more than the GPU has; ~ fits slowly: only since " +
	"PyTorch gives back cached memory; ! does not fit."

// timesOver says how often something happened.
func timesOver(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
