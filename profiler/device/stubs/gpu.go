package stubs

import (
	"fmt"
	"io"

	"github.com/vprof/vprof/profiler/device"
)

// WriteGPU writes the description of a GPU for the stub libraries (the file of VPROF_STUB_GPU), with a key, a space and
// a value on each line. devices is the number of GPUs, driver the CUDA version times 1000 (13020 for 13.2).
func WriteGPU(w io.Writer, gpu device.GPU, devices, driver int) error {
	perSM, perBlock := sharedMemory(gpu.Capability)
	rising := 0
	if gpu.Rising {
		rising = 1
	}
	_, err := fmt.Fprintf(w, `name %s
memory %d
context %d
cc_major %d
cc_minor %d
sms %d
threads_per_sm %d
shared_per_block %d
shared_per_sm %d
l2 %d
clock_khz %d
driver %d
count %d
rising %d
`, gpu.Product, gpu.Memory, gpu.Context, int(gpu.Capability)/10, int(gpu.Capability)%10, gpu.SMs, gpu.ThreadsPerSM,
		perBlock, perSM, gpu.L2, gpu.BoostMHz*1000, driver, devices, rising)
	return err
}

// sharedMemory returns the shared memory of a multiprocessor and the maximum of one block, in bytes, from the table of
// compute capabilities in the CUDA C++ Programming Guide.
func sharedMemory(c device.Capability) (perSM, perBlock int) {
	const kib, reserved = 1 << 10, 1 << 10 // the system takes 1 KiB of each block from 8.0 on
	switch {
	case c < 70:
		return 96 * kib, 48 * kib
	case c < 75:
		return 96 * kib, 96 * kib
	case c < 80:
		return 64 * kib, 64 * kib
	case c == 80, c == 87:
		return 164 * kib, 164*kib - reserved
	case c < 90, c >= 120:
		return 100 * kib, 100*kib - reserved
	}
	return 228 * kib, 228*kib - reserved
}
