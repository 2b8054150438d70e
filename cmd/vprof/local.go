package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/device/cuda"
)

// localGPU is a GPU of this machine.
type localGPU struct {
	GPU device.GPU
	// Others is the memory in bytes that other processes hold on it now.
	Others int64
}

// A noGPUError says that a command needs a GPU that is not there, and why.
type noGPUError struct{ reason, hint string }

func (e noGPUError) Error() string { return "no usable GPU: " + e.reason + " (" + e.hint + ")" }

// instead is the hint of commands that can simulate a GPU.
const instead = `name one of "vprof gpus" with --gpu instead`

// negative is the error of a negative verdict, exit code 3. The output holds the verdict
// already.
type negative struct{ error }

// openGPU opens a GPU of this machine to measure on. The error is a
// [*device.UnusableError].
func openGPU(index int) (device.Device, error) {
	d, err := cuda.Open(index)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// computing returns the other processes that compute on a device.
func computing(d device.Device) []device.Neighbor {
	o, ok := d.(device.Observer)
	if !ok {
		return nil
	}
	return slices.DeleteFunc(o.Neighbors(), func(n device.Neighbor) bool { return !n.Computes })
}

// leaveRoom keeps memory of a GPU free for other processes that compute on it, in case their training needs a
// little more: 1 GiB, or an eighth of what they leave where that is less.
func leaveRoom(d device.Device) {
	const most, part = 1 << 30, 8
	if limiter, ok := d.(device.Limiter); ok && len(computing(d)) > 0 {
		limiter.Leave(max(limiter.Left(), min(most, (d.GPU().Memory-othersOn(d))/part)))
	}
}

// othersOn returns the memory in bytes that other processes hold on a device; zero if that is
// unknown.
func othersOn(d device.Device) int64 {
	if o, ok := d.(device.Observer); ok {
		return o.Baseline().Others
	}
	return 0
}

// localFlags are the flags that choose GPUs: of the catalog, or of this machine.
type localFlags struct {
	auto, profile bool
	others        string

	device device.Device // open to be measured on; nil if GPUs are simulated
}

const autoUsage = "use this machine's GPU and count what other processes hold of it"

func (l *localFlags) register(cmd *cobra.Command, b *gpuFlags) {
	f := cmd.Flags()
	f.BoolVar(&l.auto, "auto", false, autoUsage)
	f.BoolVar(&l.profile, "profile", false, "as --auto, and measure on it what is recommended before recommending it")
	b.registerDevice(cmd,
		"`device` to measure on: cuda:0 is what --profile takes; or sim:NAME to simulate, as --gpu does")
	f.StringVar(&l.others, "other-processes", "", "memory that other processes hold, as `size` like 1GiB")
}

// close gives the GPU back.
func (l *localFlags) close() error {
	if l.device == nil {
		return nil
	}
	return l.device.Close()
}

// GPUs are the GPUs that the flags name, and what others hold of each. The
// one to measure on is then open.
func (l *localFlags) gpus(a *app, b *gpuFlags) ([]device.GPU, int64, error) {
	others, err := parseSize("--other-processes", l.others)
	if err != nil {
		return nil, 0, err
	}
	named, err := b.resolveDevice(l.profile || l.auto, "--auto, --profile and --device take")
	if err != nil {
		return nil, 0, err
	}
	var found localGPU
	switch {
	case named.real && (l.profile || b.device != ""):
		if l.device, err = a.openGPU(named.index); err != nil {
			return nil, 0, err
		}
		leaveRoom(l.device)
		found = localGPU{l.device.GPU(), othersOn(l.device)}
	case l.auto:
		if found, err = a.detect(0); err != nil {
			return nil, 0, err
		}
	default:
		gpus, err := b.gpus()
		for _, g := range gpus {
			if others >= g.Memory-g.Context {
				return nil, 0, usagef("--other-processes: they leave nothing of the %s of %s",
					bytesize.Format(g.Memory), g.Name)
			}
		}
		return gpus, others, err
	}
	if l.others == "" {
		others = found.Others
	}
	gpu, err := b.withHostMemory(found.GPU)
	return []device.GPU{gpu}, others, err
}
