package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vprof/vprof/bench/job"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/profiler/device"
)

// defaultGPU is the GPU that is simulated by default.
const defaultGPU = "rtx-5060-ti"

// boardFlags are the flags that choose what something runs on: GPUs of the catalog, or a GPU of this machine.
type gpuFlags struct {
	gpu, spec, memory, host string
	// device is the value of --device; empty of verbs that have no such flag.
	device string
	flags  *pflag.FlagSet
}

// given reports whether the user named a GPU.
func (f *gpuFlags) given() bool {
	return slices.ContainsFunc([]string{"gpu", "gpu-spec", "gpu-memory"}, f.flags.Changed)
}

// defaultBoard is the GPU that is simulated by default, where neither the user nor this machine chose one.
func (f *gpuFlags) defaultGPU(gpus []device.GPU) string {
	chosen := slices.ContainsFunc([]string{"auto", "profile", "device"}, f.flags.Changed)
	if f.given() || chosen || len(gpus) != 1 {
		return ""
	}
	return gpus[0].Product
}

func (f *gpuFlags) register(cmd *cobra.Command, gpuUsage string) {
	f.flags = cmd.Flags()
	f.gpu = defaultGPU
	cmd.Flags().Var(&once{to: &f.gpu}, "gpu", gpuUsage)
	cmd.Flags().Var(&once{to: &f.memory}, "gpu-memory",
		"replace the GPU's total memory by `size`, like 12GiB; a bare number counts GiB, 70% is a part of it")
	cmd.Flags().Var(&once{to: &f.spec}, "gpu-spec",
		"instead of --gpu: a GPU of your own, described in a YAML `file` (see vprof help gpu-spec)")
	complete(cmd, "gpu", device.Names)
}

// registerDevice adds --device.
func (f *gpuFlags) registerDevice(cmd *cobra.Command, usage string) {
	f.flags.StringVar(&f.device, "device", "", usage)
	complete(cmd, "device", deviceNames)
}

// registerHostMemory adds the memory of the machine that the GPUs are in.
func (f *gpuFlags) registerHostMemory() {
	f.flags.Var(&once{to: &f.host}, "host-memory",
		"`size` of the memory of the machine, like 64GiB, which is then judged, too; a bare number counts GiB")
}

// GPU finds the one GPU.
func (f *gpuFlags) chosen() (device.GPU, error) {
	gpu, err := f.fromSpec()
	if err == nil && f.spec == "" {
		gpu, err = device.Lookup(f.gpu)
	}
	if err != nil {
		return gpu, err
	}
	return f.resize(gpu)
}

// fromSpec returns the GPU of --gpu-spec; the zero GPU without it.
func (f *gpuFlags) fromSpec() (device.GPU, error) {
	if f.spec == "" {
		return device.GPU{}, nil
	}
	if f.flags.Changed("gpu") {
		return device.GPU{}, usagef("--gpu and --gpu-spec both name the GPU; give one")
	}
	file, err := input.OpenFile(f.spec)
	if err != nil {
		return device.GPU{}, usagef("--gpu-spec: %w", err)
	}
	defer file.Close()
	gpu, err := device.ReadSpec(file, f.spec)
	if err != nil {
		return gpu, usagef("--gpu-spec: %w", err)
	}
	return gpu, nil
}

// GPUs finds several, named in a list with commas, or all.
func (f *gpuFlags) gpus() ([]device.GPU, error) {
	if f.spec != "" {
		gpu, err := f.chosen()
		return []device.GPU{gpu}, err
	}
	if f.gpu == "all" {
		if f.memory != "" {
			return nil, usagef("--gpu-memory: all GPUs cannot have the same memory; name one with --gpu")
		}
		return device.Catalog(), nil
	}
	var gpus []device.GPU
	for name := range strings.SplitSeq(f.gpu, ",") {
		gpu, err := device.Lookup(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if gpu, err = f.resize(gpu); err != nil {
			return nil, err
		}
		gpus = append(gpus, gpu)
	}
	return gpus, nil
}

func (f *gpuFlags) resize(gpu device.GPU) (device.GPU, error) {
	gpu, err := f.withHostMemory(gpu)
	if err != nil || f.memory == "" {
		return gpu, err
	}
	total, err := parseMemory(f.memory, gpu.Memory)
	if err != nil {
		return gpu, usagef("--gpu-memory: %w", err)
	}
	if total <= gpu.Context {
		return gpu, usagef("--gpu-memory: %s is less than the %s that CUDA's context takes on %s",
			bytesize.Format(total), bytesize.Format(gpu.Context), gpu.Name)
	}
	gpu.Memory = total
	return gpu, nil
}

// withHostMemory returns the GPU in a machine with the memory of --host-memory.
func (f *gpuFlags) withHostMemory(gpu device.GPU) (device.GPU, error) {
	if f.host == "" {
		return gpu, nil
	}
	total, err := parseSize("--host-memory", f.host)
	if err == nil && total == 0 {
		err = usagef("--host-memory: a machine has more than 0 bytes")
	}
	gpu.HostMemory = total
	return gpu, err
}

// deviceNames returns what --device may be, as far as it is known without looking.
func deviceNames() []string {
	names := []string{"cuda:0"}
	for _, name := range device.Names() {
		names = append(names, "sim:"+name)
	}
	return names
}

// A deviceName is the parsed value of --device.
type deviceName struct {
	// real tells a GPU of this machine, by its index, from a simulated GPU,
	// by its name.
	real  bool
	index int
	gpu   string
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
		return deviceName{gpu: defaultGPU}, nil
	case kind == "sim":
		_, err := device.Lookup(which)
		return deviceName{gpu: which}, err
	}
	return deviceName{}, usagef("--device: %q is neither cuda:N nor sim:NAME (list GPUs with \"vprof gpus\")", text)
}

// resolveDevice returns what --device names: a GPU of this machine, or a simulated GPU, which replaces the one of
// --gpu. With real, other flags, which messages list, need a GPU of this machine.
func (f *gpuFlags) resolveDevice(real bool, flags string) (deviceName, error) {
	named := deviceName{real: real}
	if f.device != "" {
		var err error
		if named, err = parseDevice(f.device); err != nil {
			return named, err
		}
	}
	switch {
	case real && !named.real:
		return named, usagef("--device %s simulates a GPU, and other flags ask for a GPU of this machine", f.device)
	case named.real && f.given():
		return named, usagef("%s a GPU of this machine; leave --gpu, --gpu-spec and --gpu-memory away", flags)
	case f.device != "" && f.flags.Changed("gpu"):
		return named, usagef("--device and --gpu both name a GPU; give one")
	case named.gpu != "":
		f.gpu = named.gpu
	}
	return named, nil
}

// target returns what a job runs on. The error is a usage error.
func (f *gpuFlags) target() (job.Target, error) {
	named, err := f.resolveDevice(false, "--device takes")
	switch {
	case err != nil:
		return job.Target{}, err
	case named.real:
		return job.Target{Device: fmt.Sprintf("cuda:%d", named.index)}, nil
	case f.device == "" && !f.given():
		return job.Target{Device: job.Auto}, nil
	}
	gpu, err := f.chosen()
	return job.Simulated(gpu), err
}
