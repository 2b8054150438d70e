package allocator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/vprof/vprof/internal/ceil"
)

// An expandable segment is one address range for each pool and stream, into which memory is mapped page by page, so
// that neighboring blocks merge. Like any segment, a range consists of blocks. Parts without memory are unmapped
// blocks, which pool.unmapped lists by address.

// rangeSize returns the size of an address range on a device of total bytes: 9/8 of it by default, to move pages.
func (e SizeOrShare) rangeSize(total int64) int64 {
	whole := total + total/8
	switch {
	case e.Bytes > 0:
		return min(e.Bytes, whole)
	case e.Share > 0:
		return int64(min(e.Share*float64(total), float64(whole)))
	}
	return whole
}

// allocExpandable returns a block of size bytes at the lowest address of the pool where free and unmapped blocks are
// large enough. It maps missing pages. The block is in no free list; it is nil if the device has too little memory.
func (a *Allocator) allocExpandable(p *pool, size int64) (*Block, error) {
	b, err := a.findUnmapped(p, size)
	if b == nil || err != nil {
		return nil, err
	}
	if b.state == unmapped {
		if b, err = a.mapPages(b, min(b.size, size)); b == nil {
			return nil, err
		}
	}
	for b.size < size {
		// Free blocks are merged, so the next block is unmapped.
		next := a.blocks.block(b.next)
		if b, err = a.mapPages(next, min(next.size, size-b.size)); b == nil {
			return nil, err
		}
	}
	p.free.remove(b)
	return b, nil
}

// findUnmapped returns the first free or unmapped block at which size bytes are unused. If there is none, it reserves a
// new range. It returns nil if the request is larger than a range.
func (a *Allocator) findUnmapped(p *pool, size int64) (*Block, error) {
	for _, b := range p.unmapped {
		if prev := a.blocks.block(b.prev); prev != nil && prev.isUnused() {
			b = prev
		}
		var bytes int64
		for c := b; bytes < size && c != nil && c.isUnused(); c = a.blocks.block(c.next) {
			bytes += c.size
		}
		if bytes >= size {
			return b, nil
		}
	}
	page := a.config.LargeSegment
	if p.kind == SmallPool {
		page = smallSegment
	}
	length := ceil.Multiple(a.config.ExpandableRange.rangeSize(a.source.Total()), page)
	if length < size {
		return nil, nil
	}
	addr, err := a.paged.Reserve(length)
	if err != nil {
		return nil, fmt.Errorf("reserve an address range of %d bytes: %w", length, err)
	}
	b := a.addSegment(p, addr, length, page)
	a.addUnmapped(b)
	return b, nil
}

// mapPages maps the pages of the first size bytes of an unmapped block and merges them with free neighbors. It returns
// the resulting free, cached block; nil if the device has too little memory.
func (a *Allocator) mapPages(b *Block, size int64) (*Block, error) {
	segment := a.segment(b)
	p, page := segment.pool, segment.page
	size = ceil.Multiple(size, page)
	for done := int64(0); done < size; done += page {
		err := a.paged.Map(b.addr+uint64(done), page)
		if err == nil {
			continue
		}
		if undo := a.unmapRange(b.addr, done, page); undo != nil {
			return nil, undo
		}
		if errors.Is(err, ErrOutOfMemory) {
			return nil, nil
		}
		return nil, fmt.Errorf("map a page of %d bytes: %w", page, err)
	}
	a.addReserved(p.kind, size)
	a.trace(TraceSegmentMap, b.addr, size, p)
	a.removeUnmapped(b)
	if size < b.size {
		a.addUnmapped(a.blocks.split(b, size))
	}
	b, _ = a.cacheMerged(p, b)
	return b, nil
}

// unmapBlock unmaps the pages that lie entirely inside a free block. The block's ends remain as smaller free blocks. A
// range without mapped memory is released.
func (a *Allocator) unmapBlock(b *Block) error {
	s := a.segment(b)
	from := ceil.Multiple(int64(b.addr-s.addr), s.page)
	to := (int64(b.addr-s.addr) + b.size) / s.page * s.page
	if from >= to {
		return nil
	}
	if err := a.unmapRange(s.addr+uint64(from), to-from, s.page); err != nil {
		return err
	}
	a.subReserved(s.pool.kind, to-from)
	a.trace(TraceSegmentUnmap, s.addr+uint64(from), to-from, s.pool)
	s.pool.free.remove(b)
	if before := from - int64(b.addr-s.addr); before > 0 {
		rest := a.blocks.split(b, before)
		a.cacheBlock(s.pool, b)
		b = rest
	}
	if b.size > to-from {
		a.cacheBlock(s.pool, a.blocks.split(b, to-from))
	}
	b.state = unmapped
	if prev := a.blocks.block(b.prev); prev != nil && prev.state == unmapped {
		a.removeUnmapped(prev)
		a.blocks.mergeNext(prev)
		b = prev
	}
	if next := a.blocks.block(b.next); next != nil && next.state == unmapped {
		a.removeUnmapped(next)
		a.blocks.mergeNext(b)
	}
	if b.isSplit() {
		a.addUnmapped(b)
		return nil
	}
	a.dropSegment(b)
	if err := a.paged.Release(s.addr, s.size); err != nil {
		return fmt.Errorf("release an address range of %d bytes: %w", s.size, err)
	}
	return nil
}

func (a *Allocator) unmapRange(addr uint64, size, page int64) error {
	for at := int64(0); at < size; at += page {
		if err := a.paged.Unmap(addr+uint64(at), page); err != nil {
			return fmt.Errorf("unmap a page of %d bytes: %w", page, err)
		}
	}
	return nil
}

func (a *Allocator) addUnmapped(b *Block) {
	b.state = unmapped
	p := a.pool(b)
	i, _ := slices.BinarySearchFunc(p.unmapped, b, byAddr)
	p.unmapped = slices.Insert(p.unmapped, i, b)
}

func (a *Allocator) removeUnmapped(b *Block) {
	p := a.pool(b)
	i, _ := slices.BinarySearchFunc(p.unmapped, b, byAddr)
	p.unmapped = slices.Delete(p.unmapped, i, i+1)
}

func byAddr(a, b *Block) int { return cmp.Compare(a.addr, b.addr) }
