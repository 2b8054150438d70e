package trace

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Options say how to record.
type Options struct {
	// Annotate records the model's line for every event.
	Annotate bool
	// Warm starts with the library workspaces in place, as in a process that
	// has run the same operators before.
	Warm bool
}

// Tape records what happens on one device. It is not safe for concurrent use.
type Tape struct {
	board  Board
	opts   Options
	prog   *program.Program
	places map[string]*place

	// Interpreter state.
	python bool // the innermost activation is Python, not C++
	temps  []*Tensor
	locals []*Tensor
	op     string // operator called from Python or by the autograd node
	native string // innermost operator
	shown  bool   // op was called from Python
	node   string // autograd node, "" in forward
	place  *place // the module in execution
	step   int
	begun  int           // activations so far, but for casts
	point  point         // the innermost of them
	class  program.Class // of new buffers

	// Autograd state.
	noGrad  bool
	seq     int64
	visit   int64
	task    *graphTask // the call of backward that is running
	thread  int        // 0 the main thread, 1 the autograd device thread
	hooks   savedHooks
	casts   autocast
	library libraries
	convs   map[convCall][]int64 // workspaces of cuDNN, once found

	tensors []Tensor  // slab
	stores  []storage // slab
	nodes   []Node    // slab
	sizes   []int64   // slab of shapes and strides

	// What has ended, for use again.
	free       []*Tensor
	freeStores []*storage
	freeNodes  []*Node
	graves     [256]*Tensor
	grave      int // the oldest

	frames    []*Frame    // that have ended, for the next to use
	backwards []*backward // likewise
}

// New begins a recording for a board.
func New(board Board, o Options) *Tape {
	t := &Tape{
		board:  board,
		opts:   o,
		prog:   &program.Program{},
		places: make(map[string]*place, 64),
		python: true,
		step:   -1,
		class:  program.Temporaries,
	}
	t.place = t.placeOf("")
	t.library.init(board, o.Warm)
	return t
}

// Program is what has been recorded so far.
func (t *Tape) Program() *program.Program { return t.prog }

// Board is the GPU the step is recorded for.
func (t *Tape) Board() Board { return t.board }

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
func (t *Tape) In(c program.Class, f func()) {
	was := t.class
	t.class = c
	f()
	t.class = was
}

// NoGrad runs f as under torch.no_grad().
func (t *Tape) NoGrad(f func()) { t.withGrad(false, f) }

// Tracks reports whether autograd would follow an operator on xs: grad mode
// is on and one of them requires grad. Nil tensors are skipped.
func (t *Tape) Tracks(xs ...*Tensor) bool { return t.tracked(xs...) }

func (t *Tape) withGrad(on bool, f func()) {
	was := t.noGrad
	t.noGrad = !on
	f()
	t.noGrad = was
}

func (t *Tape) emit(k program.Kind, arg uint32) {
	t.prog.Instructions = push(t.prog.Instructions, program.Instruction{Kind: k, Arg: arg})
}

// push appends to a table of the program. Tables double, where append would
// add a quarter: a step has thousands of entries.
func push[T any](table []T, x T) []T {
	if len(table) == cap(table) {
		table = slices.Grow(table, max(len(table), 2048))
	}
	return append(table, x)
}

// allocate brings a storage of the given size to life.
func (t *Tape) allocate(bytes int64) *storage {
	var s *storage
	if last := len(t.freeStores) - 1; last >= 0 {
		s, t.freeStores = t.freeStores[last], t.freeStores[:last]
		*s = storage{}
	} else {
		if len(t.stores) == 0 {
			t.stores = make([]storage, 256)
		}
		s, t.stores = &t.stores[0], t.stores[1:]
	}
	s.bytes = bytes
	if t.hooks.last && t.native != castOp {
		t.hooks.muted = true
	}
	if bytes == 0 || t.hooks.muted {
		s.blank = true
		return s
	}
	if bytes < 0 {
		panic(fmt.Sprintf("trace: %s asks for %d bytes", t.op, bytes))
	}
	s.buffer = uint32(len(t.prog.Buffers))
	t.prog.Buffers = push(t.prog.Buffers, program.Buffer{Bytes: bytes, Class: t.class, Site: t.site()})
	t.emit(program.Alloc, s.buffer)
	return s
}

