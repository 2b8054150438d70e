package trace

import (
	"slices"
	"sync"

	"github.com/vprof/vprof/profiler/program"
)

// pools are the small objects and growing tables of a recording, which later recordings reuse.
type pools struct {
	tensors slab[Tensor]
	stores  slab[storage]
	nodes   slab[Node]
	layouts layouts
	places  map[[2]string]*place
	sites   []site // parallel to the program's table of sites
	prog    program.Program
}

// unused are the pools that no recording uses at present.
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

// recycled are programs whose tables later recordings overwrite.
var recycled sync.Pool

// Recycle passes the tables of a program to later recordings. They have megabytes, which take longer to allocate and
// collect than to fill. The program, and everything that refers to its tables, must not be used afterwards.
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

// handOver returns a table, or a copy if much of its memory is unused. It makes room for the next recording, whose
// tables are often as long; a spare table of that length is reused.
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

// slab allocates objects of one type from large pieces, and reuses returned ones.
type slab[T any] struct {
	pieces [][]T
	used   int // pieces in use
	rest   []T // unused part of the last of them
	free   []*T
}

// slabPiece is the number of objects in a piece: enough that Go gives it pages of its own,
// and nodes are aligned to lines of the cache.
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

// give puts an object back into the slab.
func (s *slab[T]) give(x *T) { s.free = append(s.free, x) }

// begin starts the next piece. A piece of an earlier recording is cleared only now,
// shortly before the processor's cache needs it anyway.
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
