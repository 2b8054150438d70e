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

// The constants of the allocator, PyTorch's names in the comments (c10/core/AllocatorConfig.h of 2.11).
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

	// limit is the largest number of reserved bytes under a memory fraction; negative without one.
	limit int64
	// collectsGarbage reports whether garbage collection is on.
	collectsGarbage bool
	// roundsRequests reports whether sizes are rounded to divisions of powers of two.
	roundsRequests bool

	// streams in ascending order; the first is the default stream.
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

	// fewerStats reports whether most statistics are left out ([Allocator.CountBytesOnly]).
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

// An event is recorded on a stream when a block that the stream uses is freed.
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

// A segment is a stretch of memory got from the source. Its blocks tile it.
type segment struct {
	pool  *pool
	addr  uint64
	size  int64
	first blockID // always the same block, since the lower of two survives
	page  int64   // unit of mapping of an expandable segment, zero for others
}

func (a *Allocator) segment(b *Block) *segment { return a.segments[b.segment-1] }

func (a *Allocator) pool(b *Block) *pool { return a.segment(b).pool }

// New returns an allocator above a source. The source of a configuration with expandable segments must be a
// [PagedSource]; if it is not, New returns an error, as it does for a configuration whose sizes make no sense. It
// reuses the tables of an allocator that was released.
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

// allocatorPool is a pool of used allocators. New ones reuse their tables, which is faster than clearing new memory.
var allocatorPool = sync.Pool{New: func() any { return &Allocator{} }}

// Release ends the use of the allocator and of its blocks. It releases nothing to the source.
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

// Malloc returns a block for n bytes on the default stream, nil if n is zero. Without enough memory the error is an
// [*OOMError], the cache is empty, and the allocator still usable; any other error is the source's.
func (a *Allocator) Malloc(n int64) (*Block, error) { return a.MallocOn(0, n) }

// MallocOn allocates on a stream, as Malloc does on the default one.
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

// Free frees a block. A block that other streams use returns to the cache only when the events recorded here on those
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

// EmptyCache releases all cached segments, and pages that are wholly free, to the source, as torch.cuda.empty_cache
// does. Errors come from the source.
func (a *Allocator) EmptyCache() error {
	if err := a.releaseCached(); err != nil {
		return fmt.Errorf("empty cache: %w", err)
	}
	return nil
}

// CountBytesOnly leaves out all statistics of blocks but the requested and the allocated bytes of both pools together,
// which saves a fifth of the time. It must be called before the first Malloc, and [Allocator.RecordStream] not at all.
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

// Requested returns the sum of the bytes asked for in active blocks now.
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

// markAllocated turns the unused block b, in no set, into an allocated block of size bytes, and caches the rest.
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

// cacheMerged merges a block with its free neighbors and caches the result,
// which it returns with the number of neighbors.
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

// takeFree removes the best fitting cached block from the free list; nil if none fits the request.
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
		// Blocks are compared by the size that they can grow to. A larger block that can grow less is taken first, so
		// that the block that can grow most is used last.
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

// shouldSplit reports whether a remainder becomes a block of its own.
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

// stream returns the stream with a handle, a new one if there is none yet.
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
