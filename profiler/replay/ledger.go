package replay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
)

// A ledger follows what an allocator hands out and finds it handing out memory
// twice. With patterns it also tries the memory itself.
type ledger struct {
	live     []entry         // by address
	next     uint64          // the number of the next entry
	patterns device.Patterns // nil without
	verified int
	err      error // the first thing found
}

// An entry is an allocation that lives.
type entry struct {
	addr   uint64
	bytes  int64
	number uint64 // no other has it: the seed of its pattern
}

// errOverlap is a bug of ours, or memory got from a device twice.
var errOverlap = errors.New("the allocator gave out the same memory twice")

// trace is a hook of [Replay]. What it finds is in l.err.
func (l *ledger) trace(_ int, e allocator.TraceEvent) {
	if l.err != nil {
		return
	}
	switch e.Action {
	case allocator.TraceAlloc:
		l.err = l.add(e.Addr, e.Size)
	case allocator.TraceFreeRequested:
		l.err = l.remove(e.Addr)
	}
}

func (l *ledger) find(addr uint64) (int, bool) {
	return slices.BinarySearchFunc(l.live, addr, func(e entry, addr uint64) int { return cmp.Compare(e.addr, addr) })
}

func (l *ledger) add(addr uint64, bytes int64) error {
	i, taken := l.find(addr)
	switch end := addr + uint64(bytes); {
	case taken,
		i > 0 && l.live[i-1].addr+uint64(l.live[i-1].bytes) > addr,
		i < len(l.live) && l.live[i].addr < end:
		return fmt.Errorf("%w: %d bytes at %#x", errOverlap, bytes, addr)
	}
	e := entry{addr, bytes, l.next}
	l.next++
	l.live = slices.Insert(l.live, i, e)
	if l.patterns == nil {
		return nil
	}
	return l.patterns.Write(device.Range{Addr: addr, Bytes: bytes}, e.number)
}

func (l *ledger) remove(addr uint64) error {
	i, ok := l.find(addr)
	if !ok {
		return fmt.Errorf("the allocator takes back %#x, which it did not give", addr)
	}
	e := l.live[i]
	l.live = slices.Delete(l.live, i, i+1)
	return l.verify(e)
}

func (l *ledger) verify(e entry) error {
	if l.patterns == nil {
		return nil
	}
	if err := l.patterns.Verify(device.Range{Addr: e.addr, Bytes: e.bytes}, e.number); err != nil {
		return err
	}
	l.verified++
	return nil
}

// end is a hook of [Replay]: it verifies what still lives.
func (l *ledger) end() error {
	for _, e := range l.live {
		if l.err == nil {
			l.err = l.verify(e)
		}
	}
	return l.err
}
