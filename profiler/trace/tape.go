// Package trace records a training step: the model's Go description runs once
// over tensors that have a shape and no data, and every allocation, launch and
// free that PyTorch would do comes out as a program.
package trace

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// Options say how to record.
type Options struct {
	// Annotate records the model's line for every event.
	Annotate bool
	// Warm starts with the library workspaces in place, as in a process that
	// has run the same operators before.
	Warm bool
	// Done stops the recording when it is closed: it panics with [ErrStopped].
	Done <-chan struct{}
	// Others are further GPUs. The recording serves those, too, on which the step differs
	// in scratch memory alone.
	Others []GPU
	// Ceiling is how many bytes may live at a time: more raise [ErrBeyond]. Zero is no end.
	Ceiling int64
}

// ErrStopped is the panic of a recording that was told to stop.
var ErrStopped = errors.New("the recording was stopped")

// ErrBeyond is what a recording raises at its ceiling.
var ErrBeyond = errors.New("the step needs more memory than was asked about")

// checkEvery is how many activations pass between two checks of Done: some 100 µs.
const checkEvery = 1024

func (t *Tape) stopIfDone() {
	select {
	case <-t.opts.Done:
		panic(ErrStopped)
	default:
	}
}

// Tape records what happens on one device. It is not safe for concurrent use.
type Tape struct {
	*memory
	gpus  gpus
	rules Rules
	opts  Options
	at    uint32 // index of the site where something was recorded last
	// siteActivations is the value of begun when at was found; if begun has grown
	// since, another activation is running and the site must be found again.
	siteActivations int

	keepOutputs func(xs []*Tensor) // see KeepOutputs

	// Interpreter state.
	*scope
	calls  []*call // the stack of activations, of which depth are running
	depth  int
	temps  []*Tensor
	locals []*Tensor
	shown  bool   // op was called from Python
	node   string // autograd node, "" in forward
	place  *place // the module in execution
	step   int
	begun  int           // activations so far, but for casts
	class  program.Class // of new buffers
	live   int64         // bytes
	stream program.Stream
	// wrappers are called around the forward passes of modules; nil if there are none.
	wrappers map[*Path]Wrapper
	// onEmptyRead has an empty storage that an op reads allocated; unplaced weights get no memory.
	onEmptyRead func(x *Tensor)
	unplaced    bool
	// linear takes the place of linear layers, if it is not nil.
	linear func(f *Frame, x, weight, bias *Tensor) *Tensor
	// splits are the weights that ranks share; nil if there are none.
	splits   map[*Tensor]Sharing
	pipeline pipeline
	// spread is a model over several GPUs of the process; nil for most.
	spread *spread
	// styles are what is put around the calls of modules whose ranks share tokens, nil if there
	// are none; subclassed says that tensors are DTensors.
	styles     map[*Path]Style
	subclassed bool
	// collectives are those that nothing has waited for.
	collectives []asyncCollective

	// Autograd state.
	noGrad bool
	seq    int64
	visit  int32
	task   *graphTask // the call of backward that is running
	hooked map[*Node][]func()
	thread int // 0 the main thread, 1 the autograd device thread
	hooks  savedHooks
	// kept is what checkpointed regions keep, selection what the region that runs does.
	kept      []Kept
	selection *selection
	casts     autocast
	// attentionKernels are those that attention may use; nil for all.
	attentionKernels []string

	dropoutState *Tensor // of cuDNN's recurrent layers; nil before the first that drop out
	library      libraries
	convs        map[convCall][][]int64 // workspaces of cuDNN, once found, by GPU
	// answers are what cuDNN said of convolutions; nil if it was not asked.
	answers func(GPU) cudnn.Answer
	// savedOnHost is what lies in the host's memory for backward.
	savedOnHost onHost

	// quarantine is a ring of the tensors that ended last, oldest at the index
	// oldest. Their memory is not used again while they are in it.
	quarantine [64]*Tensor
	oldest     int

	products [61]uint32 // numbers of matrix products, by their sizes

	facts Facts

	// What has ended, for the next to use.
	frames    []*Frame
	freeLists []*nodeLists
	backwards []*backward
}

