package replay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/program"
)

// An addressLedger records the address ranges that an allocator returns; overlapping live ranges are an error.
type addressLedger struct {
	program *program.Program
	live    []liveAllocation // by address
	next    uint64           // the number of the next entry
	// use is called for each allocation and free, to read or write the memory; nil for none.
	use memoryObserver
	err error // the first thing found
}

// An liveAllocation is a live allocation in the ledger.
type liveAllocation struct {
	addr   uint64
	bytes  int64
	buffer uint32
	number uint64 // no other has it
}

// memoryObserver is notified when a range of memory is allocated and when it is freed.
type memoryObserver interface {
	begin(e liveAllocation) error
	end(e liveAllocation) error
}

// errOverlap reports that the same memory was allocated twice, by the allocator or by the device.
var errOverlap = errors.New("the allocator allocated the same memory twice")

// trace implements the Trace hook of [Replay]. It stores errors in l.err.
func (l *addressLedger) trace(instruction int, e allocator.TraceEvent) {
	if l.err != nil {
		return
	}
	switch e.Action {
	case allocator.TraceAlloc:
		l.err = l.add(e.Addr, e.Size, l.program.Instructions[instruction].Arg)
	case allocator.TraceFreeRequested:
		l.err = l.remove(e.Addr)
	}
}

func (l *addressLedger) find(addr uint64) (int, bool) {
	return slices.BinarySearchFunc(l.live, addr, func(e liveAllocation, at uint64) int {
		return cmp.Compare(e.addr, at)
	})
}

func (l *addressLedger) add(addr uint64, bytes int64, buffer uint32) error {
	i, taken := l.find(addr)
	switch end := addr + uint64(bytes); {
	case taken, i > 0 && l.live[i-1].addr+uint64(l.live[i-1].bytes) > addr, i < len(l.live) && l.live[i].addr < end:
		return fmt.Errorf("%w: %d bytes at %#x", errOverlap, bytes, addr)
	}
	e := liveAllocation{addr, bytes, buffer, l.next}
	l.next++
	l.live = slices.Insert(l.live, i, e)
	if l.use == nil {
		return nil
	}
	return l.use.begin(e)
}

func (l *addressLedger) remove(addr uint64) error {
	i, ok := l.find(addr)
	if !ok {
		return fmt.Errorf("the allocator freed %#x, which it had not allocated", addr)
	}
	e := l.live[i]
	l.live = slices.Delete(l.live, i, i+1)
	if l.use == nil {
		return nil
	}
	return l.use.end(e)
}

// mark implements the Mark hook of [Replay]. It ends the replay after an overlap.
func (l *addressLedger) mark(program.Phase) error { return l.err }

// end ends the use of all buffers that are still allocated, as in the End hook of [Replay].
func (l *addressLedger) end() error {
	for _, e := range l.live {
		if l.err == nil && l.use != nil {
			l.err = l.use.end(e)
		}
	}
	return l.err
}
