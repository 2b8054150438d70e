//go:build cuda && linux && cgo

package cuda

import "github.com/vprof/vprof/profiler/device"

// A workload is the kernels of a device.
type workload struct{}

func (d *Device) load() (*workload, error) { return &workload{}, nil }

// Launch implements [device.Device].
func (d *Device) Launch(k device.Kernel) error {
	for _, w := range k.Writes {
		if err := d.Fill(w.Addr, 1, w.Bytes); err != nil {
			return err
		}
	}
	return nil
}
