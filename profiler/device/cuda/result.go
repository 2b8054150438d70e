package cuda

import (
	"fmt"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/profiler/allocator"
)

// A CallError is a call of the driver that failed.
type CallError struct {
	// Call is the name of the call, "cuMemAlloc", and Bytes what it was about, zero if nothing.
	Call  string
	Bytes int64
	// Code is the CUresult.
	Code int
}

func (e *CallError) Error() string {
	r, known := results[e.Code]
	if !known {
		r = result{name: fmt.Sprintf("CUDA error %d", e.Code), text: "unknown error"}
	}
	call := e.Call
	if e.Bytes > 0 {
		call += " of " + bytesize.Format(e.Bytes)
	}
	s := fmt.Sprintf("%s: %s (%s)", call, r.text, r.name)
	if r.remedy != "" {
		s += "; " + r.remedy
	}
	return s
}

// Is makes the driver's error for lack of memory an [allocator.ErrOutOfMemory], which the
// allocator takes for a result and not for a failure.
func (e *CallError) Is(target error) bool {
	return target == allocator.ErrOutOfMemory && e.Code == outOfMemory
}

// Lost reports whether the failure took the context with it: every later call fails too, until the context is released.
func (e *CallError) Lost() bool { return results[e.Code].lost }

// The results that code branches on, as in the CUresult of cuda.h.
const (
	invalidValue    = 1
	outOfMemory     = 2
	stubLibrary     = 34
	unavailable     = 46
	noDevice        = 100
	invalidDevice   = 101
	noBinary        = 209
	noCompiler      = 221
	newerPTX        = 222
	compilerOff     = 223
	operatingSystem = 304
	notPermitted    = 800
)

// A result is what is known of a CUresult.
type result struct {
	name, text, remedy string
	lost               bool
}

const (
	seeXid  = "the kernel log has the cause as an Xid (dmesg | grep -i xid)"
	reboot  = "reset the GPU (nvidia-smi --gpu-reset) or restart the machine"
	ourBug  = "this is a bug of vprof, please report it"
	restart = "restart the machine, or load the kernel module that belongs to the library"
)

// results holds the results that a driver can be expected to return, from the documentation of CUresult.
var results = map[int]result{
	invalidValue:  {"CUDA_ERROR_INVALID_VALUE", "invalid argument", ourBug, false},
	outOfMemory:   {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory", "", false},
	3:             {"CUDA_ERROR_NOT_INITIALIZED", "driver not initialized", ourBug, false},
	4:             {"CUDA_ERROR_DEINITIALIZED", "driver shutting down", "", true},
	stubLibrary:   {"CUDA_ERROR_STUB_LIBRARY", "the library is the toolkit's stub, not a driver", "", false},
	36:            {"CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "the driver is too old for the call", "", false},
	unavailable:   {"CUDA_ERROR_DEVICE_UNAVAILABLE", "device busy or unavailable", "", false},
	noDevice:      {"CUDA_ERROR_NO_DEVICE", "no CUDA device", "", false},
	invalidDevice: {"CUDA_ERROR_INVALID_DEVICE", "invalid device", "", false},
	102:           {"CUDA_ERROR_DEVICE_NOT_LICENSED", "no license for the virtual GPU", "", false},
	200:           {"CUDA_ERROR_INVALID_IMAGE", "invalid kernel image", ourBug, false},
	201:           {"CUDA_ERROR_INVALID_CONTEXT", "no context on this thread", ourBug, false},
	205:           {"CUDA_ERROR_MAP_FAILED", "mapping failed", "", false},
	206:           {"CUDA_ERROR_UNMAP_FAILED", "unmapping failed", "", false},
	208:           {"CUDA_ERROR_ALREADY_MAPPED", "mapped already", ourBug, false},
	noBinary: {
		"CUDA_ERROR_NO_BINARY_FOR_GPU", "the driver does not compile the kernels for this GPU",
		"install the newest driver, and unset CUDA_DISABLE_PTX_JIT", false,
	},
	214: {"CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable memory error", seeXid + "; " + reboot, true},
	218: {"CUDA_ERROR_INVALID_PTX", "the driver's compiler refuses the kernels", ourBug, false},
	220: {"CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error", seeXid + "; " + reboot, true},
	noCompiler: {
		"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "the driver's PTX compiler is missing",
		"install its libnvidia-ptxjitcompiler.so.1; containers need the capability \"compute\"", false,
	},
	newerPTX: {
		"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the driver is too old for the kernels",
		"install driver " + driverOf + " or newer", false,
	},
	compilerOff: {
		"CUDA_ERROR_JIT_COMPILATION_DISABLED", "compiling kernels is turned off",
		"unset CUDA_DISABLE_PTX_JIT", false,
	},
	302: {
		"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "the driver is too old: it lacks the call",
		"install driver " + driverOf + " or newer", false,
	},
	303: {"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "the driver library is not loaded", ourBug, false},
	operatingSystem: {
		"CUDA_ERROR_OPERATING_SYSTEM", "the operating system refuses",
		"see whether /dev/nvidia* can be read and written", false,
	},
	400: {"CUDA_ERROR_INVALID_HANDLE", "invalid handle", ourBug, false},
	500: {"CUDA_ERROR_NOT_FOUND", "not found", "", false},
	600: {"CUDA_ERROR_NOT_READY", "not ready", "", false},
	700: {"CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel touched memory that is not its own", ourBug, true},
	701: {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources for a launch", ourBug, false},
	702: {
		"CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel ran longer than the display driver allows",
		"use a GPU without a display, or a smaller batch", true,
	},
	714:          {"CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error", seeXid, true},
	715:          {"CUDA_ERROR_ILLEGAL_INSTRUCTION", "illegal instruction", seeXid, true},
	716:          {"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address in a kernel", ourBug, true},
	717:          {"CUDA_ERROR_INVALID_ADDRESS_SPACE", "invalid address space in a kernel", ourBug, true},
	718:          {"CUDA_ERROR_INVALID_PC", "invalid program counter", seeXid, true},
	719:          {"CUDA_ERROR_LAUNCH_FAILED", "a kernel failed", seeXid, true},
	notPermitted: {"CUDA_ERROR_NOT_PERMITTED", "not permitted", "", false},
	801:          {"CUDA_ERROR_NOT_SUPPORTED", "not supported", "", false},
	802: {
		"CUDA_ERROR_SYSTEM_NOT_READY", "the system is not ready",
		"start nvidia-fabricmanager, or wait for it", false,
	},
	803: {
		"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "the driver library and the kernel module differ in version",
		restart, false,
	},
	804: {
		"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "the compatibility library does not support this GPU",
		"take the cuda-compat library off the library path", false,
	},
	999: {"CUDA_ERROR_UNKNOWN", "unknown error", seeXid, true},
}
