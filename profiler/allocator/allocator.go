package allocator

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// The constants of the allocator, with PyTorch's names in the comments (c10/core/AllocatorConfig.h of 2.11).
const (
	minBlockSize  = 512      // kMinBlockSize: sizes are multiples of it
	smallSize     = 1 * mib  // kSmallSize: the largest request of the small pool
	smallSegment  = 2 * mib  // kSmallBuffer: the segments of the small pool
	minLargeAlloc = 10 * mib // kMinLargeAlloc: from here segments are exact
	roundLarge    = 2 * mib  // kRoundLarge: exact segments are multiples of it

	exabyte = 1 << 60 // one_exa_bytes: from here PyTorch refuses without a try
)

// Stream is the handle of a CUDA stream; zero is the default stream. Blocks never pass from one stream to another.
type Stream uint64

// An Allocator is PyTorch's caching allocator for one device.
type Allocator struct {
	config Config
	source Source
	paged  PagedSource // source, if expandable segments are on

	// limit is the largest number of reserved bytes that the memory fraction allows; negative if there is no limit.
	limit int64
	// collectsGarbage reports whether garbage collection is on.
	collectsGarbage bool
	// roundsRequests reports whether sizes are rounded to divisions of powers of two.
	roundsRequests bool

	// streams are in ascending order of their handles; the first is the default stream.
	streams []*stream
	// poolClocks counts the searches for a free block in each pool, by which garbage collection measures age.
	poolClocks [numPools]int64

	blocks          blockSlab
	segments        []*segment  // by number less one; nil where the number is unused
	createdBytes    uint64      // bytes of all segments so far, also the ones released
	unusedSegments  []segmentID // numbers of segments released
	reserved        int64
	streamUses      map[*Block][]Stream // streams that a block is recorded on
	eventClock      int64               // events recorded so far
	completedEvents int64               // events completed so far
	pendingEvents   int                 // events not yet processed
	// sharesSegments reports whether a stream used a block of another stream. Until then the active blocks are the
	// allocated ones and are not counted separately.
	sharesSegments bool

	// fewerStats reports whether only the most important statistics are counted ([Allocator.CountBytesOnly]).
	fewerStats bool
	stats      Stats
	tracer     func(TraceEvent) // nil if nobody listens
}

// A stream has its own free blocks and the frees that wait for its events.
type stream struct {
	handle       Stream
	small, large pool
	events       []event // oldest first
}

// An event completes when a stream has finished the work queued before a block that it uses was freed.
type event struct {
	seq   int64
	block *Block
}

// A pool holds the cached blocks of one size range on one stream.
type pool struct {
	kind     Pool
	stream   Stream
	free     freeList
	unmapped []*Block // of expandable segments, by address
}

// A segment is a range of memory that the source allocated. Its blocks cover it without gaps.
type segment struct {
	pool  *pool
	addr  uint64
	size  int64
	first blockID // always the same block, since the lower of two survives
	page  int64   // unit of mapping of an expandable segment, zero for others
}

func (a *Allocator) segment(b *Block) *segment { return a.segments[b.segment-1] }

func (a *Allocator) pool(b *Block) *pool { return a.segment(b).pool }

// New returns an allocator on top of a source. With expandable segments, the source must be a [PagedSource]; otherwise
// New returns an error, as for a configuration with impossible sizes. New reuses the tables of released allocators.
func New(source Source, config Config) (*Allocator, error) {
	a := allocatorPool.Get().(*Allocator)
	a.config, a.source, a.limit = config, source, -1
	if config.LargeSegment <= minLargeAlloc || config.MaxSplit < config.LargeSegment ||
		config.MaxNonSplitRounding < config.LargeSegment {
		return nil, fmt.Errorf("allocator: invalid configuration %+v; start from DefaultConfig", config)
	}
	if config.Expandable {
		paged, ok := source.(PagedSource)
		if !ok {
			return nil, fmt.Errorf("allocator: expandable segments need a source that maps pages, not %T", source)
		}
		a.paged = paged
	}
	if config.MemoryFraction < 1 {
		a.limit = int64(config.MemoryFraction * float64(source.Total()))
	}
	a.collectsGarbage = a.limit >= 0 && config.GarbageCollection > 0
	for _, d := range config.Roundup {
		a.roundsRequests = a.roundsRequests || d > 1
	}
	a.stream(0)
	return a, nil
}

