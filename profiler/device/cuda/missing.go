//go:build !cuda || !linux || !cgo

package cuda

import "github.com/vprof/vprof/profiler/device"

// Built tells whether the binary can drive a GPU.
const Built = false

func missing(name string) error {
	return &device.UnusableError{
		Device: name,
		Reason: "this vprof was built without CUDA",
		Remedy: "build it with \"make cuda\" on Linux (no toolkit needed), or simulate a board with --device sim:NAME",
	}
}
