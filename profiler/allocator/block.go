package allocator

// State is the state of a block.
type State uint8

// The states of a block.
const (
	// Free blocks are cached, for the next request.
	Free State = iota
	// Allocated blocks are in use.
	Allocated
	// PendingFree blocks were freed, but another stream may still use them.
	PendingFree
	// unmapped blocks are parts of an expandable segment without memory.
	unmapped
)

var stateNames = [...]string{"inactive", "active_allocated", "active_pending_free", "unmapped"}

// String returns the state as a PyTorch snapshot spells it.
func (s State) String() string { return stateNames[s] }

// A Block is a part of a segment. [Allocator.Malloc] returns it, and it is valid until [Allocator.Free]. A nil Block is
// the null pointer that a request for zero bytes returns.
//
// Blocks refer to each other and to their segment by number; zero is none. Without pointers, Go's garbage collector
// does not scan them.
type Block struct {
	addr       uint64
	rank       uint64 // the order among free blocks of one size, see [Config.OrdersByAddress]
	size       int64
	requested  int64
	born       int64 // the pool's clock when the block became free
	id         blockID
	prev, next blockID // neighbors in the segment by address
	segment    segmentID
	events     int32 // events to wait for before a pending free is done
	recorded   bool  // whether other streams use the block
	state      State
}

type (
	blockID   uint32
	segmentID uint32
)

// Addr returns the address of the block in device memory; zero for the nil Block.
func (b *Block) Addr() uint64 {
	if b == nil {
		return 0
	}
	return b.addr
}

// Size returns the block's number of bytes, including rounding; zero for the nil Block.
func (b *Block) Size() int64 {
	if b == nil {
		return 0
	}
	return b.size
}

// isSplit reports whether the block is only a part of its segment.
func (b *Block) isSplit() bool { return b.prev != 0 || b.next != 0 }

// isUnused reports whether the block is unused, mapped or not.
func (b *Block) isUnused() bool { return b.state == Free || b.state == unmapped }

// A blockSlab stores all blocks and recycles them, so a steady state allocates no new ones. Blocks never move.
type blockSlab struct {
	chunks   []*[slabChunk]Block
	used     blockID // blocks of the chunks ever used
	recycled blockID // linked through next
}

// slabChunk is the number of blocks that a slab allocates at once.
const slabChunk = 256

// block returns the block with a number, nil for zero.
func (s *blockSlab) block(id blockID) *Block {
	if id == 0 {
		return nil
	}
	return &s.chunks[(id-1)/slabChunk][(id-1)%slabChunk]
}

func (s *blockSlab) newBlock() *Block {
	if b := s.block(s.recycled); b != nil {
		s.recycled = b.next
		b.next = 0
		return b
	}
	if int(s.used) == len(s.chunks)*slabChunk {
		s.chunks = append(s.chunks, new([slabChunk]Block))
	}
	s.used++
	b := s.block(s.used)
	*b = Block{id: s.used} // a chunk may be of an allocator before
	return b
}

func (s *blockSlab) recycle(b *Block) {
	*b = Block{id: b.id, next: s.recycled}
	s.recycled = b.id
}

// split shortens b to its first size bytes and returns a new block with the rest, which has the state of b and is in no
// free list yet.
func (s *blockSlab) split(b *Block, size int64) *Block {
	rest := s.newBlock()
	rest.addr, rest.rank = b.addr+uint64(size), b.rank+uint64(size)
	rest.size = b.size - size
	rest.segment = b.segment
	rest.state = b.state
	rest.prev, rest.next = b.id, b.next
	if after := s.block(b.next); after != nil {
		after.prev = rest.id
	}
	b.next = rest.id
	b.size = size
	return rest
}

// mergeNext merges b with the block after it.
func (s *blockSlab) mergeNext(b *Block) {
	rest := s.block(b.next)
	b.size += rest.size
	b.next = rest.next
	if after := s.block(b.next); after != nil {
		after.prev = b.id
	}
	s.recycle(rest)
}

// mergedSize returns the size to which a free block of an expandable segment can grow with the unmapped block after it.
func (s *blockSlab) mergedSize(b *Block) int64 {
	if next := s.block(b.next); next != nil && next.state == unmapped {
		return b.size + next.size
	}
	return b.size
}
