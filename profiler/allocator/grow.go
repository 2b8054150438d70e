package allocator

import (
	"errors"
	"fmt"

	"github.com/vprof/vprof/internal/ceil"
)

// An OOMError reports that a request did not fit although the cache was emptied. It is an expected result: the
// allocator remains usable.
type OOMError struct {
	// Requested is the size of the tensor in bytes. Segment is the size of the segment that the allocator requested
	// from the device for it: PyTorch's "tried to allocate".
	Requested, Segment int64
	// Allocated and Reserved are the allocated and reserved bytes at that time.
	Allocated, Reserved int64
	// Limit is the number of reserved bytes that the memory fraction allows; negative without a limit.
	Limit int64
}

func (e *OOMError) Error() string {
	limit := ""
	if e.Limit >= 0 {
		limit = fmt.Sprintf(" of %s allowed", inMiB(e.Limit))
	}
	return fmt.Sprintf("out of memory: tried to allocate %s for a request of %s; %s allocated, %s reserved%s",
		inMiB(e.Segment), inMiB(e.Requested), inMiB(e.Allocated), inMiB(e.Reserved), limit)
}

func inMiB(n int64) string { return fmt.Sprintf("%.2f MiB", float64(n)/mib) }

// segmentSize returns the size of the segment to allocate for a block of size bytes.
func (a *Allocator) segmentSize(size int64) int64 {
	switch {
	case size <= smallSize:
		return smallSegment
	case size < minLargeAlloc:
		return a.config.LargeSegment
	default:
		return ceil.Multiple(size, roundLarge)
	}
}

// allocateOrRetry returns a block for a request that no cached block can serve. It follows PyTorch's order: collect
// garbage; allocate a segment; release oversize blocks and allocate one; empty the cache and allocate one.
func (a *Allocator) allocateOrRetry(p *pool, n, size int64) (*Block, error) {
	if a.collectsGarbage {
		if err := a.collectGarbage(); err != nil {
			return nil, err
		}
	}
	b, err := a.allocateSegment(p, size)
	if b == nil && err == nil {
		var enough bool
		if enough, err = a.releaseOversize(p, size); enough && err == nil {
			b, err = a.allocateSegment(p, size)
		}
	}
	if b == nil && err == nil {
		if err = a.releaseCached(); err == nil {
			a.stats.NumAllocRetries++
			b, err = a.allocateSegment(p, size)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("malloc of %d bytes: %w", n, err)
	}
	if b == nil {
		a.stats.NumOOMs++
		a.trace(TraceOOM, 0, size, p)
		return nil, a.newOOMError(n, size)
	}
	return b, nil
}

func (a *Allocator) newOOMError(n, size int64) *OOMError {
	return &OOMError{
		Requested: n, Segment: a.segmentSize(size), Allocated: a.Allocated(), Reserved: a.Reserved(), Limit: a.limit,
	}
}

// allocateSegment allocates a segment for size bytes in the source. The returned block is in no free list; it is nil if
// the device has too little memory or the limit is exceeded.
func (a *Allocator) allocateSegment(p *pool, size int64) (*Block, error) {
	want := a.segmentSize(size)
	if a.limit >= 0 && want > a.limit-a.reserved {
		return nil, nil
	}
	if a.config.ChecksLimitFirst && a.limit < 0 && want > a.source.Total()-a.reserved {
		return nil, a.newOOMError(size, size)
	}
	if a.config.Expandable {
		return a.allocExpandable(p, size)
	}
	addr, err := a.source.Get(want)
	if errors.Is(err, ErrOutOfMemory) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get a segment of %d bytes: %w", want, err)
	}
	a.addReserved(p.kind, want)
	a.stats.Segment.add(p.kind, 1)
	if want >= a.config.MaxSplit {
		a.stats.OversizeSegments.add(1)
	}
	a.trace(TraceSegmentAlloc, addr, want, p)
	return a.addSegment(p, addr, want, 0), nil
}

// addReserved counts n bytes that one call allocated in the source.
func (a *Allocator) addReserved(kind Pool, n int64) {
	a.reserved += n
	a.stats.ReservedBytes.add(kind, n)
	a.stats.NumDeviceAlloc++
}

// subReserved counts n bytes that one call released to the source.
func (a *Allocator) subReserved(kind Pool, n int64) {
	a.reserved -= n
	a.stats.ReservedBytes.sub(kind, n)
	a.stats.NumDeviceFree++
}