// allocatorPool holds released allocators, whose tables are reused. That is faster than clearing new memory.
var allocatorPool = sync.Pool{New: func() any { return &Allocator{} }}

// Release ends the use of the allocator and its blocks. It does not free the memory in the source.
func (a *Allocator) Release() {
	used := Allocator{streams: a.streams[:1], blocks: blockSlab{chunks: a.blocks.chunks}, segments: a.segments[:0]}
	for _, p := range [...]*pool{&used.streams[0].small, &used.streams[0].large} {
		p.free.reset()
		p.unmapped = nil
	}
	used.streams[0].events = nil
	*a = used
	allocatorPool.Put(a)
}

// Malloc returns a block for n bytes on the default stream; nil if n is zero. If memory runs out, the error is an
// [*OOMError], the cache is empty, and the allocator remains usable. Any other error comes from the source.
func (a *Allocator) Malloc(n int64) (*Block, error) { return a.MallocOn(0, n) }

// MallocOn allocates a block on a stream, as Malloc does on the default stream.
func (a *Allocator) MallocOn(s Stream, n int64) (*Block, error) {
	if n <= 0 {
		if n < 0 {
			panic(fmt.Sprintf("allocator: malloc of %d bytes", n))
		}
		return nil, nil
	}
	if n >= exabyte {
		return nil, a.newOOMError(n, n)
	}
	if a.pendingEvents > 0 {
		a.processEvents()
	}
	size := a.roundSize(n)
	p := a.poolFor(s, size)
	b := a.takeFree(p, size)
	if b == nil {
		var err error
		if b, err = a.allocateOrRetry(p, n, size); err != nil {
			return nil, err
		}
	}
	a.markAllocated(b, n, size)
	return b, nil
}

// Free frees a block. A block that other streams use returns to the cache only after the events recorded on those
// streams have completed.
func (a *Allocator) Free(b *Block) {
	if b == nil {
		return
	}
	if b.state != Allocated {
		panic("allocator: free of a block that is not allocated")
	}
	p := a.pool(b)
	if a.fewerStats {
		a.trace(TraceFreeRequested, b.addr, b.requested, p)
		a.trace(TraceFreeCompleted, b.addr, b.requested, p)
		a.stats.AllocatedBytes[AllPools].sub(b.size)
		a.stats.RequestedBytes[AllPools].sub(b.requested)
		a.cacheMerged(p, b)
		return
	}
	a.stats.Allocation.sub(p.kind, 1)
	a.stats.AllocatedBytes.sub(p.kind, b.size)
	a.trace(TraceFreeRequested, b.addr, b.requested, p)
	if b.size >= a.config.MaxSplit {
		a.stats.OversizeAllocations.sub(1)
	}
	if b.recorded {
		a.recordEvents(b)
		return
	}
	a.completeFree(b)
}

// EmptyCache releases all cached segments and all entirely free pages to the source, as torch.cuda.empty_cache does.
// Errors come from the source.
func (a *Allocator) EmptyCache() error {
	if err := a.releaseCached(); err != nil {
		return fmt.Errorf("empty cache: %w", err)
	}
	return nil
}

// CountBytesOnly turns off all statistics except the requested and allocated bytes of both pools together, which saves
// a fifth of the time. It must be called before the first Malloc and excludes [Allocator.RecordStream].
func (a *Allocator) CountBytesOnly() { a.fewerStats = true }

