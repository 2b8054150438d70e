package allocator

// State is what a block is used for.
type State uint8

// The states of a block.
const (
	// Free blocks are cached, for the next request.
	Free State = iota
	// Allocated blocks are in use.
	Allocated
	// PendingFree blocks were freed, but another stream may still use them.
	PendingFree
	// unmapped stretches of an expandable segment have no memory.
	unmapped
)

// String is the state as a PyTorch snapshot spells it.
func (s State) String() string {
	switch s {
	case Free:
		return "inactive"
	case Allocated:
		return "active_allocated"
	case PendingFree:
		return "active_pending_free"
	}
	return "unmapped"
}

// A Block is a stretch of a segment. [Allocator.Malloc] hands it out; it is
// valid until it goes back with [Allocator.Free]. The nil Block stands for the
// null pointer of a request for zero bytes.
type Block struct {
	addr       uint64
	size       int64
	requested  int64
	segment    *segment
	prev, next *Block // neighbors in the segment by address
	born       int64  // the pool's clock when the block became free
	events     int32  // events to wait for before a pending free is done
	recorded   bool   // whether other streams use the block
	state      State
}

// Addr is the address of the block in device memory; zero for the nil Block.
func (b *Block) Addr() uint64 {
	if b == nil {
		return 0
	}
	return b.addr
}

// Size is the number of bytes the block takes, the rounding included; zero for
// the nil Block.
func (b *Block) Size() int64 {
	if b == nil {
		return 0
	}
	return b.size
}

// isSplit tells whether the block is only a part of its segment.
func (b *Block) isSplit() bool { return b.prev != nil || b.next != nil }

// available tells whether the block is an unused part of its segment, mapped
// or not.
func (b *Block) available() bool { return b.state == Free || b.state == unmapped }

// reach is how large a free block of an expandable segment can become: itself
// and the unmapped stretch behind it.
func (b *Block) reach() int64 {
	if b.next != nil && b.next.state == unmapped {
		return b.size + b.next.size
	}
	return b.size
}

// A slab recycles blocks, so that a steady state allocates none.
type slab struct {
	recycled *Block // linked through next
	fresh    []Block
}

// slabSize is the number of blocks that a slab gets at once.
const slabSize = 256

func (s *slab) get() *Block {
	if b := s.recycled; b != nil {
		s.recycled = b.next
		b.next = nil
		return b
	}
	if len(s.fresh) == 0 {
		s.fresh = make([]Block, slabSize)
	}
	b := &s.fresh[0]
	s.fresh = s.fresh[1:]
	return b
}

func (s *slab) put(b *Block) {
	*b = Block{next: s.recycled}
	s.recycled = b
}

// cut divides b into its first size bytes, which stay b, and the rest, which
// it returns. The rest is in no set yet and has the state of b.
func (s *slab) cut(b *Block, size int64) *Block {
	rest := s.get()
	rest.addr = b.addr + uint64(size)
	rest.size = b.size - size
	rest.segment = b.segment
	rest.state = b.state
	rest.prev, rest.next = b, b.next
	if rest.next != nil {
		rest.next.prev = rest
	}
	b.next = rest
	b.size = size
	return rest
}

// absorb appends the block that follows b to b.
func (s *slab) absorb(b *Block) {
	rest := b.next
	b.size += rest.size
	b.next = rest.next
	if b.next != nil {
		b.next.prev = b
	}
	s.put(rest)
}
