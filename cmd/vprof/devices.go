package main

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

// namedDevice opens the device of a job on this machine by its name. Close gives it back;
// until then the goroutine is its only user.
func (a *app) namedDevice(name string) (device.Device, error) {
	named, err := parseDevice(name)
	if err != nil {
		return nil, err
	}
	return a.openGPU(named.index)
}

// firstDevice opens the first GPU, or, where none can be used, the default GPU: with it
// comes why a GPU that is there was left out, nil if there is none.
func (a *app) firstDevice() (device.Device, *report.Warning, error) {
	d, err := a.openGPU(0)
	if unusable, ok := errors.AsType[*device.UnusableError](err); ok {
		gpu, err := device.Lookup(defaultGPU)
		if err != nil {
			return nil, nil, err
		}
		simulated, err := sim.New(gpu, 0)
		return simulated, a.unused(unusable), err
	}
	if err == nil {
		if others := computing(d); len(others) > 0 {
			return nil, nil, errors.Join(usagef("%s is used by %v; name it with --device %s to run beside that "+
				"(--leave says how much memory stays free, 1GiB unless given), or simulate a GPU with --device "+
				"sim:NAME",
				d.Name(), others[0], d.Name()), d.Close())
		}
	}
	return d, nil, err
}

// unused returns what a report says of a GPU that is here and cannot be used, nil if there is
// none. It also goes to standard error, since a table of a simulated GPU looks the same.
func (a *app) unused(why *device.UnusableError) *report.Warning {
	if cuda.Present(a.dev) == "" {
		return nil
	}
	reason := *why
	reason.Remedy = ""
	w := &report.Warning{What: "a GPU is here and was not used: " + strings.TrimPrefix(reason.Error(),
		reason.Device+": "), Hint: why.Remedy}
	printable.Fprintf(a.stderr, "vprof: %s\n", w)
	return w
}

// detectGPU finds a GPU of this machine: by the driver, or, where this vprof
// cannot drive one, by what NVML says of it.
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
	return localGPU{}, noGPUError{err.Error(), instead}
}

// detectBoard finds a GPU by its number among those that NVML lists and CUDA_VISIBLE_DEVICES
// does not hide.
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
		return localGPU{}, fmt.Errorf("NVML lists %d GPUs that CUDA_VISIBLE_DEVICES leaves", len(gpus))
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
	return localGPU{gpu, m.Held(gpu.Memory)}, nil
}
