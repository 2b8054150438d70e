package trace

import (
	"slices"
	"sync"

	"github.com/vprof/vprof/profiler/program"
)

// pools are the objects and tables of a finished recording, whose Go memory later recordings reuse.
type pools struct {
	tensors slab[Tensor]
	stores  slab[storage]
	nodes   slab[Node]
	layouts layouts
	places  map[[2]string]*place
	sites   []site // parallel to the program's table of sites
	prog    program.Program
}

// unused holds the pools that no recording uses at present.
var unused = sync.Pool{New: func() any { return &pools{places: map[[2]string]*place{}} }}

// Finish ends the recording and returns its program. Neither the tape nor anything that
// was made on it may be used afterwards: the next recording reuses its memory.
func (t *Tape) Finish() *program.Program {
	p, _ := t.FinishAll()
	return p
}

// FinishAll ends the recording like Finish. It also returns the programs of [Options.Others].
func (t *Tape) FinishAll() (own *program.Program, others *OtherPrograms) {
	m := t.pools
	t.pools = nil
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
	unused.Put(m)
	return p, t.gpus.programs(p)
}

// recycled holds programs whose tables later recordings overwrite.
var recycled sync.Pool

// Recycle gives the tables of a program to later recordings. The tables take megabytes, and allocating and collecting
// them takes longer than filling them. The program, and everything that refers to its tables, must not be used
// afterwards.
func Recycle(p *program.Program) { recycled.Put(p) }

// empty clears the pools for the next recording.
func (m *pools) empty() {
	m.tensors.empty()
	m.stores.empty()
	m.nodes.empty()
	m.layouts.empty()
	clear(m.places)
	clear(m.sites)
	m.sites = m.sites[:0]
}

// handOver returns a table, or a copy if much of its capacity is unused. It then makes room for the table of the next
// recording, which often is as long; it reuses spare if that has the capacity.
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

// slab allocates objects of one type from large pieces and reuses returned objects.
type slab[T any] struct {
	pieces [][]T
	used   int // pieces in use
	rest   []T // unused part of the last of them
	free   []*T
}

// slabPiece is the number of objects in a piece. Pieces of this size get Go memory pages of their own, so nodes are
// aligned to cache lines.
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

// give returns an object to the slab.
func (s *slab[T]) give(x *T) { s.free = append(s.free, x) }

// begin starts the next piece. A piece that an earlier recording used is cleared only now, so that it is in the
// processor's cache when its objects are used.
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
