package trace

import "github.com/vprof/vprof/profiler/program"

// Part says which part of a model runs, as a rank of a pipeline sees it.
type Part uint8

// The parts are what the rank runs itself, and what other ranks run before and after it. The
// tensors of those have shapes and no memory, and run no kernels.
const (
	Own Part = iota
	Before
	After
)

// A Border is told of the tensors that one rank of a pipeline computes and another reads.
type Border interface {
	// Arrive is called before the rank's own part reads a tensor that has no memory.
	Arrive(x *Tensor)
	// Root is called with a tensor from before, whose gradient is sent back: it is a leaf
	// from now on.
	Root(x *Tensor)
	// Depart is called when code of ranks after this one reads a tensor that the rank has, or
	// follows it in autograd; several times, and with views. It reports whether that is new.
	Depart(x *Tensor) bool
}

// borders is where a recording stands among the parts of a model.
type borders struct {
	part   Part
	border Border
	// made counts the storages from before; those of some numbers lie in the memory of
	// others.
	made uint32
	lent map[uint32]*Tensor
	// crossed counts what the border was told of while the part after runs.
	crossed int
	detours Detours
}

// Detours are the calls of modules by other ranks in which nothing crosses a border, as a pass through a model has
// found them; passes after it need not run them.
type Detours map[*Path]detour

// detour is the number of a call's output, and that of the storage made next (see [Tensor.Number]).
type detour struct{ output, next uint32 }

// Across begins a pass through all parts of a model. Some storages of the part before are
// taken from lent, by their numbers (see [Tensor.Number]). What is found out about calls of other ranks
// is noted in detours, unless that is nil, and used in passes after it. A nil border ends the pass.
func (t *Tape) Across(b Border, lent map[uint32]*Tensor, detours Detours) {
	t.borders = borders{border: b, lent: lent, detours: detours}
}

// Around runs the call of a module with x, which leaves nothing behind but its output. Where it is known that other
// ranks run it, and that nothing in it crosses a border, one operator takes its place.
func (t *Tape) Around(p *Path, x *Tensor, call func() *Tensor) *Tensor {
	b := &t.borders
	if b.detours == nil || b.part == Own {
		return call()
	}
	if d, known := b.detours[p]; known {
		b.made = d.output
		y := x.MulScalar()
		b.made = d.next
		return y
	}
	part, made, crossed := b.part, b.made, b.crossed
	y := call()
	if b.part == part && b.crossed == crossed && !b.lends(made) && y.sameShape(x.layout) &&
		y.dtype == x.dtype && y.requiresGrad == x.requiresGrad {
		b.detours[p] = detour{y.Number(), b.made}
	}
	return y
}

// lends reports whether storages of the part before are lent from a number on that are made already.
func (b *borders) lends(from uint32) bool {
	for n := from; n < b.made; n++ {
		if b.lent[n] != nil {
			return true
		}
	}
	return false
}

// depart tells the border of a tensor that a rank after this one reads.
func (b *borders) depart(x *Tensor) {
	if b.border.Depart(x) {
		b.crossed++
	}
}

// Enter says which part runs from here on.
func (t *Tape) Enter(p Part) { t.borders.part = p }

// Elsewhere runs f as a part that other ranks run, if they is set, else as part of what runs
// now.
func (t *Tape) Elsewhere(they bool, f func()) {
	if they {
		was := t.borders.part
		t.borders.part = After
		defer func() { t.borders.part = was }()
	}
	f()
}

// Number numbers the storages that the part before makes, which have no memory.
func (x *Tensor) Number() uint32 { return x.store.buffer }

// Storage identifies the storage of x as long as it lives.
func (x *Tensor) Storage() any { return x.store }

// StorageBytes is the size of the storage that x is a view of.
func (x *Tensor) StorageBytes() int64 { return x.store.bytes }

// fill gives a storage that the rank does not allocate itself what there is for it.
func (b *borders) fill(s *storage) {
	s.blank = true
	if b.part != Before {
		return
	}
	s.buffer = b.made
	b.made++
	if y := b.lent[s.buffer]; y != nil {
		s.buffer, s.blank, s.lent = y.store.buffer, false, true
	}
}

// crosses tells the border of what a kernel reads. It reports whether another rank runs
// the kernel.
func (t *Tape) crosses(reads []*Tensor) bool {
	b := &t.borders
	if b.border == nil || b.part == Before {
		return b.part != Own
	}
	for _, x := range reads {
		switch {
		case x == nil || x.store.bytes == 0:
		case b.part == Own && x.store.blank:
			b.border.Arrive(x)
		case b.part == After && x.departs():
			b.depart(x)
		}
	}
	return b.part != Own
}

// departs reports whether the rank has computed or received x.
func (x *Tensor) departs() bool {
	switch c := x.class(); {
	case x.store.blank:
		return false
	default:
		return c != program.Weights && c != program.Buffers && c != program.Batch
	}
}

// follow is called with a tensor that is about to become the input of a node.
func (t *Tape) follow(x *Tensor) {
	b := &t.borders
	if x.node == nil || b.part == Before {
		return
	}
	if x.node.flags&isBefore != 0 && (b.part == Own || x.store.lent) {
		n, v := x.node, x.view
		x.node, x.out, x.view = nil, 0, nil
		n.release()
		if v != nil {
			v.release()
		}
		b.border.Root(x)
		b.crossed++
	}
	if b.part == After && x.departs() {
		b.depart(x)
	}
}
