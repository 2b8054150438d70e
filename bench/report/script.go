package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
)

// Script is a user's command that was run, with observations other than GPU memory.
type Script struct {
	Command []string `json:"command"`
	// Torch and CUDA are the releases of PyTorch and of the CUDA that it was built for; empty if the script never
	// imported PyTorch.
	Torch string `json:"torch,omitempty"`
	CUDA  string `json:"cuda,omitempty"`
	// Result is the outcome: fits, out of memory, failed, timeout, no cuda, no gpu, no training.
	Result   string `json:"result" jsonschema:"enum=fits,enum=out of memory,enum=failed,enum=timeout,enum=no cuda,enum=no gpu,enum=no training"`
	ExitCode int    `json:"exit_code"`
	// Unsafe is why a command that fits is not safe, by the default budget; absent if it is.
	Unsafe Reason `json:"unsafe,omitempty" jsonschema:"enum=over-share,enum=gpu-full"`
	// Error is the exception that ended the script, Traceback its lines; absent if none did.
	Error     string `json:"error,omitempty"`
	Traceback string `json:"traceback,omitempty"`
	// Steps is the number of steps of each optimizer, Optimizers are their kinds, and Ended reports why training ended:
	// steps, eval, save, or exit if the script ended itself.
	Steps      []int    `json:"steps"`
	Optimizers []string `json:"optimizers"`
	Ended      string   `json:"ended,omitempty"`
	Seconds    float64  `json:"seconds"`
	// Host is the peak host memory in bytes of the process that uses most.
	Host int64 `json:"host_bytes"`
	// Lines are the user's lines that hold the most requested bytes at the peak.
	Lines []Component `json:"lines"`
	// CallersBelow are the lines of libraries, after the paths of their modules, that the first of Lines calls, if that
	// holds over half of the bytes; absent otherwise, or if it calls none.
	CallersBelow []Component `json:"below_first_line,omitempty"`
	// DivertedFiles are the files that the script saved and that were written elsewhere. Spared are checkpoints that it
	// would have removed. Left are folders that it has created, and in which code other than Python has written files.
	DivertedFiles []string `json:"diverted"`
	SparedFiles   []string `json:"spared,omitempty"`
	LeftFolders   []string `json:"left,omitempty"`
	// NoOpCalls are the functions of NVIDIA's libraries that were called and did nothing, in order of first calls.
	NoOpCalls []string `json:"idle_functions,omitempty"`
	// UncomputedLines are the user's lines that depend on numbers that were never computed.
	UncomputedLines []string `json:"guessed_lines,omitempty"`
	// Workspaces counts the sizes that libraries decide.
	Workspaces *Workspaces `json:"workspaces,omitempty"`
	// TunedBefore is the number of torch.compile kernels that earlier commands had tuned; absent for none.
	TunedBefore int `json:"kernels_tuned_before,omitempty"`
	// Replaced are the weights, data and libraries that were absent and had placeholders.
	Replaced []Replaced `json:"replaced,omitempty"`
	// Coverage describes which part of training the steps cover; absent if the script ended, or the user chose the
	// steps.
	Coverage *Coverage `json:"seen,omitempty"`
	// UnrunCode are the lines, file:line, that evaluate ("eval") or save and did not run; empty where a trainer may do
	// so.
	UnrunCode map[string]string `json:"unseen,omitempty"`
	// Growth is the memory by which each step needs more than the step before; absent if steps do not grow.
	Growth *StepGrowth `json:"growth,omitempty"`
	// Remedies are changes that need less memory, the largest saving first.
	Remedies []Remedy `json:"remedies,omitempty"`
	// DeviceWithout is the need in device bytes, without a limit, of a command that ran out of memory; absent if
	// unknown.
	DeviceWithout int64 `json:"unlimited_device_bytes,omitempty"`
	// Private are the pools of CUDA graphs; absent if there are none.
	Private *PrivatePools `json:"private_pools,omitempty"`
	// GPUs is the number of ranks of which Rank was run; absent for one.
	GPUs int `json:"gpus,omitempty"`
	Rank int `json:"rank,omitempty"`
	// GPU is the GPU of all other values, the fullest. OtherGPUs are the other ones that the same process used.
	GPU       int              `json:"gpu,omitempty"`
	OtherGPUs []OtherGPUMemory `json:"elsewhere,omitempty"`
}

