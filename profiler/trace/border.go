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
	// follows it in autograd; several times, and with views.
	Depart(x *Tensor)
}

// borders is where a recording stands among the parts of a model.
type borders struct {
	part   Part
	border Border
	// made counts the storages from before; those of some numbers lie in the memory of
	// others.
	made uint32
	lent map[uint32]*Tensor
}

// Across begins a pass through all parts of a model. Some storages of the part before are
// taken from lent, by their numbers (see [Tensor.Number]). A nil border ends the pass.
func (t *Tape) Across(b Border, lent map[uint32]*Tensor) {
	t.borders = borders{border: b, lent: lent}
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
			b.border.Depart(x)
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
	}
	if b.part == After && x.departs() {
		b.border.Depart(x)
	}
}
