package trace

import (
	"math/bits"
	"slices"
	"sync"

	"github.com/vprof/vprof/profiler/program"
)

// memory is the working memory of a recording: pools of small objects that come and go,
// and tables of unknown length. It is reused by later recordings.
type memory struct {
	tensors slab[Tensor]
	stores  slab[storage]
	nodes   slab[Node]
	layouts layouts
	places  map[[2]string]*place
	sites   []site // with what the program's table of them has
	prog    program.Program
}

// memories are those that no recording uses at present.
var memories = sync.Pool{New: func() any { return &memory{places: map[[2]string]*place{}} }}

// Finish ends the recording and returns its program. Neither the tape nor
// anything that was made on it may be used afterwards: the next recording has
// its memory.
func (t *Tape) Finish() *program.Program {
	p, _ := t.FinishAll()
	return p
}

// FinishAll is Finish with the programs of [Options.Others], nil for GPUs that need a
// recording of their own. They share tables with the first, and end with it.
func (t *Tape) FinishAll() (own *program.Program, others []*program.Program) {
	m := t.memory
	t.memory = nil
	spare, _ := recycled.Get().(*program.Program)
	if spare == nil {
		spare = &program.Program{}
	}
	p := &program.Program{
		Instructions: handOver(&m.prog.Instructions, spare.Instructions),
		Buffers:      handOver(&m.prog.Buffers, spare.Buffers),
		Ops:          handOver(&m.prog.Ops, spare.Ops), Operands: handOver(&m.prog.Operands, spare.Operands),
		Products: handOver(&m.prog.Products, spare.Products), Sites: handOver(&m.prog.Sites, spare.Sites),
		Phases: handOver(&m.prog.Phases, spare.Phases),
	}
	if len(m.prog.Streams) > 0 {
		p.Streams, p.Events, p.Waits = m.prog.Streams, handOver(&m.prog.Events, spare.Events),
			handOver(&m.prog.Waits, spare.Waits)
		m.prog.Streams = nil
	}
	m.empty()
	memories.Put(m)
	return p, t.gpus.programs(p)
}

// recycled are programs whose tables the next recordings are written into.
var recycled sync.Pool

// Recycle gives the tables of a program to later recordings: they are megabytes, which
// cost more to get and to collect than to fill. The program must not be used afterwards,
// nor anything that refers to its tables.
func Recycle(p *program.Program) { recycled.Put(p) }

// empty clears the memory for the next recording.
func (m *memory) empty() {
	m.tensors.empty()
	m.stores.empty()
	m.nodes.empty()
	m.layouts.empty()
	clear(m.places)
	clear(m.sites)
	m.sites = m.sites[:0]
}

// handOver gives a table away, or a copy if much of its memory is unused, and
// makes room for the next recording: many are as long as the one before. A spare table
// of about that length is that room.
func handOver[T any](table *[]T, spare []T) []T {
	full := *table
	if cap(spare) >= len(full)-len(full)/8 {
		*table = spare[:0]
		return full
	}
	*table = make([]T, 0, len(full))
	if unused := cap(full) - len(full); unused > len(full)/8 {
		return slices.Clone(full)
	}
	return full
}

// slab hands out things of one type from large pieces, and takes them back.
type slab[T any] struct {
	pieces [][]T
	used   int // pieces that were begun
	rest   []T // of the last of them
	free   []*T
}

// slabPiece is how many things a piece has: so many that Go gives it pages of its
// own, and nodes begin where lines of the cache do.
const slabPiece = 512

// take returns a zero T.
func (s *slab[T]) take() *T {
	if last := len(s.free) - 1; last >= 0 {
		x := s.free[last]
		s.free = s.free[:last]
		var zero T
		*x = zero
		return x
	}
	if len(s.rest) == 0 {
		s.begin()
	}
	x := &s.rest[0]
	s.rest = s.rest[1:]
	return x
}

func (s *slab[T]) give(x *T) { s.free = append(s.free, x) }

// begin turns to the next piece. One that was used before is cleared only now,
// when it is about to be in the processor's cache anyway.
func (s *slab[T]) begin() {
	if s.used == len(s.pieces) {
		s.pieces = append(s.pieces, make([]T, slabPiece))
	} else {
		clear(s.pieces[s.used])
	}
	s.rest = s.pieces[s.used]
	s.used++
}

// empty makes all pieces free again.
func (s *slab[T]) empty() {
	s.used, s.rest, s.free = 0, nil, s.free[:0]
}

// Host is what a rank keeps in the host's memory for the whole of training, in bytes: what is offloaded there.
type Host struct {
	Weights   int64 `json:"weights,omitempty"`
	Gradients int64 `json:"gradients,omitempty"`
	// State is that of the optimizer, which steps on the host the Stepped bytes of weights.
	State   int64 `json:"state,omitempty"`
	Stepped int64 `json:"stepped,omitempty"`
	// Rounding is what page-locked memory has beyond what is in use: blocks are larger than what was asked for,
	// and stay where they were freed.
	Rounding int64 `json:"rounding,omitempty"`
}

// Pin adds a tensor in page-locked memory to a part of h.
func (h *Host) Pin(part *int64, bytes int64) {
	*part += bytes
	h.Rounding += pinned(bytes) - bytes
}

// Cache adds a block that has been freed: the allocator of page-locked memory gives none back.
func (h *Host) Cache(bytes int64) { h.Rounding += pinned(bytes) }

// pinned returns the size of a block of page-locked memory: CachingHostAllocator takes powers of two
// (aten/src/ATen/core/CachingHostAllocator.h, allocate).
func pinned(bytes int64) int64 {
	if bytes <= 0 {
		return 0
	}
	return 1 << bits.Len64(uint64(bytes-1))
}

// Host returns what is offloaded, to be added to.
func (t *Tape) Host() *Host { return &t.facts.Host }

// onHost counts the copies of saved tensors that lie in the host's memory.
type onHost struct{ bytes, pinned int64 }

// saveOnHost counts a copy, or with a sign of -1 that it ends.
func (t *Tape) saveOnHost(bytes, sign int64) {
	h := &t.savedOnHost
	h.bytes += sign * bytes
	h.pinned += sign * pinned(bytes)
	t.facts.HostSaved, t.facts.HostPinned = max(t.facts.HostSaved, h.bytes), max(t.facts.HostPinned, h.pinned)
}
