//go:build cuda && linux && cgo

package cuda

import (
	"fmt"

	"gorgonia.org/cu"

	"github.com/vprof/vprof/internal/cudalib"
)

// Probe looks for the driver and tries every GPU: it makes a context on each and loads the kernels.
func Probe() System {
	var s System
	if err := start(); err != nil {
		s.Err = err
	}
	s.Library = cudalib.Path()
	if s.Library != "" {
		s.CUDA = max(0, cu.Version())
	}
	if s.Err != nil {
		return s
	}
	n, err := cu.NumDevices()
	if err != nil {
		s.Err = failure("cuDeviceGetCount", 0, err)
	} else if n == 0 {
		s.Err = initError(&CallError{Call: "cuInit", Code: noDevice})
	}
	for i := range n {
		s.GPUs = append(s.GPUs, try(i))
	}
	return s
}

func try(index int) ProbedGPU {
	b := ProbedGPU{Name: fmt.Sprintf("cuda:%d", index)}
	d, err := Open(index)
	if err != nil {
		b.Err = err
		if id, err := cu.GetDevice(index); err == nil {
			b.GPU, _ = describe(id) // what is known of it is reported with the error
		}
		return b
	}
	b.GPU, b.Baseline, b.Neighbors, b.Simulated = d.GPU(), d.Baseline(), d.Neighbors(), d.Simulated()
	b.Shared, b.Identity = d.SharingSoftware(), d.Identity()
	b.Err = d.Close()
	return b
}
