package allocator

import (
	"errors"
	"fmt"

	"github.com/vprof/vprof/internal/ceil"
)

// ErrOutOfMemory is the error of a [Source], possibly wrapped, if the device has too little memory. Any other error of
// a source is a failure of the device and ends the allocation at once.
var ErrOutOfMemory = errors.New("device out of memory")

// A Source provides an [Allocator]'s memory: it allocates and releases whole segments, as cudaMalloc and cudaFree do.
type Source interface {
	// Total returns the size of the device's memory in bytes. Memory fractions are relative to it.
	Total() int64
	// Get allocates a segment of size bytes and returns its address.
	Get(size int64) (addr uint64, err error)
	// Put releases the segment of size bytes at addr, which Get allocated.
	Put(addr uint64, size int64) error
}

// A PagedSource can also map memory into an address range page by page, as expandable segments do: cuMemAddressReserve,
// cuMemCreate with cuMemMap and cuMemSetAccess, and their opposites.
type PagedSource interface {
	Source
	// Reserve reserves an address range of size bytes without memory and returns its address.
	Reserve(size int64) (addr uint64, err error)
	// Map maps memory for the page of size bytes at addr.
	Map(addr uint64, size int64) error
	// Unmap releases the memory of the page of size bytes at addr.
	Unmap(addr uint64, size int64) error
	// Release releases the address range of size bytes at addr, in which no page is mapped any more.
	Release(addr uint64, size int64) error
}

// PageSize is the granularity of CUDA's device memory, 2 MiB.
const PageSize = 2 << 20

// SimulatedMemory is a [PagedSource] without a device. It counts bytes in pages and uses no address twice.
type SimulatedMemory struct {
	// Rising reports whether each new address is above the previous one; if not, it is below. Drivers on Linux return
	// falling addresses (an H100's, 580.159.04: all of 78 segments). With [Config.OrdersByAddress] the allocator takes
	// the block with the lowest address among equal ones, so the order determines which blocks are split.
	Rising bool

	total, used, peak int64
	next              uint64
}

// memoryBase is the first address of a [SimulatedMemory]. It can be any multiple of the page size except zero, which
// means no address.
const memoryBase uint64 = 0x7f00_0000_0000

// addressSpace is the largest size of an address range: the 47-bit address space of a process.
const addressSpace = 1 << 47

// NewMemory returns the memory of a device with total bytes, of which taken bytes are used by others: the CUDA context,
// libraries, other processes.
func NewMemory(total, taken int64) *SimulatedMemory {
	return &SimulatedMemory{total: total, used: taken, peak: taken, next: memoryBase}
}

// Total returns the size of the memory in bytes.
func (m *SimulatedMemory) Total() int64 { return m.total }

// Used returns the number of bytes in use, including other users.
func (m *SimulatedMemory) Used() int64 { return m.used }

// Free returns the number of bytes not in use, as cudaMemGetInfo reports it.
func (m *SimulatedMemory) Free() int64 { return m.total - m.used }

// Peak returns the maximum of Used so far.
func (m *SimulatedMemory) Peak() int64 { return m.peak }

// Get allocates a segment of the simulated memory, for [Source].
func (m *SimulatedMemory) Get(size int64) (uint64, error) {
	if err := m.takeBytes(size); err != nil {
		return 0, err
	}
	return m.nextAddress(size), nil
}

// Put frees a segment, for [Source].
func (m *SimulatedMemory) Put(_ uint64, size int64) error {
	m.used -= roundToPages(size)
	return nil
}

// Reserve reserves a range of addresses, for [PagedSource].
func (m *SimulatedMemory) Reserve(size int64) (uint64, error) {
	if size > addressSpace {
		return 0, fmt.Errorf("a range of %d bytes is larger than the address space", size)
	}
	return m.nextAddress(size), nil
}

// Map maps memory into a reserved range, for [PagedSource].
func (m *SimulatedMemory) Map(_ uint64, size int64) error { return m.takeBytes(size) }

// Unmap unmaps memory of a reserved range, for [PagedSource].
func (m *SimulatedMemory) Unmap(_ uint64, size int64) error {
	m.used -= roundToPages(size)
	return nil
}

// Release implements [PagedSource]. A reservation costs nothing.
func (m *SimulatedMemory) Release(uint64, int64) error { return nil }

func (m *SimulatedMemory) takeBytes(size int64) error {
	n := roundToPages(size)
	if size > addressSpace || n > m.Free() {
		return fmt.Errorf("%w: %d bytes requested, %d free", ErrOutOfMemory, size, m.Free())
	}
	m.used += n
	m.peak = max(m.peak, m.used)
	return nil
}

func (m *SimulatedMemory) nextAddress(size int64) uint64 {
	if !m.Rising {
		m.next -= uint64(roundToPages(size))
		return m.next
	}
	addr := m.next
	m.next += uint64(roundToPages(size))
	return addr
}

// roundToPages rounds a size up to a multiple of the page size.
func roundToPages(size int64) int64 { return ceil.Multiple(size, PageSize) }