// drop gives up one tensor's share of a storage.
func (t *Tape) drop(s *storage) {
	s.refs--
	if s.refs > 0 {
		return
	}
	if !s.blank {
		t.emit(program.Free, s.buffer)
	}
	if !t.hooks.muted {
		t.freeStores = append(t.freeStores, s)
	}
}

// header makes a tensor over a storage and registers it as a temporary of the
// running C++ activation, if there is one.
func (t *Tape) header(s *storage, d DType, shape, strides []int64, offset int64) *Tensor {
	x := t.bare(s, d, offset)
	x.setGeometry(shape, strides)
	return x
}

// headerLike is header with the geometry of another tensor, which both share.
func (t *Tape) headerLike(s *storage, d DType, like *Tensor, offset int64) *Tensor {
	x := t.bare(s, d, offset)
	x.shape, x.strides, x.numel = like.shape, like.strides, like.numel
	return x
}

// bare is a header without geometry.
func (t *Tape) bare(s *storage, d DType, offset int64) *Tensor {
	var x *Tensor
	if last := len(t.free) - 1; last >= 0 {
		x, t.free = t.free[last], t.free[:last]
		*x = Tensor{}
	} else {
		if len(t.tensors) == 0 {
			t.tensors = make([]Tensor, 128)
		}
		x, t.tensors = &t.tensors[0], t.tensors[1:]
	}
	x.tape, x.store, x.dtype, x.offset = t, s, d, offset
	s.refs++
	if !t.python {
		t.list(x)
	}
	return x
}

// list adds a temporary of the running activation.
func (t *Tape) list(x *Tensor) {
	x.listed++
	t.temps = append(t.temps, x)
}

// buried is the shape of dead tensors: it fits no strides.
var buried = []int64{-1}

// bury puts a dead tensor where its memory is used again after many others
// have died, so that one that is used after its end is found out. What dies
// while a recomputation unwinds is looked at again.
func (t *Tape) bury(x *Tensor) {
	if t.hooks.muted {
		return
	}
	x.shape, x.strides, x.store = buried, nil, nil
	if old := t.graves[t.grave]; old != nil {
		t.free = append(t.free, old)
	}
	t.graves[t.grave] = x
	t.grave = (t.grave + 1) % len(t.graves)
}

// ints is a fresh slice of n numbers.
func (t *Tape) ints(n int) []int64 {
	if len(t.sizes) < n {
		t.sizes = make([]int64, max(4096, n))
	}
	s := t.sizes[:n:n]
	t.sizes = t.sizes[n:]
	return s
}

// empty is a fresh row-major tensor.
func (t *Tape) empty(d DType, shape ...int64) *Tensor {
	var buf [8]int64
	return t.emptyStrided(d, shape, contiguousStrides(buf[:0], shape))
}

// emptyStrided is a fresh tensor with the given strides; its storage reaches
// from its first to its last element.
func (t *Tape) emptyStrided(d DType, shape, strides []int64) *Tensor {
	if numel(shape) > mostElements {
		t.Raise(fmt.Errorf("RuntimeError: Storage size calculation overflowed with sizes=%v", shape))
	}
	last := int64(1)
	for i, s := range shape {
		if s == 0 {
			last = 0
			break
		}
		last += (s - 1) * strides[i]
	}
	return t.header(t.allocate(last*d.Size()), d, shape, strides, 0)
}

// emptyLike is torch.empty_like with preserved strides.
func (x *Tensor) emptyLike(d DType) *Tensor {
	t := x.tape
	if x.isDense() {
		return t.headerLike(t.allocate(x.numel*d.Size()), d, x, 0)
	}
	return t.elementwise(d, x)
}

// alias is another header over the storage of x, without history.
func (x *Tensor) alias(shape, strides []int64, offset int64) *Tensor {
	return x.tape.header(x.store, x.dtype, shape, strides, offset)
}

// detached is a header like x that takes no part in autograd.
func (x *Tensor) detached() *Tensor { return x.tape.headerLike(x.store, x.dtype, x, x.offset) }

// scratch allocates bytes of library or kernel scratch space; the tensor is a
// temporary of the running activation.
func (t *Tape) scratch(bytes int64) *Tensor { return t.empty(U8, bytes) }

// workspace is scratch space asked for by a library.
func (t *Tape) workspace(bytes int64) *Tensor {
	w := t.scratch(bytes)
	w.classify(program.Workspace)
	return w
}
