package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/job"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/cuda"
	"github.com/vprof/vprof/profiler/device/nvml"
	"github.com/vprof/vprof/profiler/device/sim"
)

// deviceFlags are the flags that choose the device of a sweep: a real GPU or a simulated
// board.
type deviceFlags struct {
	name  string
	board boardFlags
}

func (f *deviceFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "device", "",
		"`device` to run on: cuda:0, or sim:NAME for a simulated board (default: the first GPU if this vprof can "+
			"use it, else sim:"+defaultGPU+")")
	f.board.register(cmd, "simulate this `board`, as --device sim:NAME does (see vprof gpus)")
	complete(cmd, "device", deviceNames)
}

// deviceNames are what --device may be, as far as it is known without looking.
func deviceNames() []string {
	names := []string{"cuda:0"}
	for _, name := range device.Names() {
		names = append(names, "sim:"+name)
	}
	return names
}

// A deviceName is the parsed value of --device.
type deviceName struct {
	// real tells a GPU of this machine, by its index, from a simulated board,
	// by its name.
	real  bool
	index int
	board string
}

// parseDevice reads cuda, cuda:N, sim or sim:NAME. The error is a usage error.
func parseDevice(text string) (deviceName, error) {
	kind, which, given := strings.Cut(strings.ToLower(text), ":")
	switch {
	case kind == "cuda" && !given:
		return deviceName{real: true}, nil
	case kind == "cuda":
		index, err := strconv.Atoi(which)
		if err != nil || index < 0 {
			return deviceName{}, usagef("--device: %q is not the number of a GPU; use cuda:0 for the first", which)
		}
		return deviceName{real: true, index: index}, nil
	case kind == "sim" && !given:
		return deviceName{board: defaultGPU}, nil
	case kind == "sim":
		_, err := device.Lookup(which)
		return deviceName{board: which}, err
	}
	return deviceName{}, usagef("--device: %q is neither cuda:N nor sim:NAME (list boards with \"vprof gpus\")", text)
}

// target is the job target that the flags choose. The error is a usage error.
func (f *deviceFlags) target(cmd *cobra.Command) (job.Target, error) {
	board := cmd.Flags().Changed("gpu")
	switch {
	case board && f.name != "":
		return job.Target{}, usagef("--device and --gpu both name what to run on; give one")
	case f.name != "":
		named, err := parseDevice(f.name)
		if err != nil {
			return job.Target{}, err
		}
		if !named.real {
			f.board.gpu = named.board
			break
		}
		if f.board.memory != "" {
			return job.Target{},
				usagef("--gpu-memory: the memory of a real board is what it is; simulate one with --device sim:NAME")
		}
		return job.Target{Device: fmt.Sprintf("cuda:%d", named.index)}, nil
	case !board && f.board.memory == "" && f.board.spec == "":
		return job.Target{Device: job.Auto}, nil
	}
	gpu, err := f.board.board()
	return job.Simulated(gpu), err
}

// namedDevice opens the device of a job on this machine by its name. Close gives it back;
// until then the goroutine is its only user.
func (a *app) namedDevice(name string) (device.Device, error) {
	named, err := parseDevice(name)
	if err != nil {
		return nil, err
	}
	return a.openGPU(named.index)
}

// firstDevice opens the first GPU, or, where none can be used, the default board: with it
// comes why a GPU that is there was left out, nil if there is none.
func (a *app) firstDevice() (device.Device, *report.Warning, error) {
	d, err := a.openGPU(0)
	var unusable *device.UnusableError
	if errors.As(err, &unusable) {
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
				"(--leave says how much memory stays free, 1GiB unless given), or simulate a board with --device "+
				"sim:NAME",
				d.Name(), others[0], d.Name()), d.Close())
		}
	}
	return d, nil, err
}

// unused is what a report says of a GPU that is here and cannot be used, nil if there is
// none. It also goes to standard error, since a table of a simulated board looks the same.
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
		if found, err := detectBoard(index); err == nil {
			return found, nil
		}
	}
	return localGPU{}, noGPUError{err.Error(), instead}
}

// detectBoard finds a board by its number among those that NVML lists and CUDA_VISIBLE_DEVICES
// does not hide.
func detectBoard(index int) (localGPU, error) {
	library, err := nvml.Open()
	if err != nil {
		return localGPU{}, err
	}
	defer library.Close()
	boards, err := library.Visible(os.Getenv("CUDA_VISIBLE_DEVICES"))
	if err != nil {
		return localGPU{}, err
	}
	if index >= len(boards) {
		return localGPU{}, fmt.Errorf("NVML lists %d boards that CUDA_VISIBLE_DEVICES leaves", len(boards))
	}
	m, err := boards[index].Memory()
	if err != nil {
		return localGPU{}, err
	}
	gpu, err := device.Identify(boards[index].Name, m.Total-m.Reserved)
	if err != nil {
		return localGPU{}, err
	}
	if m.Reserved > 0 {
		gpu.Memory = m.Total - m.Reserved
	}
	return localGPU{gpu, m.Held(gpu.Memory)}, nil
}