// Replaced is an absent file of a script, and its placeholder.
type Replaced struct {
	// Kind is weights, data, tokenizer, kernel or tracker.
	Kind string `json:"kind"`
	// Name is the name that the script used, By the placeholder.
	Name string `json:"name"`
	By   string `json:"by"`
}

// StepGrowth is memory that every step fails to free.
type StepGrowth struct {
	// Bytes is the growth of a step, and FullBatchSteps the number of the step in which it fills the GPU.
	Bytes          int64 `json:"bytes_per_step"`
	FullBatchSteps int   `json:"full_after_steps"`
	// Steps is the largest number of steps that grow, and Rest the growth of steps that were not run; absent if neither
	// the script's loops nor a trainer determine them.
	Steps     int   `json:"steps,omitempty"`
	RestBytes int64 `json:"rest_bytes,omitempty"`
	// Lines are the user's lines that made most of the growth, in bytes of a step.
	Lines []Component `json:"lines"`
	// Through is the holder of the memory, with the line that adds to it: a variable, a collection, a graph of
	// autograd, a hook; absent if that was not found.
	Through string `json:"through,omitempty"`
}

// Fills reports whether memory grows, and whether the remaining steps would fill the GPU.
func (g *StepGrowth) Fills() bool { return g != nil && (g.Steps == 0 || g.FullBatchSteps < g.Steps) }

// Later returns the growth in bytes over steps that were not run; zero without growth.
func (g *StepGrowth) Later() int64 {
	if g == nil {
		return 0
	}
	return g.RestBytes
}

// String describes the growth in a sentence.
func (g *StepGrowth) String() string {
	text := fmt.Sprintf("grows by %s a step: the GPU is full after about %d steps", bytesize.Format(g.Bytes),
		g.FullBatchSteps)
	if !g.Fills() {
		text = fmt.Sprintf("grows by %s a step up to step %d", bytesize.Format(g.Bytes), g.Steps) +
			phrase.If(g.RestBytes > 0, ", of which %s are counted for steps not seen", bytesize.Format(g.RestBytes))
	}
	if len(g.Lines) > 0 {
		text += "; made by " + g.Lines[0].Name +
			phrase.If(g.Through == "", " and still held, as by a list of losses or outputs")
	}
	return text + phrase.Prefix(", held by ", g.Through)
}

// Coverage describes the part of training that a few steps cover: whether the data has larger batches, and which ran.
type Coverage struct {
	// Batches are the batches of an epoch, Samples the samples of the data set; absent if unknown.
	Batches int `json:"batches,omitempty"`
	Samples int `json:"samples,omitempty"`
	// Read is the number of samples whose sizes were read, with the seconds that it took, and Why the reason why not
	// all were.
	Read    int     `json:"read"`
	Seconds float64 `json:"seconds"`
	Why     string  `json:"why,omitempty"`
	// Longer are batches larger than the first ones, which were also trained on.
	Longer []LargerBatch `json:"longer,omitempty"`
}

// LargerBatch compares a batch with earlier ones: its largest tensor's shape, and the largest batch's before it.
type LargerBatch struct {
	Shape  []int `json:"shape"`
	Before []int `json:"before"`
}

// CoverageText describes the part of training that the steps represent; empty if that is not known.
func (s *Script) CoverageText() string {
	if s.Coverage == nil || len(s.Steps) == 0 {
		return ""
	}
	return s.Coverage.text(s.stepText())
}

// text describes what the steps of a run cover.
func (s *Coverage) text(steps string) string {
	text := steps + " seen" + phrase.If(s.Batches > 0, " of an epoch of %d batches", s.Batches)
	times := func(shape []int) string { return strings.Join(lists.Map(shape, strconv.Itoa), " x ") }
	switch {
	case len(s.Longer) > 0:
		shapes := lists.Map(s.Longer, func(l LargerBatch) string { return times(l.Shape) })
		text += fmt.Sprintf("; among them the largest batch that the data set has, %s (before: %s)",
			strings.Join(shapes, " and "), times(s.Longer[0].Before))
	case s.Why == "":
		text += "; the data set has no larger batch than these"
	}
	if s.Why != "" && s.Samples > 0 {
		text += fmt.Sprintf("; the sizes of %d of %d samples were read: %s", s.Read, s.Samples, s.Why)
	} else if s.Why != "" {
		text += "; whether later batches are larger is not known: " + s.Why + " (--steps all runs all)"
	}
	return text
}

