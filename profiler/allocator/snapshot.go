package allocator

import (
	"cmp"
	"slices"
)

// SegmentInfo describes a segment in a snapshot. An expandable segment appears once for each contiguous mapped part.
type SegmentInfo struct {
	Address uint64
	// Size is the size of the segment in bytes. Allocated, Active and Requested are the bytes in use, as in [Stats].
	Size, Allocated, Active, Requested int64
	Stream                             Stream
	Pool                               Pool
	Expandable                         bool
	// Blocks are the blocks of the segment in the order of their addresses, without gaps.
	Blocks []BlockInfo
}

// BlockInfo describes a block in a snapshot.
type BlockInfo struct {
	Address uint64
	Size    int64
	// Requested is the requested size in bytes; zero for a free block.
	Requested int64
	State     State
}

// Snapshot returns all segments in the order of their addresses, as torch.cuda.memory_snapshot does.
func (a *Allocator) Snapshot() []SegmentInfo {
	infos := make([]SegmentInfo, 0, len(a.segments)-len(a.unusedSegments))
	for _, s := range a.segments {
		if s == nil {
			continue
		}
		inside := false // whether the last block belongs to the last info
		for b := a.blocks.block(s.first); b != nil; b = a.blocks.block(b.next) {
			if b.state == unmapped {
				inside = false
				continue
			}
			if !inside {
				infos = append(infos, SegmentInfo{
					Address: b.addr, Stream: s.pool.stream, Pool: s.pool.kind, Expandable: s.page != 0,
				})
				inside = true
			}
			infos[len(infos)-1].add(b)
		}
	}
	slices.SortFunc(infos, func(a, b SegmentInfo) int { return cmp.Compare(a.Address, b.Address) })
	return infos
}

func (s *SegmentInfo) add(b *Block) {
	info := BlockInfo{Address: b.addr, Size: b.size, State: b.state}
	if b.state != Free {
		info.Requested = b.requested
		s.Active += b.size
		s.Requested += b.requested
	}
	if b.state == Allocated {
		s.Allocated += b.size
	}
	s.Size += b.size
	s.Blocks = append(s.Blocks, info)
}
