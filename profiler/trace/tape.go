// Package trace records a training step: the model's Go description runs once over tensors that have a shape and no
// data, and every allocation, launch and free of PyTorch becomes an instruction of a program.
//
// Six files explain the rest; read them in this order:
//
//   - tape.go: the recording and its parts (interpreter.go, autograd.go, memory.go, ranks.go)
//   - frame.go: Python frames, which hold the tensors that a model's code names
//   - call.go: the activation of an operator in C++, with its temporaries and locals
//   - node.go: a node of the autograd graph and the tensors that it saves
//   - engine.go: backward, in the order of PyTorch's autograd engine
//   - launch.go: kernels and the tensors that they read and write
//
// An operator is a row of operators.txt whose derivative is a
// formula (formula.go), or a method in the file of its kind, such as conv.go.
package trace

import (
	"errors"
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Options are the options of a recording.
type Options struct {
	// Annotate reports whether allocations are recorded with the source line of the model.
	Annotate bool
	// Warm reports whether library workspaces exist already, as in a process that has run the same operators before.
	Warm bool
	// Done stops the recording when the channel is closed: the recording panics with [ErrStopped].
	Done <-chan struct{}
	// Others are further GPUs. The recording is also valid for those on which the step differs only in scratch memory.
	Others []GPU
	// Ceiling limits the allocated bytes: a recording that exceeds it raises [ErrCeiling]. Zero means no limit.
	Ceiling   int64
	NoKernels bool // leaves out the launches of kernels
	// Further, if not nil, is called after the last step of [Tape.Steps] with the program so far. It reports whether
	// another step is to be recorded.
	Further func(*program.Program) bool
}

// ErrStopped is the value with which a recording panics after Done was closed.
var ErrStopped = errors.New("the recording was stopped")

// ErrCeiling is raised by a recording that exceeds its ceiling.
var ErrCeiling = errors.New("the step needs more memory than the limit at which its recording stops; use a smaller " +
	"batch or shorter sequences")

// checkEvery is the number of operator calls between two checks of Done: about 100 µs.
const checkEvery = 1024

// stopIfDone panics if Done is closed.
func (t *Tape) stopIfDone() {
	select {
	case <-t.opts.Done:
		panic(ErrStopped)
	default:
	}
}

// Tape records the operators that one device runs. It is not safe for concurrent use.
type Tape struct {
	interpreter // the code that runs
	memory      // storages, buffers and the program
	autograd    autograd
	ranks       ranks     // other ranks and other GPUs of the process
	libraries   libraries // cuBLAS and cuDNN

	opts  Options
	rules Rules
	gpus  gpus
	facts Facts
}

// New starts a recording for a GPU, with the rules of a release.
func New(gpu GPU, rules Rules, o Options) *Tape {
	t := &Tape{
		interpreter: interpreter{codeScope: &codeScope{python: true}, step: -1, class: program.Temporaries},
		memory:      memory{pools: unused.Get().(*pools)},
		gpus:        newGPUs(gpu, o.Others),
		rules:       rules,
		opts:        o,
	}
	t.place = t.placeOf("", "")
	t.libraries.init(o.Warm)
	return t
}

// Program returns the program recorded so far. It grows with the recording.
func (t *Tape) Program() *program.Program { return &t.prog }

// Rules returns the rules of the release that the step is recorded for.
func (t *Tape) Rules() *Rules { return &t.rules }

// Mark records the end of a phase, such as "forward".
func (t *Tape) Mark(phase string) {
	t.prog.Phases = append(t.prog.Phases, program.Phase{Step: t.step, Name: phase})
	t.emit(program.MarkPhase, uint32(len(t.prog.Phases)-1))
}

// EmptyCache records torch.cuda.empty_cache().
func (t *Tape) EmptyCache() { t.emit(program.EmptyCache, 0) }

// emit appends an instruction to the program.
func (t *Tape) emit(k program.Kind, arg uint32) {
	push(&t.prog.Instructions, program.Instruction{Kind: k, Arg: arg})
}

// push appends an entry to a table of the program.
func push[T any](table *[]T, x T) { *extend(table) = x }

// extend adds an entry to a table without clearing it; the caller overwrites it. Tables double when they grow (append
// adds a quarter), since a step has thousands of entries.
func extend[T any](table *[]T) *T {
	n := len(*table)
	if n == cap(*table) {
		*table = slices.Grow(*table, max(n, 2048))
	}
	*table = (*table)[:n+1]
	return &(*table)[n]
}

// Play copies the tables of p, which was recorded elsewhere, to the tape. The tape must be new and record nothing else.
func (t *Tape) Play(p *program.Program) {
	own := &t.prog
	own.Instructions = append(own.Instructions[:0], p.Instructions...)
	own.Buffers = append(own.Buffers[:0], p.Buffers...)
	own.Ops = append(own.Ops[:0], p.Ops...)
	own.Operands = append(own.Operands[:0], p.Operands...)
	own.Products = append(own.Products[:0], p.Products...)
	own.Sites = append(own.Sites[:0], p.Sites...)
	own.Phases = append(own.Phases[:0], p.Phases...)
	own.Streams = append([]string(nil), p.Streams...)
	own.Events = append(own.Events[:0], p.Events...)
	own.Waits = append(own.Waits[:0], p.Waits...)
}
