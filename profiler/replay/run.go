package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/program"
)

// Run is the result of a replay: peaks, phases and statistics of the allocator, all in bytes.
type Run struct {
	// Max has the maximum of each count; the maxima may occur at different instructions.
	Max Usage
	// Peak is the memory state when the allocated bytes first reached their maximum.
	Peak MemoryState
	// Phases are the completed phases in order, set-up first. After an OOM, the last one is named "oom", as in the
	// reference records; it is the phase in which memory ran out.
	Phases []Phase
	// OOM describes the request that did not fit; nil if all did.
	OOM *OOM
	// Stats are the allocator's final statistics, limited to the ones of [allocator.Allocator.CountBytesOnly]. Their
	// peaks are since the last mark.
	Stats allocator.Stats
	// Timeline has a point for each instruction that changed the memory, if [Options.Timeline] is set.
	Timeline []Point
}

// Usage is the memory in use by four counts, each at least as large as the one before.
type Usage struct {
	// Requested is the sum of the requested bytes. Its peak is the need of a heap without overhead.
	Requested int64
	// Allocated is the size of the blocks in use, including rounding and remainders that were not split off.
	Allocated int64
	// Active is Allocated plus freed blocks that still wait for another stream. In programs, a stream that uses
	// another's block is always waited for, so Active equals Allocated.
	Active int64
	// Reserved is the size of the segments that the allocator holds.
	Reserved int64
}

func (u Usage) max(v Usage) Usage {
	return Usage{
		max(u.Requested, v.Requested), max(u.Allocated, v.Allocated),
		max(u.Active, v.Active), max(u.Reserved, v.Reserved),
	}
}

// Phase is a phase of a program with its memory usage.
type Phase struct {
	program.Phase
	// End is the memory usage at the end of the phase, Max the maximum within it: the values that PyTorch reports if
	// torch.cuda.reset_peak_memory_stats is called at every mark.
	End, Max Usage
}

// MemoryState is the state of the memory after an instruction.
type MemoryState struct {
	// Instruction is the index in Program.Instructions; -1 before the first.
	Instruction int
	// Phase is the phase of the instruction, which the next mark ends.
	Phase program.Phase
	// Requested and Allocated are the bytes of the live buffers by class. Their totals equal the totals of Usage.
	Requested, Allocated program.Breakdown
	Usage                Usage
	// Live are the live buffers, ordered by number.
	Live []Holding
}

// Largest returns the n largest live buffers, largest first.
func (m *MemoryState) Largest(n int) []Holding {
	live := slices.Clone(m.Live)
	slices.SortStableFunc(live, func(a, b Holding) int { return cmp.Compare(b.Allocated, a.Allocated) })
	return live[:min(n, len(live))]
}

// Holding is a live buffer with its memory.
type Holding struct {
	Buffer uint32
	Class  program.Class
	// Requested is the size of the buffer, Allocated the size of its block.
	Requested, Allocated int64
}

// OOM describes the request that did not fit the GPU.
type OOM struct {
	// Instruction, Buffer, Class and Site identify the failed allocation; Phase is the phase in which it failed.
	Instruction int
	Buffer      uint32
	Class       program.Class
	Site        program.Site
	Phase       program.Phase
	// Requested is the requested size in bytes.
	Requested int64
	// Cause is the allocator's error, with its allocated and reserved bytes.
	Cause *allocator.OOMError
	// At is the memory state before the failed allocation.
	At MemoryState
}

// String describes the failed request in one line.
func (o *OOM) String() string {
	where := o.Site.Op
	if o.Site.Node != "" {
		where = strings.TrimSpace(where + " of " + o.Site.Node)
	}
	if o.Site.Module != "" {
		where = strings.TrimSpace(where + " in " + o.Site.Module)
	}
	if where == "" {
		where = fmt.Sprintf("buffer %d", o.Buffer)
	}
	return fmt.Sprintf("out of memory in %v: %s asks for %d bytes (%v); %d bytes allocated, %d reserved",
		o.Phase, where, o.Requested, o.Class, o.At.Usage.Allocated, o.At.Usage.Reserved)
}

// Point is the memory usage after an instruction.
type Point struct {
	Instruction int
	Usage       Usage
}

// A PhaseUsage is the memory usage in a phase of a run, or at its end.
type PhaseUsage struct {
	Usage
	// IsMissing reports whether the run ran out of memory before the phase ended; Usage is then the whole run's.
	IsMissing bool
}

// WholeUsage returns the peak usage of the run.
func (r *Run) WholeUsage() PhaseUsage { return PhaseUsage{r.Max, r.OOM != nil} }

// PhaseEnd returns the memory usage at the end of a step's last phase, or of its last phase with the given name; zero
// if there is none.
func (r *Run) PhaseEnd(step int, name string) PhaseUsage {
	if r.endedBefore(step, name) {
		return PhaseUsage{r.Max, true}
	}
	for _, p := range slices.Backward(r.Phases) {
		if p.Step == step && (name == "" || p.Name == name) {
			return PhaseUsage{p.End, false}
		}
	}
	return PhaseUsage{}
}

// PhasePeak returns the peak usage in the phases of a step with the given name, or in the whole step if none has it.
func (r *Run) PhasePeak(step int, name string) PhaseUsage {
	if r.endedBefore(step, name) {
		return PhaseUsage{r.Max, true}
	}
	var u Usage
	named := r.hasPhase(step, name)
	for _, p := range r.Phases {
		if p.Step == step && (!named || p.Name == name) {
			u = u.max(p.Max)
		}
	}
	return PhaseUsage{u, false}
}

// endedBefore reports whether the run ended before the end of a phase of a step, or before the end of the step if no
// phase is named.
func (r *Run) endedBefore(step int, name string) bool {
	if r.OOM == nil || r.OOM.Phase.Step > step {
		return false
	}
	return name == "" || !r.hasPhase(step, name)
}

func (r *Run) hasPhase(step int, name string) bool {
	return slices.ContainsFunc(r.Phases, func(p Phase) bool { return p.Step == step && p.Name == name })
}
