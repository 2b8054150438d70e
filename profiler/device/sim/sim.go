// Package sim simulates a GPU without hardware: a GPU of the catalog, or one that a file describes. Memory is counted
// as a driver would, so an allocation fails where it would fail on the GPU. Time is the GPU's roofline, a lower bound:
// no kernel runs.
package sim

import (
	"fmt"
	"time"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// Device is a simulated GPU. Memory is allocated in pages of 2 MiB at rising addresses, and no address is used twice.
type Device struct {
	*allocator.SimulatedMemory
	gpu device.GPU
	// takenBytes is the memory of libraries and other processes, in bytes.
	takenBytes int64
	// now is the simulated time of each stream since the device was created.
	now []time.Duration
}

var (
	_ device.Device   = (*Device)(nil)
	_ device.Streamer = (*Device)(nil)
	_ device.Observer = (*Device)(nil)
)

// New creates a simulated device. The context and the taken bytes (libraries and other processes) are in use from the
// start. It is an error if no memory is left.
func New(gpu device.GPU, taken int64) (*Device, error) {
	if taken < 0 {
		return nil, fmt.Errorf("sim:%s: %d bytes used by other processes: need 0 or more", gpu.Name, taken)
	}
	if taken >= gpu.Memory-gpu.Context {
		return nil, fmt.Errorf("sim:%s: no memory is left of its %s: the CUDA context uses %s, and other processes "+
			"use %s; set a smaller number for other processes",
			gpu.Name, bytesize.Format(gpu.Memory), bytesize.Format(gpu.Context), bytesize.Format(taken))
	}
	memory := allocator.NewMemory(gpu.Memory, gpu.Context+taken)
	memory.Rising = gpu.Rising
	return &Device{SimulatedMemory: memory, gpu: gpu, takenBytes: taken, now: make([]time.Duration, 1)}, nil
}

// Name returns the device's name, for [device.Device].
func (d *Device) Name() string { return "sim:" + d.gpu.Name }

// GPU returns the GPU's properties, for [device.Device].
func (d *Device) GPU() device.GPU { return d.gpu }

// Simulated returns true: no real GPU is used.
func (d *Device) Simulated() bool { return true }

// AvailableBytes returns the free memory in bytes, for [device.Device].
func (d *Device) AvailableBytes() (int64, error) { return d.Free(), nil }

// Baseline returns the memory in use before the first allocation, for [device.Observer].
func (d *Device) Baseline() device.Baseline {
	return device.Baseline{Others: d.takenBytes, OthersKnown: true, Context: d.gpu.Context}
}

// ProcessMemory returns the bytes that this process uses on the GPU, for [device.Observer].
func (d *Device) ProcessMemory() (bytes int64, ok bool) { return d.Used() - d.takenBytes, true }

// Neighbors returns the other processes on the GPU, for [device.Observer].
func (d *Device) Neighbors() []device.Neighbor { return nil }

// Fill sets bytes of device memory to a value, for [device.Device].
func (d *Device) Fill(_ uint64, _ byte, bytes int64) error {
	d.addTime(0, d.gpu.Roofline(0, bytes, program.FP32))
	return nil
}

// Launch implements [device.Device]. A collective takes as long as the links or the memory do, whichever is slower.
func (d *Device) Launch(k device.Kernel) error {
	d.addTime(k.Stream, max(d.gpu.Roofline(k.FLOPs, k.Traffic(), k.Precision), d.gpu.Transfer(k.Sent)))
	return nil
}

// addTime adds a duration to the time of a stream.
func (d *Device) addTime(s program.Stream, t time.Duration) { *d.clock(s) += t }

// clock returns the time of a stream; a new stream starts at zero.
func (d *Device) clock(s program.Stream) *time.Duration {
	for int(s) >= len(d.now) {
		d.now = append(d.now, 0)
	}
	return &d.now[s]
}

// RecordOn records an event on a stream, for [device.Streamer].
func (d *Device) RecordOn(s program.Stream) (device.Event, error) { return event{d, *d.clock(s)}, nil }

// Await makes a stream wait for an event, for [device.Streamer].
func (d *Device) Await(s program.Stream, e device.Event) error {
	of, ok := e.(event)
	if !ok || of.device != d {
		return fmt.Errorf("%s: an event of another device cannot be awaited; this is a bug of vprof (please report it)",
			d.Name())
	}
	now := d.clock(s)
	*now = max(*now, of.at)
	return nil
}

// Synchronize implements [device.Device]. Nothing is ever pending.
func (d *Device) Synchronize() error { return nil }

// Record records an event on the default stream, for [device.Device].
func (d *Device) Record() (device.Event, error) { return event{d, d.now[0]}, nil }

// Close implements [device.Device]. There is nothing to release.
func (d *Device) Close() error { return nil }

// An event is a point in a device's simulated time.
type event struct {
	device *Device
	at     time.Duration
}

// Since returns the time between two events, for [device.Event].
func (e event) Since(earlier device.Event) (time.Duration, error) {
	from, ok := earlier.(event)
	if !ok || from.device != e.device {
		return 0, fmt.Errorf("%s: an event of another device cannot be timed; this is a bug of vprof (please report "+
			"it)", e.device.Name())
	}
	return e.at - from.at, nil
}

// Close frees the event, for [device.Event].
func (e event) Close() error { return nil }
