package allocator

import "slices"

// RecordStream records that another stream than the block's own uses the block, as Tensor.record_stream does. After
// Free, the block's memory is reused only once the work queued on that stream has finished.
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

// CompleteEvents marks all events as completed, as if the device had finished all queued work. The frees that wait for
// them complete in the next Malloc, as in PyTorch.
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

// processEvents completes the frees of blocks whose events have all completed.
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

// synchronize completes all events and the frees that wait for them.
func (a *Allocator) synchronize() {
	a.stats.NumSyncAllStreams++
	a.completedEvents = a.eventClock
	if a.pendingEvents > 0 {
		a.processEvents()
	}
}

// finishFree counts one event of a freed block as completed.
func (a *Allocator) finishFree(b *Block) {
	a.pendingEvents--
	if b.events--; b.events == 0 {
		a.completeFree(b)
	}
}