func (a *Allocator) addSegment(p *pool, addr uint64, size, page int64) *Block {
	b := a.blocks.newBlock()
	s := &segment{pool: p, addr: addr, size: size, first: b.id, page: page}
	if n := len(a.unusedSegments); n > 0 {
		b.segment = a.unusedSegments[n-1]
		a.unusedSegments = a.unusedSegments[:n-1]
		a.segments[b.segment-1] = s
	} else {
		a.segments = append(a.segments, s)
		b.segment = segmentID(len(a.segments))
	}
	b.addr, b.size, b.rank = addr, size, a.createdBytes
	if a.config.OrdersByAddress {
		b.rank = addr
	}
	a.createdBytes += uint64(size)
	return b
}

// dropSegment removes a segment and its only block from the allocator's tables.
func (a *Allocator) dropSegment(b *Block) {
	a.segments[b.segment-1] = nil
	a.unusedSegments = append(a.unusedSegments, b.segment)
	a.blocks.recycle(b)
}

// collectGarbage releases cached segments of the large pool, oldest first, until reserved memory is below the
// threshold. The age of a free block is the number of searches since it was freed. Each round releases blocks of at
// least average age.
func (a *Allocator) collectGarbage() error {
	threshold := int64(a.config.GarbageCollection * float64(a.limit))
	target := a.reserved - threshold
	if target <= 0 {
		return nil
	}
	var idle []*Block
	for _, s := range a.streams {
		for id := range s.large.free.forEach {
			if b := a.blocks.block(id); !b.isSplit() && a.segment(b).page == 0 {
				idle = append(idle, b)
			}
		}
	}
	var age int64
	for _, b := range idle {
		age += a.blockAge(b)
	}
	for freed := true; freed && target > 0 && len(idle) > 0; {
		freed = false
		average := float64(age) / float64(len(idle))
		kept := idle[:0]
		for _, b := range idle {
			if float64(a.blockAge(b)) < average {
				kept = append(kept, b)
				continue
			}
			freed = true
			target -= b.size
			age -= a.blockAge(b)
			if err := a.freeSegment(b); err != nil {
				return err
			}
		}
		idle = kept
	}
	return nil
}

// blockAge returns the number of searches since a block of the large pool was freed.
func (a *Allocator) blockAge(b *Block) int64 { return a.poolClocks[LargePool] - b.born }

// releaseOversize releases oversize blocks if there is a maximum split size: one that is large enough or, if there is
// none, the largest ones until enough bytes are released. enough reports whether they were enough.
func (a *Allocator) releaseOversize(p *pool, size int64) (enough bool, err error) {
	if a.config.MaxSplit == Unlimited || a.config.Expandable {
		return false, nil
	}
	need := max(size, a.config.MaxSplit)
	if at, ok := p.free.bestFit(need); ok {
		return true, a.freeSegment(a.blocks.block(p.free.blockAt(at)))
	}
	var released int64
	for released < need {
		at, ok := p.free.last()
		if !ok {
			break
		}
		b := a.blocks.block(p.free.blockAt(at))
		if b.size < a.config.MaxSplit {
			break
		}
		released += b.size
		if err := a.freeSegment(b); err != nil {
			return false, err
		}
	}
	return released >= need, nil
}

// releaseCached completes all pending frees, then releases all cached segments that are one block and all entirely free
// pages of expandable segments.
func (a *Allocator) releaseCached() error {
	a.synchronize()
	for _, kind := range [...]Pool{LargePool, SmallPool} {
		var idle []*Block
		for _, s := range a.streams {
			p := &s.large
			if kind == SmallPool {
				p = &s.small
			}
			for id := range p.free.forEach {
				idle = append(idle, a.blocks.block(id))
			}
		}
		for _, b := range idle {
			var err error
			if a.segment(b).page != 0 {
				err = a.unmapBlock(b)
			} else if !b.isSplit() {
				err = a.freeSegment(b)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// freeSegment releases a cached segment, which must be one free block, to the source.
func (a *Allocator) freeSegment(b *Block) error {
	s := a.segment(b)
	kind := s.pool.kind
	a.trace(TraceSegmentFree, s.addr, s.size, s.pool)
	s.pool.free.remove(b)
	a.subReserved(kind, s.size)
	a.stats.Segment.sub(kind, 1)
	if s.size >= a.config.MaxSplit {
		a.stats.OversizeSegments.sub(1)
	}
	a.dropSegment(b)
	if err := a.source.Put(s.addr, s.size); err != nil {
		return fmt.Errorf("release a segment of %d bytes: %w", s.size, err)
	}
	return nil
}