// OtherGPUMemory holds the peaks of a process on a further GPU, if a script splits a model over several.
type OtherGPUMemory struct {
	GPU       int   `json:"gpu"`
	Allocated int64 `json:"allocated_bytes"`
	Reserved  int64 `json:"reserved_bytes"`
}

// PrivatePools are private memory pools of the allocator, such as CUDA graphs have: their number at the end, and their
// part of the reserved bytes.
type PrivatePools struct {
	Count int   `json:"count"`
	Bytes int64 `json:"reserved_bytes"`
}

// scriptSheets returns tables of a command's phases and of the peak's breakdown, and how the command ended.
func (r *Report) scriptSheets() []Sheet {
	if !r.usedGPU() {
		return []Sheet{{Title: strings.Join(r.Script.Command, " "), Answer: r.scriptAnswer(), Notes: r.scriptNotes()}}
	}
	run := r.Points[0].Run
	sheets := []Sheet{r.phaseSheet(run), holdersSheet("at the peak", "class", run.Classes, run.Allocated)}
	if len(r.Script.Lines) > 0 {
		rest := Component{Name: "other lines", Bytes: run.Requested}
		for _, line := range r.Script.Lines {
			rest.Bytes -= line.Bytes
		}
		lines := append(slices.Clone(r.Script.Lines), rest)
		sheets = append(sheets, holdersSheet("lines that hold most at the peak", "line", lines, run.Requested))
	}
	if len(r.Script.CallersBelow) > 0 {
		title := "below " + r.Script.Lines[0].Name
		sheets = append(sheets,
			holdersSheet(title, "module, line of the library", r.Script.CallersBelow, run.Requested))
	}
	sheets = append(sheets, r.buffersSheets()...)
	if len(r.Script.Remedies) > 0 {
		sheets = append(sheets, remedySheet(r.Script.Remedies, run.Device))
	}
	last := &sheets[len(sheets)-1]
	last.Notes = append(last.Notes, r.scriptNotes()...)
	return sheets
}

// usedGPU reports whether the command allocated anything on the GPU.
func (r *Report) usedGPU() bool {
	return len(r.Points) > 0 && r.Points[0].Run != nil && r.Points[0].Run.Allocated > 0
}

// scriptAnswer describes whether the command fits, and which part of training that covers.
func (r *Report) scriptAnswer() []string {
	answer := []string{r.Script.verdict(r)}
	if g := r.Script.Growth; g.Fills() {
		answer = []string{"does not fit for long: it " + g.String() + ".", "so far it " + answer[0]}
	} else if g != nil {
		answer = append(answer, "it "+g.String()+".")
	}
	if r.Script.Result == "fits" && len(r.Script.Steps) == 0 {
		answer = append(answer, "no optimizer stepped: the values cover all that the script did on the GPU.")
	}
	if covered := r.Script.CoverageText(); covered != "" {
		answer = append(answer, covered+".")
	}
	return answer
}

// maxPhases is the number of rows beyond which steps have rows only at the peak.
const maxPhases = 24

// phaseSheet returns a row for each phase of each step.
func (r *Report) phaseSheet(run *Run) Sheet {
	s := sheetIn(strings.Join(r.Script.Command, " "),
		"step> | phase | peak {}: allocated> | peak {}: reserved> | at its end {}: allocated>-1", run.Device)
	s.Answer = r.scriptAnswer()
	if len(r.Devices) > 0 {
		s.Title += "; " + r.Devices[0].String()
	}
	left := 0
	for phases := run.Phases; len(phases) > 0; {
		one, alike := mergeSimilarSteps(phases, run.Device/500)
		phases = phases[alike*len(one):]
		peak := func(p Phase) bool { return p.PeakAllocated >= run.Allocated-run.Device/500 }
		if len(s.Rows) > maxPhases && !slices.ContainsFunc(one, peak) {
			left += alike
			continue
		}
		step := strconv.Itoa(one[0].Step)
		if last := one[0].Step + alike - 1; alike > 1 {
			step += "-" + strconv.Itoa(last)
		} else if last == 0 {
			step = ""
		}
		for _, p := range one {
			s.Row(step, p.Name, p.PeakAllocated, p.PeakReserved, p.Allocated)
		}
	}
	s.Notes.If(left > 0, "%d steps that need less are left out; --format json has them.", left)
	s.Row("", "whole run", run.Allocated, run.Reserved, "")
	s.Totals = 1
	return s
}