// New begins a recording for a GPU, by the rules of a release.
func New(gpu GPU, rules Rules, o Options) *Tape {
	t := &Tape{
		memory: memories.Get().(*memory),
		gpus:   newGPUs(gpu, o.Others),
		rules:  rules,
		opts:   o,
		scope:  &scope{python: true},
		step:   -1,
		class:  program.Temporaries,
	}
	t.place = t.placeOf("", "")
	t.library.init(o.Warm)
	return t
}

// Program returns what has been recorded so far. It grows with the recording.
func (t *Tape) Program() *program.Program { return &t.prog }

// Rules returns the rules of the release that the step is recorded for.
func (t *Tape) Rules() *Rules { return &t.rules }

// Mark ends a phase.
func (t *Tape) Mark(phase string) {
	t.prog.Phases = append(t.prog.Phases, program.Phase{Step: t.step, Name: phase})
	t.emit(program.Mark, uint32(len(t.prog.Phases)-1))
}

// SetStep says which training step is recorded from here on; -1 is set-up.
func (t *Tape) SetStep(step int) { t.step = step }

// EmptyCache is torch.cuda.empty_cache().
func (t *Tape) EmptyCache() { t.emit(program.EmptyCache, 0) }

// In runs f with new buffers counted in class c.
func (t *Tape) In(c program.Class, f func()) { during(&t.class, c, f) }

// during runs f while a variable has a value.
func during[T any](variable *T, value T, f func()) {
	before := *variable
	*variable = value
	f()
	*variable = before
}

// NoGrad runs f as under torch.no_grad().
func (t *Tape) NoGrad(f func()) { during(&t.noGrad, true, f) }

// EnableGrad runs f with autograd on, as torch.enable_grad() does.
func (t *Tape) EnableGrad(f func()) { during(&t.noGrad, false, f) }

func (t *Tape) emit(k program.Kind, arg uint32) {
	push(&t.prog.Instructions, program.Instruction{Kind: k, Arg: arg})
}

// push appends to a table of the program.
func push[T any](table *[]T, x T) { *extend(table) = x }

// extend adds an entry to a table, with whatever was there before. Tables double,
// where append would add a quarter: a step has thousands of entries.
func extend[T any](table *[]T) *T {
	n := len(*table)
	if n == cap(*table) {
		*table = slices.Grow(*table, max(n, 2048))
	}
	*table = (*table)[:n+1]
	return &(*table)[n]
}

// allocate allocates a storage of the given size.
func (t *Tape) allocate(bytes int64) *storage {
	s := t.stores.take()
	s.bytes, s.otherGPU = bytes, t.pipeline.part == OtherGPU
	if t.hooks.last && t.native != castOp {
		t.hooks.muted = true
	}
	if bytes == 0 || t.hooks.muted {
		s.blank = true
		return s
	}
	if t.pipeline.part != OwnStage {
		t.pipeline.fill(s)
		return s
	}
	if bytes < 0 {
		panic(fmt.Sprintf("trace: %s asks for %d bytes", t.op, bytes))
	}
	if len(t.collectives) > 0 {
		t.waitForRead()
	}
	s.buffer = uint32(len(t.prog.Buffers))
	push(&t.prog.Buffers, program.Buffer{Bytes: bytes, Class: t.class, Stream: t.stream, Site: t.site()})
	t.emit(program.Alloc, s.buffer)
	if t.live += bytes; t.opts.Ceiling > 0 && t.live > t.opts.Ceiling {
		t.Raise(ErrBeyond)
	}
	return s
}

// drop gives up one tensor's share of a storage.
func (t *Tape) drop(s *storage) {
	s.refs--
	if s.refs > 0 {
		return
	}
	if !s.blank && !s.received {
		t.live -= s.bytes
		t.emit(program.Free, s.buffer)
	}
	if t.hooks.muted { // the unwinding may make views of it, which hold no memory
		s.blank = true
		return
	}
	t.stores.give(s)
}