// Stats returns a copy of the statistics.
func (a *Allocator) Stats() Stats {
	s := a.stats
	if !a.sharesSegments {
		s.Active, s.ActiveBytes = s.Allocation, s.AllocatedBytes
	}
	return s
}

// ResetPeakStats sets every peak to the current value.
func (a *Allocator) ResetPeakStats() { a.stats.resetPeaks() }

// Requested returns the current sum of the requested bytes of active blocks.
func (a *Allocator) Requested() int64 { return a.stats.RequestedBytes[AllPools].Current }

// Allocated returns the current memory_allocated() in bytes.
func (a *Allocator) Allocated() int64 { return a.stats.AllocatedBytes[AllPools].Current }

// Active returns the bytes of blocks that cannot be reused: allocated ones, and freed ones that still wait for another
// stream's event.
func (a *Allocator) Active() int64 {
	if !a.sharesSegments {
		return a.Allocated()
	}
	return a.stats.ActiveBytes[AllPools].Current
}

// Reserved returns the current memory_reserved() in bytes.
func (a *Allocator) Reserved() int64 { return a.stats.ReservedBytes[AllPools].Current }

// markAllocated turns an unused block outside of free lists into an allocated block of size bytes, and caches the rest.
func (a *Allocator) markAllocated(b *Block, n, size int64) {
	segment := a.segment(b)
	p := segment.pool
	wasSplit, counted := b.isSplit(), segment.page == 0 && !a.fewerStats
	if a.shouldSplit(p, b.size-size, size) {
		rest := a.blocks.split(b, size)
		a.cacheBlock(p, rest)
		if counted && wasSplit {
			a.stats.InactiveSplitBytes.sub(p.kind, size)
		} else if counted {
			a.stats.InactiveSplit.add(p.kind, 1)
			a.stats.InactiveSplitBytes.add(p.kind, rest.size)
		}
	} else if counted && wasSplit {
		a.stats.InactiveSplit.sub(p.kind, 1)
		a.stats.InactiveSplitBytes.sub(p.kind, b.size)
	}
	b.state = Allocated
	b.requested = n
	a.trace(TraceAlloc, b.addr, n, p)
	if a.fewerStats {
		a.stats.AllocatedBytes[AllPools].add(b.size)
		a.stats.RequestedBytes[AllPools].add(n)
		return
	}
	a.stats.Allocation.add(p.kind, 1)
	a.stats.AllocatedBytes.add(p.kind, b.size)
	if a.sharesSegments {
		a.stats.Active.add(p.kind, 1)
		a.stats.ActiveBytes.add(p.kind, b.size)
	}
	a.stats.RequestedBytes.add(p.kind, n)
	if b.size >= a.config.MaxSplit {
		a.stats.OversizeAllocations.add(1)
	}
}

// completeFree completes the free of a block: it merges with free neighbors and goes into the cache.
func (a *Allocator) completeFree(b *Block) {
	segment := a.segment(b)
	p := segment.pool
	size, requested := b.size, b.requested
	a.trace(TraceFreeCompleted, b.addr, requested, p)
	b, merged := a.cacheMerged(p, b)
	if segment.page == 0 {
		splits, bytes := -merged, size-b.size // what was merged is gone
		if b.isSplit() {
			splits, bytes = splits+1, bytes+b.size
		}
		a.stats.InactiveSplit.change(p.kind, splits)
		a.stats.InactiveSplitBytes.change(p.kind, bytes)
	}
	if a.sharesSegments {
		a.stats.Active.sub(p.kind, 1)
		a.stats.ActiveBytes.sub(p.kind, size)
	}
	a.stats.RequestedBytes.sub(p.kind, requested)
}

