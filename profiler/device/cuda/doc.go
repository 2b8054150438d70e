// Package cuda is a real NVIDIA GPU as a [device.Device], through
// gorgonia.org/cu and the driver that is found at run time.
//
// It is in the binary only if that was built with the tag cuda, on Linux and with cgo, as "make build" does with a C
// compiler for glibc; any other answers every [Open] with a [device.UnusableError] that says so. One with the tag
// starts on every machine; whether there is a driver and a GPU shows at Open.
//
// Close releases everything that a Device allocated from the driver: events, kernels, segments, address ranges, the
// context. It belongs to the goroutine that opened it, which stays on one thread until then, because a CUDA context is
// current to a thread.
package cuda

// needed is the version of CUDA that the driver must support: the version of the kernels' PTX, 11.8. driverOf is the
// release of the driver that has it.
const (
	needed   = 11080
	driverOf = "520.61"
)
