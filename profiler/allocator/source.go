package allocator

import (
	"errors"
	"fmt"

	"github.com/vprof/vprof/internal/ceil"
)

// ErrOutOfMemory is what a [Source] returns, wrapped or not, when the device has not enough memory left. Any other
// error of a source is a failure of the device and ends the allocation at once.
var ErrOutOfMemory = errors.New("device out of memory")

// A Source is the memory below an [Allocator]: it allocates and releases whole segments, as cudaMalloc and cudaFree do.
type Source interface {
	// Total is the memory of the device in bytes, used or not. Memory fractions are relative to it.
	Total() int64
	// Get returns the address of a new segment of size bytes.
	Get(size int64) (addr uint64, err error)
	// Put releases the segment of size bytes that Get returned at addr.
	Put(addr uint64, size int64) error
}

// A PagedSource can also back an address range page by page, which expandable segments need: cuMemAddressReserve,
// cuMemCreate with cuMemMap and cuMemSetAccess, and their opposites.
type PagedSource interface {
	Source
	// Reserve returns the address of a range of size bytes without memory.
	Reserve(size int64) (addr uint64, err error)
	// Map puts memory behind the page of size bytes at addr.
	Map(addr uint64, size int64) error
	// Unmap releases the memory of the page of size bytes at addr.
	Unmap(addr uint64, size int64) error
	// Release releases the range of size bytes at addr. No page of it is mapped any more.
	Release(addr uint64, size int64) error
}

// PageSize is the unit in which CUDA hands out device memory.
const PageSize = 2 << 20

// SimulatedMemory is a [PagedSource] without a device. It counts bytes in granules and uses no address twice.
type SimulatedMemory struct {
	// Rising reports whether each address is above the one before, not below. Drivers on Linux hand out falling
	// addresses (an H100's, 580.159.04: all of 78 segments). With [Config.OrdersByAddress] the allocator takes the
	// lowest of equally good blocks, so the order decides which blocks are split.
	Rising bool

	total, used, peak int64
	next              uint64
}

// memoryBase is the first address of a [SimulatedMemory]. Any multiple of the granule works; zero would look like no
// address at all.
const memoryBase uint64 = 0x7f00_0000_0000

// addressSpace is the largest size of a range: the 47 bits of a process.
const addressSpace = 1 << 47

// NewMemory returns the memory of a device with total bytes, of which others use taken bytes: the CUDA context,
// libraries, other processes.
func NewMemory(total, taken int64) *SimulatedMemory {
	return &SimulatedMemory{total: total, used: taken, peak: taken, next: memoryBase}
}

// Total returns the size of the memory in bytes.
func (m *SimulatedMemory) Total() int64 { return m.total }

// Used returns the number of bytes in use now, including other users.
func (m *SimulatedMemory) Used() int64 { return m.used }

// Free returns the number of bytes not in use now, as cudaMemGetInfo reports it.
func (m *SimulatedMemory) Free() int64 { return m.total - m.used }

// Peak returns the highest value Used has had.
func (m *SimulatedMemory) Peak() int64 { return m.peak }

// Get implements [Source].
func (m *SimulatedMemory) Get(size int64) (uint64, error) {
	if err := m.takeBytes(size); err != nil {
		return 0, err
	}
	return m.nextAddress(size), nil
}

// Put implements [Source].
func (m *SimulatedMemory) Put(_ uint64, size int64) error {
	m.used -= roundToPages(size)
	return nil
}

// Reserve implements [PagedSource].
func (m *SimulatedMemory) Reserve(size int64) (uint64, error) {
	if size > addressSpace {
		return 0, fmt.Errorf("a range of %d bytes is larger than the address space", size)
	}
	return m.nextAddress(size), nil
}

// Map implements [PagedSource].
func (m *SimulatedMemory) Map(_ uint64, size int64) error { return m.takeBytes(size) }

// Unmap implements [PagedSource].
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

// roundToPages rounds size up to whole granules.
func roundToPages(size int64) int64 { return ceil.Multiple(size, PageSize) }
