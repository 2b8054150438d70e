package allocator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/vprof/vprof/internal/ceil"
)

// Expandable segments: one address range per pool and stream that memory is mapped into page by page, so that neighbors
// merge across what would be segment borders. A range consists of blocks like any segment; stretches without memory are
// unmapped blocks, kept by address in pool.unmapped.

// within returns the size of an address range on a device with total bytes: an eighth more than the device has, so that
// pages can move.
func (e Extent) within(total int64) int64 {
	whole := total + total/8
	switch {
	case e.Bytes > 0:
		return min(e.Bytes, whole)
	case e.Share > 0:
		return int64(min(e.Share*float64(total), float64(whole)))
	}
	return whole
}

// expand returns size bytes at the lowest address of the pool where free and unmapped blocks are large enough, and maps
// missing pages. The block is in no set; it is nil if the device has too little memory.
func (a *Allocator) expand(p *pool, size int64) (*Block, error) {
	b, err := a.room(p, size)
	if b == nil || err != nil {
		return nil, err
	}
	if b.state == unmapped {
		if b, err = a.mapPages(b, min(b.size, size)); b == nil {
			return nil, err
		}
	}
	for b.size < size {
		// Free blocks merge, so an unmapped one follows.
		next := a.blocks.at(b.next)
		if b, err = a.mapPages(next, min(next.size, size-b.size)); b == nil {
			return nil, err
		}
	}
	p.free.remove(b)
	return b, nil
}

// room finds the first free or unmapped block from which on size bytes are unused, or else reserves a new range. It
// returns nil if the request is larger than a range.
func (a *Allocator) room(p *pool, size int64) (*Block, error) {
	for _, b := range p.unmapped {
		if prev := a.blocks.at(b.prev); prev != nil && prev.available() {
			b = prev
		}
		var bytes int64
		for c := b; bytes < size && c != nil && c.available(); c = a.blocks.at(c.next) {
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
	length := ceil.Multiple(a.config.Range.within(a.source.Total()), page)
	if length < size {
		return nil, nil
	}
	addr, err := a.paged.Reserve(length)
	if err != nil {
		return nil, fmt.Errorf("reserve an address range of %d bytes: %w", length, err)
	}
	b := a.addSegment(p, addr, length, page)
	a.hide(b)
	return b, nil
}

// mapPages maps the pages that hold the first size bytes of an unmapped block and merges them with free neighbors. The
// block it returns is free and cached; it is nil if the device has too little memory.
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
	a.reserve(p.kind, size)
	a.trace(TraceSegmentMap, b.addr, size, p)
	a.unhide(b)
	if size < b.size {
		a.hide(a.blocks.cut(b, size))
	}
	b, _ = a.cacheMerged(p, b)
	return b, nil
}

// contract unmaps the pages that lie wholly inside a free block; the rest of the block at its ends remains as smaller
// free blocks. A range without mapped memory is released.
func (a *Allocator) contract(b *Block) error {
	s := a.segment(b)
	from := ceil.Multiple(int64(b.addr-s.addr), s.page)
	to := (int64(b.addr-s.addr) + b.size) / s.page * s.page
	if from >= to {
		return nil
	}
	if err := a.unmapRange(s.addr+uint64(from), to-from, s.page); err != nil {
		return err
	}
	a.unreserve(s.pool.kind, to-from)
	a.trace(TraceSegmentUnmap, s.addr+uint64(from), to-from, s.pool)
	s.pool.free.remove(b)
	if before := from - int64(b.addr-s.addr); before > 0 {
		rest := a.blocks.cut(b, before)
		a.cache(s.pool, b)
		b = rest
	}
	if b.size > to-from {
		a.cache(s.pool, a.blocks.cut(b, to-from))
	}
	b.state = unmapped
	if prev := a.blocks.at(b.prev); prev != nil && prev.state == unmapped {
		a.unhide(prev)
		a.blocks.absorb(prev)
		b = prev
	}
	if next := a.blocks.at(b.next); next != nil && next.state == unmapped {
		a.unhide(next)
		a.blocks.absorb(b)
	}
	if b.isSplit() {
		a.hide(b)
		return nil
	}
	a.dropSegment(b)
	if err := a.paged.Release(s.addr, s.size); err != nil {
		return fmt.Errorf("release an address range of %d bytes: %w", s.size, err)
	}
	return nil
}

// unmapRange unmaps size bytes at addr page by page.
func (a *Allocator) unmapRange(addr uint64, size, page int64) error {
	for at := int64(0); at < size; at += page {
		if err := a.paged.Unmap(addr+uint64(at), page); err != nil {
			return fmt.Errorf("unmap a page of %d bytes: %w", page, err)
		}
	}
	return nil
}

// hide adds a block to the unmapped blocks of its pool.
func (a *Allocator) hide(b *Block) {
	b.state = unmapped
	p := a.pool(b)
	i, _ := slices.BinarySearchFunc(p.unmapped, b, byAddr)
	p.unmapped = slices.Insert(p.unmapped, i, b)
}

// unhide removes a block from the unmapped blocks of its pool.
func (a *Allocator) unhide(b *Block) {
	p := a.pool(b)
	i, _ := slices.BinarySearchFunc(p.unmapped, b, byAddr)
	p.unmapped = slices.Delete(p.unmapped, i, i+1)
}

func byAddr(a, b *Block) int { return cmp.Compare(a.addr, b.addr) }
