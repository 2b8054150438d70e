//go:build cuda && linux && cgo

package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"time"

	"gorgonia.org/cu"

	"github.com/vprof/vprof/internal/cudalib"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/nvml"
)

// Built reports whether the binary can drive a GPU.
const Built = true

// A Device is a GPU with a context of its own and one stream.
type Device struct {
	name    string
	gpu     device.GPU
	driver  device.Driver
	id      cu.Device
	context cu.CUContext
	stream  cu.Stream
	work    *workload
	// identity identifies the GPU, by the driver and NVML.
	identity device.Identity

	// segments, ranges and pages hold the sizes of memory to release, by address.
	segments, ranges, pages map[uint64]int64
	// events are all CUDA events that the device created, idle those not in use.
	events, idle []cu.Event

	// watched is the GPU in NVML; nil if NVML does not list it.
	watched *nvml.GPU
	// typical is the expected size of a context, in bytes.
	typical  int64
	baseline device.Baseline
	// strangers are the IDs of the processes that used the GPU before this one did.
	strangers map[int]bool

	// runs reports whether the driver really runs kernels, which the method prove tests.
	runs bool
	// floor is the least possible time of all launches so far.
	floor time.Duration

	// leave is the memory to leave free for other processes; hosts is the part of it that the host needs; spills
	// reports whether the driver allocates beyond the GPU's memory: see room.
	leave, hosts int64
	spills       bool
	// timed reports whether kernels have a time limit, which [Device.most] keeps.
	timed bool
	// pageable reports whether memory can be mapped page by page.
	pageable bool

	// queued reports whether work may be pending.
	queued bool
	// lost is the error that destroyed the context, nil while the context works.
	lost    error
	closing bool
	undo    []func() error
}

var _ device.Device = (*Device)(nil)

