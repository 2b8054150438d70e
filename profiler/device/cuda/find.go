//go:build cuda && linux && cgo

package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gorgonia.org/cu"

	"github.com/vprof/vprof/internal/cudalib"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
)

// all is the device's name in errors that concern no single GPU.
const all = "cuda"

// required are the symbols that a driver must have; those for expandable segments among them, since every driver that
// speaks the needed version of CUDA has them.
var required = []string{
	"cuDevicePrimaryCtxRetain", "cuMemAlloc_v2", "cuMemGetInfo_v2", "cuModuleLoadDataEx", "cuLaunchKernel",
	"cuEventElapsedTime", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemAddressReserve",
}

// start loads and initializes the driver and checks that it is new enough.
func start() error {
	if err := cudalib.Load(); err != nil {
		return loadError(err)
	}
	// The version can be asked before cuInit, which an old driver may refuse with a less helpful error.
	if v := cu.Version(); v > 0 && v < needed {
		return &device.UnusableError{
			Device: all,
			Reason: fmt.Sprintf("the driver is too old: it speaks CUDA %s, the kernels need %s", cudaVersion(v),
				cudaVersion(needed)),
			Remedy: "install driver " + driverOf + " or newer",
		}
	}
	// All kernels are loaded before the first segment is allocated, so that their memory does not count as the
	// program's. The driver reads this variable at initialization; commands that vprof starts get the default.
	const loading = "CUDA_MODULE_LOADING"
	if os.Getenv(loading) == "" {
		if err := os.Setenv(loading, "EAGER"); err != nil {
			return err
		}
		defer os.Unsetenv(loading)
	}
	if err := cudalib.Open(); err != nil {
		return initError(failure("cuInit", 0, err))
	}
	if missing := cudalib.Missing(required...); len(missing) > 0 {
		return &device.UnusableError{
			Device: all,
			Reason: "the driver is too old: it lacks " + strings.Join(missing, ", "),
			Remedy: "install driver " + driverOf + " or newer",
		}
	}
	return nil
}

func cudaVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// loadError reports why there is no driver library.
func loadError(err error) error {
	u := &device.UnusableError{
		Device: all, Reason: "no NVIDIA driver",
		Remedy: "install NVIDIA's driver; in a container, start it with the GPUs (--gpus all)",
	}
	var load *cudalib.LoadError
	switch {
	case !errors.As(err, &load):
	case strings.Contains(load.Reason, "ermission denied"):
		u.Reason, u.Remedy = "the driver library cannot be read", "see that this user may read it"
	case strings.Contains(load.Reason, "annot allocate memory"), strings.Contains(load.Reason, "failed to map segment"):
		u.Reason, u.Remedy = "there is not enough host memory to load the driver",
			"raise the memory limit of this process or container"
	case strings.Contains(load.Reason, "ELF"), strings.Contains(load.Reason, "file too short"):
		u.Reason, u.Remedy = "the driver library is damaged or for another processor", "install NVIDIA's driver again"
	}
	u.Err = err
	return u
}

// initError reports why the driver does not start.
func initError(err error) error {
	u := &device.UnusableError{Device: all, Reason: "the driver does not start", Err: err}
	var c *CallError
	if !errors.As(err, &c) {
		return u
	}
	switch c.Code {
	case noDevice:
		u.Reason, u.Err = "the driver shows no GPU", nil
		u.Remedy = "see nvidia-smi, and whether CUDA_VISIBLE_DEVICES hides it; a GPU in MIG mode needs slices " +
			"(nvidia-smi mig -cgi)"
		if denied := denied(openNode); denied != "" {
			u.Reason = "no permission to use " + denied
			u.Remedy = "add the user to the group of the file, or start the container with the GPUs"
		}
	case notPermitted, operatingSystem:
		u.Reason = "no permission to use the GPU"
		u.Remedy = "see whether this user can read and write /dev/nvidia*"
	case outOfMemory:
		u.Reason = "there is not enough host memory for the driver"
		u.Remedy = "raise the memory limit of this process or container"
	}
	return u
}

