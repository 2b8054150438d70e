package allocator

// Action is the kind of a [TraceEvent], as a PyTorch snapshot spells it.
type Action string

// The actions.
const (
	TraceAlloc         Action = "alloc"
	TraceFreeRequested Action = "free_requested"
	TraceFreeCompleted Action = "free_completed"
	TraceSegmentAlloc  Action = "segment_alloc"
	TraceSegmentFree   Action = "segment_free"
	TraceSegmentMap    Action = "segment_map"
	TraceSegmentUnmap  Action = "segment_unmap"
	TraceOOM           Action = "oom"
)

// TraceEvent is something that happened in an allocator: an entry of the device_traces of a PyTorch snapshot.
type TraceEvent struct {
	Action Action
	// Addr is the address; zero for TraceOOM.
	Addr uint64
	// Size is the requested size, without rounding, of an allocation or free; the bytes of a segment that was allocated
	// or released; the rounded request that failed for TraceOOM.
	Size   int64
	Stream Stream
}

// SetTrace calls f for every event from now on, in PyTorch's order; nil turns it off. f must not call the allocator.
func (a *Allocator) SetTrace(f func(TraceEvent)) { a.tracer = f }

func (a *Allocator) trace(action Action, addr uint64, size int64, p *pool) {
	if a.tracer != nil {
		a.tracer(TraceEvent{action, addr, size, p.stream})
	}
}
