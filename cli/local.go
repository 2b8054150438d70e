package cli

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
	// OtherProcessBytes is the memory of other processes on it, in bytes.
	OtherProcessBytes int64
}

// A noGPUError reports why a command has no usable GPU.
type noGPUError struct{ reason, hint string }

func (e noGPUError) Error() string { return "no usable GPU: " + e.reason + " (" + e.hint + ")" }

const simulateHint = `name one of "vprof gpus" with --gpu instead`

// negativeVerdict is the error of a negative verdict (exit code 3), which the output already shows.
type negativeVerdict struct{ error }

// openGPU opens a GPU of this machine to measure on. The error is a [*device.UnusableError].
func openGPU(index int) (device.Device, error) {
	d, err := cuda.Open(index)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func computeProcesses(d device.Device) []device.Neighbor {
	o, ok := d.(device.Observer)
	if !ok {
		return nil
	}
	return slices.DeleteFunc(o.Neighbors(), func(n device.Neighbor) bool { return !n.Computes })
}

// reserveForOthers keeps memory of a GPU free for other processes that compute on it, in case their training grows:
// 1 GiB, or an eighth of the free memory if that is less.
func reserveForOthers(d device.Device) {
	const most, part = 1 << 30, 8
	if limiter, ok := d.(device.Limiter); ok && len(computeProcesses(d)) > 0 {
		limiter.LeaveFree(max(limiter.FreeLimit(), min(most, (d.GPU().Memory-otherProcessBytes(d))/part)))
	}
}

// otherProcessBytes returns the memory of other processes on a device in bytes; zero if unknown.
func otherProcessBytes(d device.Device) int64 {
	if o, ok := d.(device.Observer); ok {
		return o.Baseline().Others
	}
	return 0
}

// localFlags are the flags that choose GPUs of the catalog or of this machine.
type localFlags struct {
	auto, profile bool
	others        string

	device device.Device // open to be measured on; nil if GPUs are simulated
}

const autoUsage = "estimate for this machine's GPU, without the memory that other processes use"

func (l *localFlags) register(cmd *cobra.Command, b *gpuFlags) {
	f := cmd.Flags()
	f.BoolVar(&l.auto, "auto", false, autoUsage)
	f.BoolVar(&l.profile, "profile", false, "like --auto, and also measure the result on the GPU")
	b.registerDevice(cmd, "measure on this `device`, like cuda:0; sim:NAME simulates a GPU, as --gpu does")
	f.StringVar(&l.others, "other-processes", "", "assume that other processes use this `size` of memory, like 1GiB")
}

func (l *localFlags) close() error {
	if l.device == nil {
		return nil
	}
	return l.device.Close()
}

// gpus returns the GPUs of the flags and the memory of other processes on each. It opens the GPU to measure on.
func (l *localFlags) gpus(a *app, b *gpuFlags) ([]device.GPU, int64, error) {
	others, err := parseSize("--other-processes", l.others)
	if err != nil {
		return nil, 0, err
	}
	named, err := b.resolveDevice(l.profile || l.auto, "--auto, --profile and --device use")
	if err != nil {
		return nil, 0, err
	}
	var found localGPU
	switch {
	case named.onThisMachine && (l.profile || b.device != ""):
		if l.device, err = a.openGPU(named.index); err != nil {
			return nil, 0, err
		}
		reserveForOthers(l.device)
		found = localGPU{l.device.GPU(), otherProcessBytes(l.device)}
	case l.auto:
		if found, err = a.detect(0); err != nil {
			return nil, 0, err
		}
	default:
		gpus, err := b.gpus()
		for _, g := range gpus {
			if others >= g.Memory-g.Context {
				return nil, 0, usagef("--other-processes: it leaves nothing of the %s of %s; give less",
					bytesize.Format(g.Memory), g.Name)
			}
		}
		return gpus, others, err
	}
	if l.others == "" {
		others = found.OtherProcessBytes
	}
	gpu, err := b.withHostMemory(found.GPU)
	return []device.GPU{gpu}, others, err
}