func find(index int) (cu.Device, error) {
	if err := start(); err != nil {
		return 0, err
	}
	n, err := cu.NumDevices()
	if err != nil {
		return 0, failure("cuDeviceGetCount", 0, err)
	}
	if n == 0 {
		return 0, initError(&CallError{Call: "cuInit", Code: noDevice})
	}
	if index < 0 || index >= n {
		return 0, &device.UnusableError{
			Device: fmt.Sprintf("cuda:%d", index),
			Reason: "there is no such GPU",
			Remedy: "there are " + listed(n),
		}
	}
	id, err := cu.GetDevice(index)
	return id, failure("cuDeviceGet", 0, err)
}

// nodes are the files of GPUs, controlNode that through which the driver is reached.
const (
	nodes       = "/dev/nvidia[0-9]*"
	controlNode = "/dev/nvidiactl"
)

// denied returns the first of the driver's files that this user may not open; empty if there is none.
func denied(open func(file string) error) string {
	files, _ := filepath.Glob(nodes) // the pattern is well-formed
	for _, file := range append(files, controlNode) {
		if errors.Is(open(file), os.ErrPermission) {
			return file
		}
	}
	return ""
}

// openNode tries to open a file of the driver as the driver does.
func openNode(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// listed names the first n devices.
func listed(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("cuda:%d", i)
		if id, err := cu.GetDevice(i); err == nil {
			if name, err := id.Name(); err == nil {
				names[i] += " (" + name + ")"
			}
		}
	}
	return strings.Join(names, ", ")
}

// contextError reports why a context could not be made.
func (d *Device) contextError(err error) error {
	u := &device.UnusableError{Device: d.name, Reason: "no context can be made", Err: err}
	mode, modeErr := d.id.Attribute(cu.ComputeMode)
	var c *CallError
	switch {
	case !errors.As(err, &c):
	case modeErr == nil && mode == computeProhibited:
		u.Reason, u.Err = "the GPU is in prohibited mode", nil
		u.Remedy = "allow contexts with nvidia-smi -c DEFAULT"
	case modeErr == nil && mode == computeExclusive && (c.Code == unavailable || c.Code == invalidDevice):
		u.Reason, u.Err = "the GPU is in exclusive mode and another process uses it", nil
		u.Remedy = "wait for that process, or share the GPU with nvidia-smi -c DEFAULT"
	case errors.Is(err, allocator.ErrOutOfMemory):
		u.Reason, u.Err = "the GPU has no room for a context", nil
		u.Remedy = "other processes fill it (see nvidia-smi)"
	}
	return u
}

// The compute modes of CU_DEVICE_ATTRIBUTE_COMPUTE_MODE.
const (
	computeProhibited = 2
	computeExclusive  = 3
)

// describe returns the GPU as the driver reports it. Missing values, mainly rates, come from the catalog.
func describe(id cu.Device) (device.GPU, error) {
	name, err := id.Name()
	if err != nil {
		return device.GPU{}, failure("cuDeviceGetName", 0, err)
	}
	memory, err := id.TotalMem()
	if err != nil {
		return device.GPU{}, failure("cuDeviceTotalMem", 0, err)
	}
	gpu, err := device.Identify(name, memory)
	if err != nil {
		gpu = device.GPU{Name: folded(name), Source: "the driver"}
	}
	gpu.Product, gpu.Memory = name, memory
	var major, minor, kilohertz int
	for _, a := range []struct {
		attribute cu.DeviceAttribute
		to        *int
	}{
		{cu.ComputeCapabilityMajor, &major},
		{cu.ComputeCapabilityMinor, &minor},
		{cu.MultiprocessorCount, &gpu.SMs},
		{cu.MaxThreadsPerMultiprocessor, &gpu.ThreadsPerSM},
		{cu.ClockRate, &kilohertz},
	} {
		if *a.to, err = id.Attribute(a.attribute); err != nil {
			return gpu, failure("cuDeviceGetAttribute", 0, err)
		}
	}
	gpu.Capability = device.Capability(10*major + minor)
	gpu.BoostMHz = cmp.Or(gpu.BoostMHz, kilohertz/1000)
	if gpu.Generation == "" {
		gpu.Generation = "compute capability " + gpu.Capability.String()
	}
	return gpu, nil
}

// folded makes a name for a GPU that the catalog does not know.
func folded(product string) string {
	name := strings.ToLower(strings.TrimPrefix(product, "NVIDIA "))
	return strings.Join(strings.FieldsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.'
	}), "-")
}
