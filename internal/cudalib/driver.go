//go:build cuda && linux && cgo

package cudalib

/*
#include <cuda.h>

// Memory of one device, and access to it from that device.
static CUmemAllocationProp pinned(int device) {
	CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
	p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	p.location.id = device;
	return p;
}

static CUresult vprof_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, int device) {
	CUmemAllocationProp p = pinned(device);
	return cuMemCreate(handle, size, &p, 0);
}

static CUresult vprof_cuMemSetAccess(CUdeviceptr at, size_t size, int device) {
	CUmemAccessDesc d = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	d.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	d.location.id = device;
	return cuMemSetAccess(at, size, &d, 1);
}
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// A Result is a failure of a driver call: a CUresult other than success.
type Result int

func result[T ~int32 | ~uint32](r T) error {
	if r == 0 {
		return nil
	}
	return Result(r)
}

// Error returns only the number: callers describe the results of their calls.
func (r Result) Error() string { return fmt.Sprintf("CUDA error %d", int(r)) }

// A Handle is physical memory that can be mapped: CUmemGenericAllocationHandle.
type Handle uint64

// Create makes physical memory of size bytes, a multiple of the granule of 2 MiB, on a device: cuMemCreate.
func Create(size int64, device int) (Handle, error) {
	var h C.CUmemGenericAllocationHandle
	err := result(C.vprof_cuMemCreate(&h, C.size_t(size), C.int(device)))
	return Handle(h), err
}

// ReleaseHandle frees physical memory once it is no longer mapped: cuMemRelease.
func ReleaseHandle(h Handle) error { return result(C.cuMemRelease(C.CUmemGenericAllocationHandle(h))) }

// ReserveAddresses reserves a range of size bytes: cuMemAddressReserve.
func ReserveAddresses(size int64) (uint64, error) {
	var at C.CUdeviceptr
	err := result(C.cuMemAddressReserve(&at, C.size_t(size), 0, 0, 0))
	return uint64(at), err
}

// FreeAddresses frees a range: cuMemAddressFree.
func FreeAddresses(at uint64, size int64) error {
	return result(C.cuMemAddressFree(C.CUdeviceptr(at), C.size_t(size)))
}

// Map maps physical memory at addresses: cuMemMap.
func Map(at uint64, size int64, h Handle) error {
	return result(C.cuMemMap(C.CUdeviceptr(at), C.size_t(size), 0, C.CUmemGenericAllocationHandle(h), 0))
}

// Unmap unmaps the memory at addresses: cuMemUnmap.
func Unmap(at uint64, size int64) error {
	return result(C.cuMemUnmap(C.CUdeviceptr(at), C.size_t(size)))
}

// SetAccess lets a device read and write mapped addresses: cuMemSetAccess.
func SetAccess(at uint64, size int64, device int) error {
	return result(C.vprof_cuMemSetAccess(C.CUdeviceptr(at), C.size_t(size), C.int(device)))
}

// UUID returns the UUID of a device, or of its MIG slice, as in "b2f1a3c0-...": cuDeviceGetUuid_v2. Package cu calls an
// older function, which does not support slices.
func UUID(device int) (string, error) {
	var u C.CUuuid
	err := result(C.cuDeviceGetUuid_v2(&u, C.CUdevice(device)))
	id := C.GoBytes(unsafe.Pointer(&u), C.int(unsafe.Sizeof(u)))
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]), err
}