// cacheMerged merges a block with its free neighbors and caches the result. It returns the cached block and the number
// of merged neighbors.
func (a *Allocator) cacheMerged(p *pool, b *Block) (cached *Block, merged int64) {
	if prev := a.blocks.block(b.prev); prev != nil && prev.state == Free {
		p.free.remove(prev)
		a.blocks.mergeNext(prev)
		b = prev
		merged++
	}
	if next := a.blocks.block(b.next); next != nil && next.state == Free {
		p.free.remove(next)
		a.blocks.mergeNext(b)
		merged++
	}
	a.cacheBlock(p, b)
	return b, merged
}

// cacheBlock makes a block free and puts it into the free list of its pool.
func (a *Allocator) cacheBlock(p *pool, b *Block) {
	b.state = Free
	b.born = a.poolClocks[p.kind]
	p.free.insert(b)
}

// takeFree removes the best fitting cached block from the free list; it returns nil if no block fits the request.
func (a *Allocator) takeFree(p *pool, size int64) *Block {
	if a.collectsGarbage {
		a.poolClocks[p.kind]++
	}
	at, ok := p.free.bestFit(size)
	if !ok {
		return nil
	}
	b := a.blocks.block(p.free.blockAt(at))
	if a.config.Expandable {
		// Blocks are compared by the size to which they can grow (with unmapped memory after them). A larger block that
		// can grow less is preferred, so that the block that can grow most is used last.
		for {
			further, ok := p.free.next(at)
			if !ok {
				break
			}
			next := a.blocks.block(p.free.blockAt(further))
			if a.blocks.mergedSize(next) >= a.blocks.mergedSize(b) {
				break
			}
			at, b = further, next
		}
	}
	if size < a.config.MaxSplit && b.size >= a.config.MaxSplit {
		return nil // oversize blocks are kept for oversize requests
	}
	if size >= a.config.MaxSplit && b.size-size >= a.config.MaxNonSplitRounding {
		return nil
	}
	p.free.removeAt(at)
	return b
}

// shouldSplit reports whether the remainder of a block becomes a separate block.
func (a *Allocator) shouldSplit(p *pool, remainder, size int64) bool {
	if p.kind == SmallPool || a.config.Expandable {
		return remainder >= minBlockSize
	}
	return size < a.config.MaxSplit && remainder > smallSize
}

// roundSize returns the size of the block that a request of n bytes needs.
func (a *Allocator) roundSize(n int64) int64 {
	if a.roundsRequests && n >= minBlockSize {
		size := uint64(n)
		interval := min(max(bits.Len64(size)-1-20, 0), len(a.config.Roundup)-1)
		if d := a.config.Roundup[interval]; d > 1 && size > minBlockSize*d {
			return int64(roundToDivision(size, d))
		}
	}
	return (n + minBlockSize - 1) &^ (minBlockSize - 1)
}

// roundToDivision rounds size up to the next of the d equal steps between two powers of two; d is a power of two.
func roundToDivision(size, d uint64) uint64 {
	if isPowerOf2(size) {
		return size
	}
	floor := uint64(1) << (bits.Len64(size) - 1)
	step := floor >> (bits.Len64(d) - 1)
	if step == 0 {
		return floor << 1
	}
	return (size + step - 1) &^ (step - 1)
}

func (a *Allocator) poolFor(s Stream, size int64) *pool {
	on := a.streams[0]
	if s != 0 {
		on = a.stream(s)
	}
	if size <= smallSize {
		return &on.small
	}
	return &on.large
}

// stream returns the stream with a handle. It adds a new one if there is none.
func (a *Allocator) stream(handle Stream) *stream {
	i, ok := slices.BinarySearchFunc(a.streams, handle, func(s *stream, h Stream) int {
		if s.handle < h {
			return -1
		}
		return int(min(s.handle-h, 1))
	})
	if !ok {
		a.streams = slices.Insert(a.streams, i, &stream{
			handle: handle,
			small:  pool{kind: SmallPool, stream: handle},
			large:  pool{kind: LargePool, stream: handle},
		})
	}
	return a.streams[i]
}
