package replay

import (
	"context"
	"slices"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/program"
)

// Spill is a program's host memory under a driver that allocates host memory once the GPU is full, as drivers of
// Windows (WDDM) and WSL2 do.
type Spill struct {
	// Bytes is the peak size of the segments in host memory.
	Bytes int64 `json:"bytes"`
	// Moved is the number of host memory bytes that the kernels of one step read and write.
	Moved int64 `json:"moved"`
}

// MeasureSpill replays a program on a GPU with room for the given bytes of segments. Later segments stay in host memory
// until they are released. How such drivers move memory between GPU and host is not documented.
func MeasureSpill(ctx context.Context, p *program.Program, config allocator.Config, room int64, rising bool, step int) (
	Spill, error,
) {
	memory := &spillSource{SimulatedMemory: allocator.NewMemory(unlimitedBytes, 0), room: room}
	memory.Rising = rising
	var moved, total int64
	_, err := Replay(ctx, p, Options{Config: &config, Source: memory, Hooks: Hooks{
		Launch: func(op *program.Op, address func(uint32) uint64) error {
			for _, span := range [...]program.Span{op.Reads, op.Writes} {
				for _, o := range p.Operands[span.From:span.To] {
					if memory.holds(address(o.Buffer)) {
						moved += o.Bytes
					}
				}
			}
			return nil
		},
		Mark: func(phase program.Phase) error { // which ends here
			if phase.Step == step {
				total += moved
			}
			moved = 0
			return nil
		},
	}})
	return Spill{memory.most, total}, err
}

// spillSource is a memory source that allocates segments beyond room in host memory.
type spillSource struct {
	*allocator.SimulatedMemory
	room int64 // what is left of it
	// host are the segments in host memory, bytes their sum, and most the maximum of that sum.
	host        []addressRange
	bytes, most int64
}

// An addressRange is the range of a segment; it excludes to.
type addressRange struct{ from, to uint64 }

// Get allocates a segment of device memory, for [allocator.Source].
func (m *spillSource) Get(size int64) (uint64, error) {
	addr, err := m.SimulatedMemory.Get(size)
	switch {
	case err != nil:
	case size <= m.room:
		m.room -= size
	default:
		m.host = append(m.host, addressRange{addr, addr + uint64(size)})
		m.bytes += size
		m.most = max(m.most, m.bytes)
	}
	return addr, err
}

// Put frees a segment, for [allocator.Source].
func (m *spillSource) Put(addr uint64, size int64) error {
	if at := m.find(addr); at >= 0 {
		m.host = slices.Delete(m.host, at, at+1)
		m.bytes -= size
	} else {
		m.room += size
	}
	return m.SimulatedMemory.Put(addr, size)
}

// holds reports whether an address is in host memory.
func (m *spillSource) holds(addr uint64) bool { return m.find(addr) >= 0 }

func (m *spillSource) find(addr uint64) int {
	return slices.IndexFunc(m.host, func(s addressRange) bool { return s.from <= addr && addr < s.to })
}