// header makes a tensor over a storage and registers it as a temporary of the
// running C++ activation, if there is one.
func (t *Tape) header(s *storage, d DType, l *layout, offset int64) *Tensor {
	x := t.bareHeader(s, d, l, offset)
	if !t.python {
		t.list(x)
	}
	return x
}

// bareHeader returns a header for a holder other than an activation.
func (t *Tape) bareHeader(s *storage, d DType, l *layout, offset int64) *Tensor {
	x := t.tensors.take()
	x.layout, x.tape, x.store, x.dtype, x.offset = l, t, s, d, offset
	s.refs++
	return x
}

// list adds a temporary of the running activation.
func (t *Tape) list(x *Tensor) {
	x.listed++
	t.temps = append(t.temps, x)
}

// retire puts off the reuse of a tensor whose last reference went: only after 64
// others may a new tensor take its memory, so that a model that goes on using it is
// found out. Tensors that end while a recomputation unwinds are left alone, because
// the unwinding looks at them again.
func (t *Tape) retire(x *Tensor) {
	if t.hooks.muted {
		return
	}
	x.layout, x.store = expired, nil
	if old := t.quarantine[t.oldest]; old != nil {
		t.tensors.give(old)
	}
	t.quarantine[t.oldest] = x
	t.oldest = (t.oldest + 1) % len(t.quarantine)
}

// layout returns the layout with the given shape and strides.
func (t *Tape) layout(shape, strides []int64) *layout { return t.layouts.of(shape, strides) }

// contiguous returns the row-major layout of a shape.
func (t *Tape) contiguous(shape []int64) *layout {
	var buf [8]int64
	return t.layout(shape, contiguousStrides(buf[:0], shape))
}

// channelsLast returns the channels-last layout of a shape.
func (t *Tape) channelsLast(shape []int64) *layout {
	var buf [8]int64
	return t.layout(shape, channelsLastStrides(buf[:0], shape))
}

// fresh returns a tensor over a storage of its own, which reaches from its first to
// its last element.
func (t *Tape) fresh(d DType, l *layout) *Tensor {
	if l.numel > mostElements {
		t.Raise(fmt.Errorf("RuntimeError: Storage size calculation overflowed with sizes=%v", l.shape))
	}
	return t.header(t.allocate(l.extent*d.Size()), d, l, 0)
}

// empty returns a fresh row-major tensor.
func (t *Tape) empty(d DType, shape ...int64) *Tensor { return t.fresh(d, t.contiguous(shape)) }

// emptyStrided returns a fresh tensor with the given strides.
func (t *Tape) emptyStrided(d DType, shape, strides []int64) *Tensor {
	return t.fresh(d, t.layout(shape, strides))
}

// emptyLike is torch.empty_like with preserved strides.
func (x *Tensor) emptyLike(d DType) *Tensor {
	if x.dense {
		return x.tape.fresh(d, x.layout)
	}
	return x.tape.elementwise(d, x)
}

// alias is another header over the storage of x, without history.
func (x *Tensor) alias(shape, strides []int64, offset int64) *Tensor {
	return x.tape.header(x.store, x.dtype, x.tape.layout(shape, strides), offset)
}

// detached returns a header like x that takes no part in autograd.
func (x *Tensor) detached() *Tensor { return x.tape.header(x.store, x.dtype, x.layout, x.offset) }

// scratch allocates bytes of library or kernel scratch space; the tensor is a
// temporary of the running activation.
func (t *Tape) scratch(bytes int64) *Tensor { return t.empty(U8, bytes) }

// workspace is scratch space asked for by a library.
func (t *Tape) workspace(bytes int64) *Tensor {
	w := t.scratch(bytes)
	w.classify(program.Workspace)
	return w
}

// Play records the steps of a program that was recorded elsewhere: the tables of the tape
// become copies of its own. The tape must be new, and records nothing else.
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