// Open opens the GPU with an index among the GPUs that the driver shows, in its order and after CUDA_VISIBLE_DEVICES. A
// GPU that cannot be used is a [*device.UnusableError]. The goroutine stays on its thread until Close, and is the only
// one that may use the device.
func Open(index int) (*Device, error) {
	d := &Device{
		name:     fmt.Sprintf("cuda:%d", index),
		segments: map[uint64]int64{}, ranges: map[uint64]int64{}, pages: map[uint64]int64{},
	}
	runtime.LockOSThread()
	d.defers(func() error { runtime.UnlockOSThread(); return nil })
	if err := d.open(index); err != nil {
		// Only the first error is returned; errors of closing follow from it.
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

func (d *Device) open(index int) error {
	id, err := find(index)
	if err != nil {
		return err
	}
	d.id = id
	if d.gpu, err = describe(id); err != nil {
		return err
	}
	d.typical = typicalContext(d.gpu)
	d.driver.CUDA = cudaVersion(cu.Version())
	if err := d.limits(); err != nil {
		return err
	}
	before := d.observe()
	if err := d.makeContext(); err != nil {
		return err
	}
	if err := d.sizeContext(before); err != nil {
		return err
	}
	if d.stream, err = cu.MakeStream(cu.DefaultStream); err != nil {
		return d.check("cuStreamCreate", 0, err)
	}
	d.defers(func() error { return d.check("cuStreamDestroy", 0, d.stream.Destroy()) })
	if d.work, err = d.load(); err != nil {
		return err
	}
	if err := d.prove(); err != nil {
		return err
	}
	if err := d.warmUp(); err != nil {
		return err
	}
	used, err := d.used()
	d.baseline.Kernels = max(0, used-d.baseline.Total())
	return err
}

// makeContext makes the primary context, which is the one that PyTorch uses too, and makes it current.
func (d *Device) makeContext() error {
	var err error
	if d.context, err = d.id.RetainPrimaryCtx(); err != nil {
		return d.contextError(d.check("cuDevicePrimaryCtxRetain", 0, err))
	}
	d.defers(func() error {
		// Even a lost context is released, and with it all that it held.
		return failure("cuDevicePrimaryCtxRelease", 0, d.id.ReleasePrimaryCtx())
	})
	if err := cu.SetCurrentContext(d.context); err != nil {
		return d.check("cuCtxSetCurrent", 0, err)
	}
	d.defers(func() error { return d.check("cuCtxSetCurrent", 0, cu.SetCurrentContext(cu.CUContext{})) })
	return nil
}

// defers registers f for Close, which calls it before the functions registered earlier.
func (d *Device) defers(f func() error) { d.undo = append(d.undo, f) }

// Close implements [device.Device]. If a failure has destroyed the context, releasing it frees everything, so Close
// does nothing else.
func (d *Device) Close() error {
	var errs []error
	if d.lost == nil {
		errs = append(errs, d.giveBack())
	}
	d.closing = true
	for len(d.undo) > 0 {
		last := len(d.undo) - 1
		errs = append(errs, d.undo[last]())
		d.undo = d.undo[:last]
	}
	return errors.Join(errs...)
}

// giveBack frees the memory that the user of the device has not freed.
func (d *Device) giveBack() error {
	var errs []error
	for _, e := range d.events {
		errs = append(errs, d.check("cuEventDestroy", 0, cu.DestroyEvent(&e)))
	}
	d.events, d.idle = nil, nil
	for addr, size := range d.pages {
		errs = append(errs, d.Unmap(addr, size))
	}
	for addr, size := range d.ranges {
		errs = append(errs, d.Release(addr, size))
	}
	for addr, size := range d.segments {
		errs = append(errs, d.Put(addr, size))
	}
	return d.join(errs...)
}

// Name returns the device's name, for [device.Device].
func (d *Device) Name() string { return d.name }

// GPU returns the GPU's properties, for [device.Device].
func (d *Device) GPU() device.GPU { return d.gpu }

// check converts the error of a driver call to a [*CallError], and records whether the context was destroyed. Once it
// is, every call fails with that error, except calls of Close, which succeed.
func (d *Device) check(call string, bytes int64, err error) error {
	switch {
	case err == nil, d.lost != nil && d.closing:
		return nil
	case d.lost != nil:
		return d.lost
	}
	err = failure(call, bytes, err)
	if c, ok := errors.AsType[*CallError](err); ok && c.Lost() {
		d.lost = err
	}
	return err
}

// join joins errors. Once the context is destroyed they are all the same, and join returns the first.
func (d *Device) join(errs ...error) error {
	if d.lost != nil {
		return cmp.Or(errs...)
	}
	return errors.Join(errs...)
}

// failure converts an error of package cu or cudalib to a [*CallError].
func failure(call string, bytes int64, err error) error {
	if err == nil {
		return nil
	}
	// cu does not export its type of a CUresult.
	if v := reflect.ValueOf(err); v.Kind() == reflect.Int {
		return &CallError{Call: call, Bytes: bytes, Code: int(v.Int())}
	}
	return fmt.Errorf("%s: %w", call, err)
}

// Total returns the GPU's memory in bytes, for [allocator.Source].
func (d *Device) Total() int64 { return d.gpu.Memory }

// AvailableBytes returns the free memory in bytes, for [device.Device].
func (d *Device) AvailableBytes() (int64, error) {
	free, _, err := cu.MemInfo()
	return free, d.check("cuMemGetInfo", 0, err)
}

// Get allocates a segment of device memory, for [allocator.Source].
func (d *Device) Get(size int64) (uint64, error) {
	if err := d.room("cuMemAlloc", size); err != nil {
		return 0, err
	}
	addr, err := cu.MemAlloc(size)
	if err != nil {
		return 0, d.check("cuMemAlloc", size, err)
	}
	d.segments[uint64(addr)] = size
	return uint64(addr), nil
}

// Put frees a segment, for [allocator.Source].
func (d *Device) Put(addr uint64, size int64) error {
	if err := d.drain(); err != nil {
		return err
	}
	return d.gone(d.segments, addr, d.check("cuMemFree", size, cu.MemFree(cu.DevicePtr(addr))))
}

// Reserve reserves a range of addresses, for [allocator.PagedSource].
func (d *Device) Reserve(size int64) (uint64, error) {
	if !d.pageable {
		return 0, &device.UnusableError{
			Device: d.name, Reason: "it cannot map memory page by page, as expandable segments do",
			Remedy: "leave expandable_segments away, as PyTorch has to on it",
		}
	}
	addr, err := cudalib.ReserveAddresses(size)
	if err != nil {
		return 0, d.check("cuMemAddressReserve", size, err)
	}
	d.ranges[addr] = size
	return addr, nil
}

// Map maps memory into a reserved range, for [allocator.PagedSource].
func (d *Device) Map(addr uint64, size int64) error {
	if err := d.room("cuMemCreate", size); err != nil {
		return err
	}
	h, err := cudalib.Create(size, int(d.id))
	if err != nil {
		return d.check("cuMemCreate", size, err)
	}
	err = d.check("cuMemMap", size, cudalib.Map(addr, size, h))
	// A mapped handle's memory is released with its mapping, an unmapped one's now.
	if release := d.check("cuMemRelease", size, cudalib.ReleaseHandle(h)); err != nil {
		return err
	} else if release != nil {
		return d.join(release, d.check("cuMemUnmap", size, cudalib.Unmap(addr, size)))
	}
	if err := d.check("cuMemSetAccess", size, cudalib.SetAccess(addr, size, int(d.id))); err != nil {
		return d.join(err, d.check("cuMemUnmap", size, cudalib.Unmap(addr, size)))
	}
	d.pages[addr] = size
	return nil
}

// Unmap unmaps memory of a reserved range, for [allocator.PagedSource].
func (d *Device) Unmap(addr uint64, size int64) error {
	if err := d.drain(); err != nil {
		return err
	}
	return d.gone(d.pages, addr, d.check("cuMemUnmap", size, cudalib.Unmap(addr, size)))
}

// Release implements [allocator.PagedSource]. It first unmaps pages that a failure has left in the range.
func (d *Device) Release(addr uint64, size int64) error {
	for page, bytes := range d.pages {
		if page >= addr && page < addr+uint64(size) {
			if err := d.Unmap(page, bytes); err != nil {
				return err
			}
		}
	}
	return d.gone(d.ranges, addr, d.check("cuMemAddressFree", size, cudalib.FreeAddresses(addr, size)))
}

// gone forgets the allocation at an address unless freeing it failed. A destroyed context has freed all memory, so then
// an error is ignored.
func (d *Device) gone(from map[uint64]int64, addr uint64, err error) error {
	if d.lost != nil {
		err = nil
	}
	if err == nil {
		delete(from, addr)
	}
	return err
}

// drain waits for queued work that may still use memory that is about to be freed.
func (d *Device) drain() error {
	if !d.queued || d.lost != nil {
		return nil
	}
	return d.Synchronize()
}
