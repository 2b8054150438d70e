package main

import (
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/cuda"
)

// localGPU is a GPU of this machine.
type localGPU struct {
	GPU device.GPU
	// Others is what other processes hold of its memory now, bytes.
	Others int64
}

// A noGPUError says that a command needs a GPU that is not there, and why.
type noGPUError struct{ reason string }

func (e noGPUError) Error() string {
	return "no usable GPU: " + e.reason + ` (name one of "vprof gpus" with --gpu instead)`
}

// negative is a verdict against the user's plan. The output holds it already.
type negative struct{ error }

// firstGPU opens the first GPU of this machine to measure on. The error is a
// [*device.UnusableError].
func firstGPU() (device.Device, error) {
	d, err := cuda.Open(0)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// othersOn is what other processes hold of a device's memory, bytes; zero if
// that cannot be told.
func othersOn(d device.Device) int64 {
	if o, ok := d.(device.Observer); ok {
		return o.Baseline().Others
	}
	return 0
}
