//go:build cuda && linux && cgo

package cuda

import (
	"os"
	"regexp"
	"time"

	"gorgonia.org/cu"

	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// wslNode exists under WSL2, whose driver allocates host memory once the GPU's is full, so that an allocation never
// fails. Tests replace it.
var wslNode = "/dev/dxg"

// virtualMemory is CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: old GPUs, vGPUs and some of WSL2 lack it.
const virtualMemory cu.DeviceAttribute = 102

// hostShare is the divisor for the share of memory that stays free on a GPU that shares the host's memory: without free
// memory the machine hangs.
const hostShare = 8

// displayShare is the memory that stays free on a GPU with a display by default: a desktop without memory for its next
// window crashes, and the step with it.
const displayShare = 512 << 20

// limits reads the size of the GPU's memory and whether kernels have a time limit.
func (d *Device) limits() error {
	_, err := os.Stat(wslNode)
	d.spills = err == nil
	integrated, err := d.id.Attribute(cu.Integrated)
	if err != nil {
		return failure("cuDeviceGetAttribute", 0, err)
	}
	if integrated != 0 {
		d.gpu.UnifiedMemory, d.hosts = true, d.gpu.Memory/hostShare
		d.leave = d.hosts
	}
	timed, err := d.id.Attribute(cu.KernelExecTimeout)
	if err != nil {
		return failure("cuDeviceGetAttribute", 0, err)
	}
	d.timed = timed != 0 || d.spills
	if d.timed {
		d.leave = max(d.leave, min(displayShare, d.gpu.Memory/hostShare))
	}
	pageable, err := d.id.Attribute(virtualMemory)
	d.pageable = err == nil && pageable != 0
	return nil
}

// A GPU that drives a display ends kernels after two seconds on Windows and a few more on Linux. No launch has more
// operations than the GPU's peak rate computes in shortLaunch, so that it takes a second at a twentieth of that rate.
const shortLaunch = 50 * time.Millisecond

// mostUnknown is the number of operations that the slowest supported GPUs compute in shortLaunch. It limits launches on
// GPUs of unknown rates.
const mostUnknown = 50e9

// most returns the largest number of operations of one launch in a precision, zero if there is no limit.
func (d *Device) most(p program.Precision) int64 {
	if !d.timed {
		return 0
	}
	if rate := d.gpu.Peak.ForPrecision(p); rate > 0 {
		return int64(rate * shortLaunch.Seconds())
	}
	return mostUnknown
}

// multiProcess is CU_DEVICE_ATTRIBUTE_MPS_ENABLED, which older drivers do not have.
const multiProcess cu.DeviceAttribute = 133

// virtual are the names of parts of a GPU that a hypervisor hands out: the product,
// the GB of memory and the series (NVIDIA's documentation of vGPU types).
var virtual = regexp.MustCompile(`-\d+[ABCQ]$`)

var _ device.SharingReporter = (*Device)(nil)

// SharingSoftware returns a sentence for each software that shares the GPU (MPS, vGPU).
func (d *Device) SharingSoftware() []string {
	var ways []string
	if mps, err := d.id.Attribute(multiProcess); err == nil && mps != 0 {
		ways = append(ways,
			d.name+" is shared through MPS: its server limits what a client may take, and what clients take counts "+
				"as others' memory")
	}
	if virtual.MatchString(d.gpu.Product) {
		ways = append(ways,
			d.name+" is a vGPU: the hypervisor gives it a part of a GPU's memory, and others' work slows it")
	}
	return ways
}

var _ device.Limiter = (*Device)(nil)

// LeaveFree implements [device.Limiter]. A GPU that shares the host's memory leaves an eighth of it in any case.
func (d *Device) LeaveFree(bytes int64) { d.leave = max(d.hosts, bytes) }

// FreeLimit returns the number of bytes that must stay free, for [device.Limiter].
func (d *Device) FreeLimit() int64 { return d.leave }

// room returns the driver's out-of-memory error unless size more bytes are available.
func (d *Device) room(call string, size int64) error {
	if d.leave == 0 && !d.spills {
		return nil
	}
	free, err := d.AvailableBytes()
	if err == nil && free-size < d.leave {
		err = &CallError{Call: call, Bytes: size, Code: outOfMemory}
	}
	return err
}
