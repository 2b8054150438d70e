//go:build cuda && linux && cgo

package cuda

import (
	"os"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/cudalib"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/nvml"
)

var (
	_ device.Observer         = (*Device)(nil)
	_ device.DriverReporter   = (*Device)(nil)
	_ device.IdentityReporter = (*Device)(nil)
)

// Driver returns the versions of driver and CUDA, for [device.DriverReporter].
func (d *Device) Driver() device.Driver { return d.driver }

// Identity returns the GPU's UUID and place, for [device.IdentityReporter].
func (d *Device) Identity() device.Identity { return d.identity }

// identify reads the GPU's UUID into d.identity. A MIG slice is recognized by the product's name.
func (d *Device) identify() (id string) {
	id, err := cudalib.UUID(int(d.id))
	if err != nil {
		return ""
	}
	d.identity.MIG = strings.Contains(d.gpu.Product, " MIG ")
	d.identity.UUID = map[bool]string{false: wholeID, true: sliceID}[d.identity.MIG] + id
	return id
}

// The prefixes of the identifiers of a GPU and of a slice.
const (
	wholeID = "GPU-"
	sliceID = "MIG-"
)

// observe finds the GPU in NVML and returns the bytes in use on it, or -1 if NVML does not report them. A missing NVML
// is no error, since the driver's values suffice.
func (d *Device) observe() int64 {
	id := d.identify()
	library, err := nvml.Open()
	if err != nil {
		return -1
	}
	d.defers(library.Close)
	if v, err := library.Versions(); err == nil {
		d.driver.Release = v.Driver
	}
	if id == "" {
		return -1
	}
	if d.watched, err = library.Find(wholeID + id); err != nil {
		if d.watched, err = library.Find(sliceID + id); err != nil {
			return -1
		}
		d.identity = device.Identity{UUID: sliceID + id, MIG: true}
	}
	memory, err := d.watched.Memory()
	if err != nil || memory.Shared {
		return -1 // programs on the CPU hold more of it
	}
	d.strangers = map[int]bool{}
	processes, err := d.watched.Processes()
	if err != nil {
		d.strangers = nil
	}
	for _, p := range processes {
		d.strangers[p.PID] = true
	}
	return memory.UsedByProcesses(d.gpu.Memory)
}

// used returns the bytes of the GPU's memory that all processes use.
func (d *Device) used() (int64, error) {
	free, err := d.AvailableBytes()
	return d.gpu.Memory - free, err
}

// sizeContext sets the context's size to the memory in use less the bytes in use before. If these are unknown, the
// context has the catalog's size, or up to the catalog's error more; other processes have the rest.
func (d *Device) sizeContext(before int64) error {
	used, err := d.used()
	d.baseline.OthersKnown = before >= 0 && before <= used
	if d.baseline.OthersKnown {
		d.baseline.Others = before
	} else if typical := d.typical; used > 2*typical {
		d.baseline.Others = used - typical
	}
	d.baseline.Context = used - d.baseline.Others
	if d.gpu.Context == 0 && d.baseline.Context > 0 { // the catalog does not have the GPU
		d.gpu.Context, d.gpu.ContextSource = d.baseline.Context, "measured when the device was opened"
	}
	return err
}

// typicalContext returns the bytes of a bare context by the catalog. If the catalog does not have the GPU, it returns
// the largest context of all GPUs.
func typicalContext(gpu device.GPU) int64 {
	if gpu.Context > 0 {
		return gpu.WithoutLibraries().Context
	}
	var most int64
	for _, g := range device.Catalog() {
		most = max(most, g.WithoutLibraries().Context)
	}
	return most
}

// Baseline returns the memory in use before the first allocation, for [device.Observer].
func (d *Device) Baseline() device.Baseline { return d.baseline }

// ProcessMemory returns the bytes that this process uses on the GPU, for [device.Observer].
func (d *Device) ProcessMemory() (bytes int64, ok bool) {
	own, _ := d.processes()
	if own == nil || own.Used < 0 {
		return 0, false
	}
	return own.Used, true
}

// Neighbors returns the other processes on the GPU, for [device.Observer].
func (d *Device) Neighbors() []device.Neighbor {
	_, others := d.processes()
	neighbors := lists.Map(others, func(p nvml.Process) device.Neighbor { return device.Neighbor(p) })
	if unlisted := d.unlisted(others); unlisted > 0 {
		neighbors = append(neighbors, device.Neighbor{Used: unlisted, Computes: !d.timed})
	}
	return neighbors
}

// unlisted returns the bytes that were in use when the device was opened and belong to no listed process; zero if they
// are fewer than a context has, since then no process computes. On a GPU with a display they are the desktop's.
func (d *Device) unlisted(others []nvml.Process) int64 {
	left := d.baseline.Others
	for _, p := range others {
		if p.Used < 0 {
			return 0 // it may be all theirs
		}
		left -= p.Used
	}
	if left < d.typical {
		return 0
	}
	return left
}

// processes separates this process from the others on the GPU; own is nil if it cannot be identified. NVML lists
// processes by the host's IDs, so in a container own is the process that appeared when the context was made.
func (d *Device) processes() (own *nvml.Process, others []nvml.Process) {
	if d.watched == nil || d.strangers == nil {
		return nil, nil
	}
	all, err := d.watched.Processes()
	if err != nil {
		return nil, nil
	}
	i := slices.IndexFunc(all, func(p nvml.Process) bool { return p.PID == os.Getpid() })
	if i < 0 {
		i = slices.IndexFunc(all, func(p nvml.Process) bool { return !d.strangers[p.PID] })
	}
	if i < 0 {
		return nil, all
	}
	own = &nvml.Process{PID: all[i].PID, Name: all[i].Name, Used: all[i].Used, Computes: all[i].Computes}
	return own, slices.Delete(all, i, i+1)
}

var _ device.ClockReporter = (*Device)(nil)

// Clocks returns the GPU's clock rates, for [device.ClockReporter].
func (d *Device) Clocks() (device.Clocks, bool) {
	if d.watched == nil {
		return device.Clocks{}, false
	}
	c, err := d.watched.Clocks()
	if err != nil || c.SM == 0 {
		return device.Clocks{}, false
	}
	out := device.Clocks{SM: c.SM, Memory: c.Memory}
	for _, s := range c.Slowdowns {
		if s != nvml.Idle { // which it is since the queue has run empty
			out.Slowdowns = append(out.Slowdowns, string(s))
		}
	}
	return out, true
}
