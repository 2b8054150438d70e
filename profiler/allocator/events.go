package allocator

import "slices"

// RecordStream notes that a stream other than the block's own uses the block, as Tensor.record_stream does. The block's
// memory is then reused only after the work that is queued on the stream when the block is freed.
func (a *Allocator) RecordStream(b *Block, s Stream) {
	if b == nil || s == a.pool(b).stream {
		return
	}
	if b.state != Allocated {
		panic("allocator: record stream of a block that is not allocated")
	}
	if !a.sharesSegments {
		a.stats.Active, a.stats.ActiveBytes = a.stats.Allocation, a.stats.AllocatedBytes
		a.sharesSegments, a.streamUses = true, make(map[*Block][]Stream)
	}
	if streams := a.streamUses[b]; !slices.Contains(streams, s) {
		a.streamUses[b] = append(streams, s)
	}
	b.recorded = true
}

// CompleteEvents completes all events, as when the device has finished all queued work. The frees that waited for it
// complete with the next Malloc, which is when PyTorch checks.
func (a *Allocator) CompleteEvents() { a.completedEvents = a.eventClock }

// recordEvents keeps a freed block pending until the streams that use it have finished the work queued so far.
func (a *Allocator) recordEvents(b *Block) {
	b.state = PendingFree
	b.recorded = false
	for _, s := range a.streamUses[b] {
		a.eventClock++
		on := a.stream(s)
		on.events = append(on.events, event{a.eventClock, b})
		b.events++
		a.pendingEvents++
	}
	delete(a.streamUses, b)
}

// processEvents completes the frees whose events have completed.
func (a *Allocator) processEvents() {
	for _, s := range a.streams {
		done := 0
		for done < len(s.events) && s.events[done].seq <= a.completedEvents {
			a.finishFree(s.events[done].block)
			done++
		}
		s.events = slices.Delete(s.events, 0, done)
	}
}

// synchronize waits for all events and completes the frees.
func (a *Allocator) synchronize() {
	a.stats.NumSyncAllStreams++
	a.completedEvents = a.eventClock
	if a.pendingEvents > 0 {
		a.processEvents()
	}
}

// finishFree counts one event of a block as completed.
func (a *Allocator) finishFree(b *Block) {
	a.pendingEvents--
	if b.events--; b.events == 0 {
		a.completeFree(b)
	}
}
