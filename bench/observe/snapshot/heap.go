package snapshot

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tidwall/btree"

	"github.com/vprof/vprof/profiler/allocator"
)

// A heapReplay reconstructs the sizes of blocks from events, which only have requested sizes: the allocator does not
// split a free block that is slightly too large.
type heapReplay struct {
	conf allocator.Config
	// free maps addresses to the sizes of free blocks.
	free btree.Map[int64, int64]
	// live maps addresses to the sizes of blocks in use.
	live map[int64]int64
	// borders counts the driver's segments that begin or end at an address, across which blocks do not merge.
	borders map[int64]int
}

func newHeap(s *Snapshot, device int, events []Event) *heapReplay {
	h := &heapReplay{live: map[int64]int64{}, borders: map[int64]int{}}
	var err error
	if h.conf, err = allocator.ParseConfig(s.AllocConf); err != nil {
		h.conf = allocator.DefaultConfig()
	}
	// Blocks without an allocation event existed before it, like segments whose first event is a release.
	came, segments := map[int64]bool{}, map[int64]bool{}
	var spans []span
	for _, e := range events {
		switch e.Action {
		case "alloc":
			came[e.Address] = true
		case "free_requested", "free_completed", "free":
			if !came[e.Address] {
				came[e.Address], h.live[e.Address] = true, roundSize(e.Size)
			}
		case "segment_alloc", "segment_map":
			segments[e.Address] = true
		case "segment_free":
			if !segments[e.Address] {
				segments[e.Address] = true
				spans = append(spans, span{e.Address, e.Size, false})
			}
		}
	}
	for _, g := range s.Segments {
		if g.Device != device {
			continue
		}
		if !segments[g.Address] {
			spans = append(spans, span{g.Address, g.Total, g.Expandable})
		}
		for _, b := range g.Blocks {
			if b.InUse() && !came[b.Address] {
				h.live[b.Address] = b.Size
			}
		}
	}
	h.initialize(spans)
	return h
}

// span is a range of addresses that the driver allocated.
type span struct {
	from, size int64
	expandable bool
}

// initialize adds the gaps between live blocks as free blocks. If spans overlap, as only in damaged files, the first
// one owns the addresses.
func (h *heapReplay) initialize(spans []span) {
	addresses := slices.Sorted(maps.Keys(h.live))
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	reached := int64(0)
	for _, s := range spans {
		if !s.expandable {
			h.addBorder(s, 1)
		}
		at, end := max(s.from, reached), s.from+s.size
		reached = max(reached, end)
		first, _ := slices.BinarySearch(addresses, at)
		for _, a := range addresses[first:] {
			if a >= end {
				break
			}
			h.release(at, a-at)
			at = max(at, a+h.live[a])
		}
		h.release(at, end-at)
	}
}

func (h *heapReplay) addBorder(s span, n int) {
	for _, at := range []int64{s.from, s.from + s.size} {
		if h.borders[at] += n; h.borders[at] <= 0 {
			delete(h.borders, at)
		}
	}
}

// release frees a range and merges it with adjacent free ranges.
func (h *heapReplay) release(at, size int64) {
	if size <= 0 {
		return
	}
	if h.borders[at] == 0 {
		if before, length, ok := h.freeUpTo(at - 1); ok && before+length == at {
			h.free.Delete(before)
			at, size = before, size+length
		}
	}
	if after, ok := h.free.Get(at + size); ok && h.borders[at+size] == 0 {
		h.free.Delete(at + size)
		size += after
	}
	h.free.Set(at, size)
}

// freeUpTo returns the last free block that begins at or before an address.
func (h *heapReplay) freeUpTo(at int64) (from, size int64, ok bool) {
	h.free.Descend(at, func(k, v int64) bool {
		from, size, ok = k, v, true
		return false
	})
	return from, size, ok
}

// maxSmallBytes is the largest size of a block from the pool of small blocks.
const maxSmallBytes = 1 << 20

// allocate returns the size in bytes of the block for an allocation.
func (h *heapReplay) allocate(at, asked int64) int64 {
	size := roundSize(asked)
	if whole, ok := h.free.Get(at); ok && whole >= size {
		h.free.Delete(at)
		rest := whole - size
		split := rest >= 512
		if size > maxSmallBytes && !h.conf.Expandable {
			split = rest > maxSmallBytes && size < h.conf.MaxSplit
		}
		if split {
			h.free.Set(at+size, rest)
		} else {
			size = whole
		}
	}
	h.live[at] = size
	return size
}

func (h *heapReplay) applyEvent(e Event) (allocated, reserved int64) {
	switch e.Action {
	case "alloc":
		return h.allocate(e.Address, e.Size), 0
	case "free_completed", "free":
		size, ok := h.live[e.Address]
		if !ok {
			size = roundSize(e.Size)
		}
		delete(h.live, e.Address)
		h.release(e.Address, size)
		return -size, 0
	case "segment_alloc":
		h.addBorder(span{from: e.Address, size: e.Size}, 1)
		h.release(e.Address, e.Size)
		return 0, e.Size
	case "segment_map":
		h.release(e.Address, e.Size)
		return 0, e.Size
	case "segment_free":
		h.addBorder(span{from: e.Address, size: e.Size}, -1)
		h.free.Delete(e.Address)
		return 0, -e.Size
	case "segment_unmap":
		h.unmap(e.Address, e.Address+e.Size)
		return 0, -e.Size
	}
	return 0, 0
}

// unmap removes a range from the free block that contains it.
func (h *heapReplay) unmap(from, to int64) {
	at, size, ok := h.freeUpTo(from)
	if !ok || to > at+size {
		return
	}
	h.free.Delete(at)
	h.release(at, from-at)
	h.release(to, at+size-to)
}