// mergeSimilarSteps returns the phases of the first step, and the number of steps in a row that equal it within slack.
func mergeSimilarSteps(phases []Phase, slack int64) (one []Phase, alike int) {
	n := 1
	for n < len(phases) && phases[n].Step == phases[0].Step {
		n++
	}
	one, alike = phases[:n], 1
	for ; (alike+1)*n <= len(phases); alike++ {
		for i, p := range phases[alike*n : (alike+1)*n] {
			if p.Step -= alike; !p.isSimilar(one[i], slack) {
				return one, alike
			}
		}
		if end := (alike + 1) * n; end < len(phases) && phases[end].Step == one[0].Step+alike {
			return one, alike
		}
	}
	return one, alike
}

// isSimilar reports whether p is the same phase as o, with bytes that differ by at most a tolerance.
func (p Phase) isSimilar(o Phase, slack int64) bool {
	within := func(a, b int64) bool { return max(a-b, b-a) <= slack }
	return p.Step == o.Step && p.Name == o.Name && within(p.Allocated, o.Allocated) &&
		within(p.PeakAllocated, o.PeakAllocated) && within(p.PeakReserved, o.PeakReserved)
}

func holdersSheet(title, head string, parts []Component, total int64) Sheet {
	s := sheetIn(title, head+" | {}> | %>", total)
	for _, p := range parts {
		if p.Bytes != 0 {
			s.Row(p.Name, p.Bytes, fmt.Sprintf("%.1f", 100*float64(p.Bytes)/float64(max(total, 1))))
		}
	}
	return s
}

func remedySheet(all []Remedy, total int64) Sheet {
	s := sheetIn("what would need less", "change | saves {}> | then {}> | how", total)
	for _, r := range all {
		then := any(r.NeedAfter.Bytes)
		if r.NeedAfter.Bytes == 0 {
			then = ""
		}
		s.Row(r.What, r.Saves, then, r.How)
	}
	return s
}

// buffersSheets returns compiled graphs' buffers at the last batch size's peak; none if nothing was compiled.
func (r *Report) buffersSheets() []Sheet {
	var p Point
	if n := len(r.Points); n > 0 {
		p = r.Points[n-1]
	}
	if len(p.Buffers) == 0 {
		return nil
	}
	title := "buffers of Inductor that hold most at the peak" + phrase.If(len(r.Points) > 1, ", batch %d", p.Batch)
	s := sheetIn(title, "buffer | {}> | saved for backward | line | reused for?", p.Buffers[0].Bytes)
	for _, b := range p.Buffers {
		s.Row(b.Name+phrase.If(b.Count > 1, " x %d", b.Count), b.Bytes, yesOrNo(b.Saved), b.Line,
			strings.Join(b.Reused, ", "))
	}
	n := r.tunedKernels()
	s.Notes.If(n > 0, "Inductor found %d kernels that earlier commands had tuned in its cache; "+
		"--inductor-cache none ignores them.", n)
	if t := p.Tuned; t != nil {
		s.Notes.Add("a second run, with the tuned kernels in Inductor's cache: %s allocated, %s reserved (replayed).",
			bytesize.Format(t.Allocated), bytesize.Format(t.Reserved))
	}
	return []Sheet{s.withoutEmptyColumns()}
}

// tunedKernels returns the number of kernels whose tuning a script found in its cache.
func (r *Report) tunedKernels() int {
	if r.Script == nil {
		return 0
	}
	return r.Script.TunedBefore
}

// scriptNotes returns how the command ended and which files it wrote.
func (r *Report) scriptNotes() []string {
	s := r.Script
	var notes phrase.List
	notes.If(len(s.Steps) > 0, "%s: %s; host memory at most %s; %.0f s.", strings.Join(s.Optimizers, ", "),
		s.stepText(), bytesize.Format(s.Host), s.Seconds)
	if t := r.stepTime(); t != nil {
		notes.Add("a step took %s ms (median of ten or more, %s to %s; measured), and %s ms more to load its data.",
			formatThreeDigits(1e3*t.Seconds), formatThreeDigits(1e3*t.Least), formatThreeDigits(1e3*t.Most),
			formatThreeDigits(1e3*t.Loading))
	}
	unseen := r.unrunNotes()
	notes.If(len(unseen) > 0, "not seen: %s.", strings.Join(unseen, ", "))
	notes.If(s.GPUs > 1 && len(s.OtherGPUs) == 0, "values are for rank %d of %d, without NCCL's memory.", s.Rank,
		s.GPUs)
	notes.If(len(s.OtherGPUs) > 0, "values are for GPU %d, the fullest of %d.", s.GPU, 1+len(s.OtherGPUs))
	for _, e := range s.OtherGPUs {
		notes.Add("GPU %d, which this process also used: at most %s allocated, %s reserved.", e.GPU,
			bytesize.Format(e.Allocated), bytesize.Format(e.Reserved))
	}
	return append(notes, r.otherNotes()...)
}

