package script

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/vprof/vprof/profiler/device"
)

// Figures of architectures that the catalog does not have, since no estimate needs them:
// the shared memory in bytes that a block may opt in to and that a multiprocessor has
// (CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability").
var sharedMemory = map[device.Capability]struct{ block, sm int }{
	75: {65536, 65536}, 80: {166912, 167936}, 86: {101376, 102400}, 87: {166912, 167936}, 89: {101376, 102400},
	90: {232448, 233472}, 100: {232448, 233472}, 103: {232448, 233472}, 120: {101376, 102400}, 121: {101376, 102400},
}

const (
	// level2 is the size of the cache in bytes that is told where nothing asks for the
	// board's own.
	level2 = 40 << 20
	// driverVersion is a CUDA version as cuDriverGetVersion writes it: newer than what any
	// release of PyTorch needs.
	driverVersion = 13020
	// busBits and memoryKHz stand for every board: programs print them.
	busBits, memoryKHz = 384, 9751000
)

// boardText describes boards to the libraries that stand in for NVIDIA's: count boards
// that are all the same.
func boardText(gpu device.GPU, count int) string {
	shared, known := sharedMemory[gpu.Capability]
	if !known {
		shared = sharedMemory[80]
	}
	name := fnv.New64a()
	name.Write([]byte(gpu.Name))
	var b strings.Builder
	for _, line := range []struct {
		key   string
		value any
	}{
		{"name", gpu.Product},
		{"memory", gpu.Memory},
		{"context", gpu.Context},
		{"cc_major", int(gpu.Capability) / 10},
		{"cc_minor", int(gpu.Capability) % 10},
		{"sms", gpu.SMs},
		{"threads_per_sm", gpu.ThreadsPerSM},
		{"shared_per_block", shared.block},
		{"shared_per_sm", shared.sm},
		{"l2", level2},
		{"clock_khz", gpu.BoostMHz * 1000},
		{"memory_clock_khz", memoryKHz},
		{"bus_bits", busBits},
		{"warp", 32},
		{"driver", driverVersion},
		{"count", count},
		// The last bytes of the first board's UUID, and the number of its bus.
		{"uuid", name.Sum64()},
		{"pci", 1},
	} {
		fmt.Fprintf(&b, "%s %v\n", line.key, line.value)
	}
	return b.String()
}
