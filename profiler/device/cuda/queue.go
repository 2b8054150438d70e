//go:build cuda && linux && cgo

package cuda

import (
	"fmt"
	"time"

	"gorgonia.org/cu"

	"github.com/vprof/vprof/profiler/device"
)

// Fill sets bytes of device memory to a value, for [device.Device].
func (d *Device) Fill(dst uint64, value byte, bytes int64) error {
	d.queued = true
	return d.check("cuMemsetD8Async", bytes, cu.MemsetD8Async(cu.DevicePtr(dst), value, bytes, d.stream))
}

// Synchronize waits for all work on the device, for [device.Device].
func (d *Device) Synchronize() error {
	if err := d.check("cuStreamSynchronize", 0, d.stream.Synchronize()); err != nil {
		return err
	}
	d.queued = false
	return nil
}

// Record records an event on the default stream, for [device.Device].
func (d *Device) Record() (device.Event, error) {
	var e cu.Event
	if n := len(d.idle); n > 0 {
		e, d.idle = d.idle[n-1], d.idle[:n-1]
	} else {
		var err error
		if e, err = cu.MakeEvent(cu.DefaultEvent); err != nil {
			return nil, d.check("cuEventCreate", 0, err)
		}
		d.events = append(d.events, e)
	}
	if err := e.Record(d.stream); err != nil {
		d.idle = append(d.idle, e)
		return nil, d.check("cuEventRecord", 0, err)
	}
	d.queued = true
	return &event{d, e}, nil
}

// An event is one of a device's stream.
type event struct {
	device *Device
	event  cu.Event
}

// Since returns the time between two events, for [device.Event].
func (e *event) Since(earlier device.Event) (time.Duration, error) {
	from, ok := earlier.(*event)
	if !ok || from.device != e.device {
		return 0, fmt.Errorf("%s: an event of another device cannot be timed; this is a bug of vprof (please report "+
			"it)", e.device.name)
	}
	if err := e.device.check("cuEventSynchronize", 0, e.event.Synchronize()); err != nil {
		return 0, err
	}
	ms, err := from.event.Elapsed(e.event)
	if err != nil {
		return 0, e.device.check("cuEventElapsedTime", 0, err)
	}
	return time.Duration(ms * float64(time.Millisecond)), nil
}

// Close frees the event, for [device.Event].
func (e *event) Close() error {
	e.device.idle = append(e.device.idle, e.event)
	return nil
}