// stepTime returns the measured time of a step; nil if it was not measured.
func (r *Report) stepTime() *Timing {
	if !r.usedGPU() || r.Points[0].Run.Simulated {
		return nil
	}
	return r.Points[0].Run.Step
}

// unrunNotes returns the parts of training not reached because vprof ended the run, each with the flag that reaches it.
func (r *Report) unrunNotes() (all []string) {
	if r.Script.Ended != "steps" || len(r.Points) == 0 || r.Points[0].Run == nil {
		return nil
	}
	for _, of := range []struct{ phase, flag string }{{"evaluation", "eval"}, {"saving", "save"}} {
		if line, has := r.Script.UnrunCode[of.flag]; has {
			all = append(all,
				fmt.Sprintf("%s (%s--until %s goes on to it)", of.phase, phrase.If(line != "", "%s; ", line), of.flag))
		}
	}
	return all
}

// otherNotes returns the notes below the values.
func (r *Report) otherNotes() []string {
	s, notes := r.Script, phrase.List(nil)
	if w := s.Workspaces; w != nil {
		notes.Add("workspaces of libraries: %d reported by cuDNN itself, %d modeled, %d unknown.",
			w.FromCuDNN, w.Modeled, w.Unknown)
	}
	if p := s.Private; p != nil {
		notes.Add("private pools of CUDA graphs: %d hold %s of what is reserved.", p.Count, bytesize.Format(p.Bytes))
	}
	for _, r := range s.Replaced {
		notes.Add("replaced %s %s: %s.", r.Kind, r.Name, r.By)
	}
	notes.Example("not kept: %s that the script saved, such as %s (--keep-files keeps them).", "file", s.DivertedFiles)
	notes.Example("kept: %s that the script would have removed, such as %s.", "older checkpoint", s.SparedFiles)
	notes.Example("left: %s that the run made and libraries wrote into, such as %s.", "folder", s.LeftFolders)
	notes.Example("%s depended on numbers that were never computed, such as %s.", "line", s.UncomputedLines)
	if n := len(s.NoOpCalls); n > 0 && s.Result == "failed" && r.usedGPU() {
		shown := s.NoOpCalls[:min(n, 6)]
		notes.Add("library functions that were called and did nothing: %s%s.", strings.Join(shown, ", "),
			phrase.If(n > len(shown), " and %d more", n-len(shown)))
	}
	return append(notes, warningNotes(r.Warnings)...)
}

// verdict reports in a line whether the command fits the GPU.
func (s *Script) verdict(r *Report) string {
	ended := strings.TrimSuffix(s.Result+": "+s.Error, ": ")
	if len(r.Points) == 0 || r.Points[0].Run == nil || len(r.Devices) == 0 {
		return ended
	}
	run, d := r.Points[0].Run, r.Devices[0]
	switch {
	case run.OOM != nil && !run.Fits && s.DeviceWithout > 0:
		return fmt.Sprintf("does not fit: it would need %s; %v", bytesize.Format(s.DeviceWithout), run.OOM)
	case run.OOM != nil && !run.Fits:
		return "does not fit: " + run.OOM.String()
	case run.OOM != nil:
		return "fits, after the script caught an OutOfMemoryError: " + run.OOM.String()
	case s.Result != "fits":
		return ended
	}
	need := fmt.Sprintf("%s of %s, with the CUDA context", bytesize.Format(run.Device+s.Growth.Later()),
		bytesize.Format(d.Memory))
	if s.Unsafe != "" {
		return fmt.Sprintf("fits, but is not safe: %s: %v of fit and smoke (--safety-margin).", need, s.Unsafe)
	}
	return "fits: " + need + "."
}

// stepText formats the number of steps of each optimizer: "3 steps", or "5, 1 steps".
func (s *Script) stepText() string {
	steps := slices.Compact(slices.Clone(s.Steps))
	if len(steps) == 1 && steps[0] == 1 {
		return "1 step"
	}
	return strings.Join(lists.Map(steps, strconv.Itoa), ", ") + " steps"
}
