package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/cuda"
	"github.com/vprof/vprof/profiler/device/nvml"
	"github.com/vprof/vprof/profiler/device/sim"
)

// namedDevice opens a job's device on this machine by its name. Until it is closed, the goroutine is its only user.
func (a *app) namedDevice(name string) (device.Device, error) {
	named, err := parseDevice(name)
	if err != nil {
		return nil, err
	}
	return a.openGPU(named.index)
}

// firstDevice opens the first usable GPU or, without one, the default simulated GPU. It also returns a warning with the
// reason why a GPU of this machine was not used; nil without one.
func (a *app) firstDevice() (device.Device, *report.Warning, error) {
	d, err := a.openGPU(0)
	if unusable, ok := errors.AsType[*device.UnusableError](err); ok {
		gpu, err := device.Lookup(defaultGPU)
		if err != nil {
			return nil, nil, err
		}
		simulated, err := sim.New(gpu, 0)
		return simulated, a.warnUnusableGPU(unusable), err
	}
	if err == nil {
		if others := computeProcesses(d); len(others) > 0 {
			return nil, nil, errors.Join(usagef("%s is used by %v; choose the GPU with --device %s to run next to "+
				"that process (--leave sets the memory to keep free, default 1GiB), or simulate one with --device "+
				"sim:NAME", d.Name(), others[0], d.Name()), d.Close())
		}
	}
	return d, nil, err
}

// warnUnusableGPU returns the warning about a GPU of this machine that cannot be used; nil without one. It also
// prints the warning, since a table of a simulated GPU looks the same.
func (a *app) warnUnusableGPU(why *device.UnusableError) *report.Warning {
	if cuda.DeviceFile(a.deviceFolder) == "" {
		return nil
	}
	reason := *why
	reason.Remedy = ""
	w := &report.Warning{What: "this machine's GPU was not used: " + strings.TrimPrefix(reason.Error(),
		reason.Device+": "), Hint: why.Remedy}
	printable.Fprintf(a.stderr, "vprof: %s\n", w)
	return w
}

// detectGPU finds a GPU of this machine with the driver or, in builds without CUDA, with NVML.
func detectGPU(index int) (localGPU, error) {
	d, err := cuda.Open(index)
	if err == nil {
		found := localGPU{d.GPU(), d.Baseline().Others}
		return found, d.Close()
	}
	if !cuda.Built {
		if found, err := detectByNVML(index); err == nil {
			return found, nil
		}
	}
	return localGPU{}, noGPUError{err.Error(), simulateHint}
}

// detectByNVML finds a GPU by its number among NVML's GPUs without those hidden by CUDA_VISIBLE_DEVICES.
func detectByNVML(index int) (localGPU, error) {
	library, err := nvml.Open()
	if err != nil {
		return localGPU{}, err
	}
	defer library.Close()
	gpus, err := library.Visible(os.Getenv("CUDA_VISIBLE_DEVICES"))
	if err != nil {
		return localGPU{}, err
	}
	if index >= len(gpus) {
		return localGPU{}, fmt.Errorf("there is no such GPU: %d are visible (CUDA_VISIBLE_DEVICES)", len(gpus))
	}
	m, err := gpus[index].Memory()
	if err != nil {
		return localGPU{}, err
	}
	gpu, err := device.Identify(gpus[index].Name, m.Total-m.Reserved)
	if err != nil {
		return localGPU{}, err
	}
	if m.Reserved > 0 {
		gpu.Memory = m.Total - m.Reserved
	}
	return localGPU{gpu, m.UsedByProcesses(gpu.Memory)}, nil
}
