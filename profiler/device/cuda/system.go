package cuda

import (
	"os"
	"path/filepath"

	"github.com/vprof/vprof/profiler/device"
)

// DeviceFile returns the file in dev (such as "/dev") that shows an NVIDIA GPU: the driver's own or that of WSL2; empty
// if there is none. The driver may still not work, or this binary may lack CUDA.
func DeviceFile(dev string) string {
	for _, name := range []string{"nvidiactl", "dxg"} {
		file := filepath.Join(dev, name)
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return ""
}

// A System describes this machine's driver and GPUs.
type System struct {
	// Library is the file of the driver's library, empty if none was loaded.
	Library string
	// CUDA is the newest version that the driver supports, times 1000; zero if unknown.
	CUDA int
	// GPUs are the GPUs that the driver shows.
	GPUs []ProbedGPU
	// Err is the reason why it shows none: a [*device.UnusableError], or a [*CallError].
	Err error
}

// A ProbedGPU is a GPU that was tried.
type ProbedGPU struct {
	// Name is the name of the device, "cuda:0".
	Name string
	GPU  device.GPU
	// Baseline is the memory in use with a context and the kernels, and Neighbors are the other processes seen.
	Baseline  device.Baseline
	Neighbors []device.Neighbor
	// Identity tells the GPU from others of its kind.
	Identity device.Identity
	// Shared describes how software shares the GPU: see [device.SharingReporter].
	Shared []string
	// Simulated reports whether the driver runs no kernels, as a simulated one.
	Simulated bool
	// Err is the reason why the GPU cannot be used; nil if it can.
	Err error
}
