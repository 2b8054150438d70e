package allocator

// Action is the kind of a [TraceEvent], spelled as in a PyTorch snapshot.
type Action string

// The kinds of trace events.
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

// TraceEvent is an event in an allocator: an entry of device_traces in a PyTorch snapshot.
type TraceEvent struct {
	Action Action
	// Addr is the address of the event's block or segment; zero for TraceOOM.
	Addr uint64
	// Size depends on the action. For an allocation or free it is the requested size without rounding; for a segment,
	// its bytes; for TraceOOM, the rounded size of the failed request.
	Size   int64
	Stream Stream
}

// SetTrace makes the allocator call f for every further event, in PyTorch's order; nil turns it off. f must not call
// the allocator.
func (a *Allocator) SetTrace(f func(TraceEvent)) { a.tracer = f }

func (a *Allocator) trace(action Action, addr uint64, size int64, p *pool) {
	if a.tracer != nil {
		a.tracer(TraceEvent{action, addr, size, p.stream})
	}
}
