//go:build !cuda || !linux || !cgo

package cuda

import (
	"fmt"

	"github.com/vprof/vprof/profiler/device"
)

// Built reports whether the binary can drive a GPU.
const Built = false

// A Device is a GPU. This binary never has one.
type Device struct {
	device.Device
	device.Observer
}

// Open returns a [*device.UnusableError].
func Open(index int) (*Device, error) { return nil, notBuilt(fmt.Sprintf("cuda:%d", index)) }

// Probe returns a system whose error says that the binary has no CUDA.
func Probe() System { return System{Err: notBuilt("cuda")} }

func notBuilt(name string) error {
	return &device.UnusableError{
		Device: name,
		Reason: "this vprof was built without CUDA",
		Remedy: `build it on Linux with glibc and a C compiler ("make build"; no CUDA toolkit needed)`,
	}
}
