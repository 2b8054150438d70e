package main

import "github.com/vprof/vprof/profiler/device"

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
