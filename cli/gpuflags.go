package cli

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
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/device"
)

const defaultGPU = "rtx-5060-ti"

// gpuFlags are the flags that choose GPUs: of the catalog, or of this machine.
type gpuFlags struct {
	gpu, spec, memory, host string
	// device is the value of --device; empty for verbs without the flag.
	device string
	flags  *pflag.FlagSet
}

func (f *gpuFlags) isSet() bool {
	return slices.ContainsFunc([]string{"gpu", "gpu-spec", "gpu-memory"}, f.flags.Changed)
}

// defaultGPU returns the GPU that was chosen by default, with the reason; empty if the user chose one.
func (f *gpuFlags) defaultGPU(gpus []device.GPU) string {
	chosen := slices.ContainsFunc([]string{"auto", "profile", "device"}, f.flags.Changed)
	if f.isSet() || chosen || len(gpus) != 1 || f.gpu != defaultGPU { // of the settings
		return ""
	}
	return f.byDefault(gpus[0].Product)
}

// byDefault adds to the name of a GPU why it was chosen.
func (f *gpuFlags) byDefault(product string) string {
	for _, word := range f.flags.Args() { // of a command that follows
		if name, _, _ := strings.Cut(word, "="); name == "--gpu" {
			return product + " (--gpu after the command's name is the command's own; write it before --)"
		}
	}
	return product + " (no --gpu given; see vprof gpus)"
}

func (f *gpuFlags) register(cmd *cobra.Command, gpuUsage string) {
	f.flags = cmd.Flags()
	f.gpu = defaultGPU
	cmd.Flags().Var(&setOnceFlag{target: &f.gpu}, "gpu", gpuUsage)
	cmd.Flags().Var(&setOnceFlag{target: &f.memory}, "gpu-memory",
		"set the GPU's total memory to `size`, like 12GiB, 12 (GiB) or 70%")
	cmd.Flags().Var(&setOnceFlag{target: &f.spec}, "gpu-spec",
		"simulate the GPU that a YAML `file` describes (see vprof help gpu-spec)")
	completeFlag(cmd, "gpu", device.Names)
}

func (f *gpuFlags) registerDevice(cmd *cobra.Command, usage string) {
	f.flags.StringVar(&f.device, "device", "", usage)
	completeFlag(cmd, "device", deviceNames)
}

func (f *gpuFlags) registerHostMemory() {
	f.flags.Var(&setOnceFlag{target: &f.host}, "host-memory",
		"also check that host memory of this `size` suffices, like 64GiB or 64 (GiB)")
}

func (f *gpuFlags) oneGPU() (device.GPU, error) {
	gpu, err := f.fromSpec()
	if err == nil && f.spec == "" {
		gpu, err = device.Lookup(f.gpu)
	}
	if err != nil {
		return gpu, err
	}
	return f.withMemory(gpu)
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

// gpus returns the GPUs of a list with commas, or all.
func (f *gpuFlags) gpus() ([]device.GPU, error) {
	if f.spec != "" {
		gpu, err := f.oneGPU()
		return []device.GPU{gpu}, err
	}
	if f.gpu == "all" {
		if f.memory != "" {
			return nil, usagef("--gpu-memory: works with one GPU; choose it with --gpu")
		}
		return device.Catalog(), nil
	}
	var gpus []device.GPU
	for name := range strings.SplitSeq(f.gpu, ",") {
		gpu, err := device.Lookup(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if gpu, err = f.withMemory(gpu); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(gpus, func(g device.GPU) bool { return g.Name == gpu.Name }) {
			return nil, usagef("--gpu: %s is listed twice; list each GPU once (several GPUs that train together: "+
				"--gpus N --strategy)", gpu.Name)
		}
		gpus = append(gpus, gpu)
	}
	return gpus, nil
}

func (f *gpuFlags) withMemory(gpu device.GPU) (device.GPU, error) {
	gpu, err := f.withHostMemory(gpu)
	if err != nil || f.memory == "" {
		return gpu, err
	}
	total, err := parseMemory(f.memory, gpu.Memory)
	if err != nil {
		return gpu, usagef("--gpu-memory: %w", err)
	}
	if total > bytesize.TiB {
		return gpu, usagef("--gpu-memory: %s is %s, more than any GPU has; write the unit, as in 16384MiB", f.memory,
			bytesize.Format(total))
	}
	if total <= gpu.Context {
		return gpu, usagef("--gpu-memory: %s is less than the CUDA context of %s on %s",
			bytesize.Format(total), bytesize.Format(gpu.Context), gpu.Name)
	}
	gpu.Memory = total
	return gpu, nil
}

func (f *gpuFlags) withHostMemory(gpu device.GPU) (device.GPU, error) {
	if f.host == "" {
		return gpu, nil
	}
	total, err := parseSize("--host-memory", f.host)
	if err == nil && total == 0 {
		err = usagef("--host-memory: need more than 0 bytes")
	}
	gpu.HostMemory = total
	return gpu, err
}

// deviceNames returns the values of --device that need no detection.
func deviceNames() []string {
	return append([]string{"cuda:0"}, lists.Map(device.Names(), func(name string) string { return "sim:" + name })...)
}

// A deviceName is the parsed value of --device.
type deviceName struct {
	// onThisMachine distinguishes a GPU of this machine (index) from a simulated GPU (name).
	onThisMachine bool
	index         int
	gpu           string
}

// parseDevice parses cuda, cuda:N, sim or sim:NAME. The error is a usage error.
func parseDevice(text string) (deviceName, error) {
	kind, which, given := strings.Cut(strings.ToLower(text), ":")
	switch {
	case kind == "cuda" && !given:
		return deviceName{onThisMachine: true}, nil
	case kind == "cuda":
		index, err := strconv.Atoi(which)
		if err != nil || index < 0 {
			return deviceName{}, usagef("--device: invalid GPU index %q; use cuda:0 for the first", which)
		}
		return deviceName{onThisMachine: true, index: index}, nil
	case kind == "sim" && !given:
		return deviceName{gpu: defaultGPU}, nil
	case kind == "sim":
		_, err := device.Lookup(which)
		return deviceName{gpu: which}, err
	}
	return deviceName{}, usagef("--device: invalid %q: need cuda:N or sim:NAME (list GPUs with \"vprof gpus\")", text)
}

// resolveDevice returns the device of --device: a GPU of this machine, or a simulated GPU, which replaces --gpu. With
// real set, other flags need a GPU of this machine; flags names them in messages.
func (f *gpuFlags) resolveDevice(real bool, flags string) (deviceName, error) {
	named := deviceName{onThisMachine: real}
	if f.device != "" {
		var err error
		if named, err = parseDevice(f.device); err != nil {
			return named, err
		}
	}
	switch {
	case real && !named.onThisMachine:
		return named, usagef("--device %s is a simulated GPU, and the other flags need one of this machine; use cuda:N",
			f.device)
	case named.onThisMachine && f.isSet():
		return named, usagef("%s a GPU of this machine; remove --gpu, --gpu-spec and --gpu-memory", flags)
	case f.device != "" && f.flags.Changed("gpu"):
		return named, usagef("--device and --gpu both name a GPU; give only one of them")
	case named.gpu != "":
		f.gpu = named.gpu
	}
	return named, nil
}

// target returns the device of a job. The error is a usage error.
func (f *gpuFlags) target() (job.Target, error) {
	named, err := f.resolveDevice(false, "--device takes")
	switch {
	case err != nil:
		return job.Target{}, err
	case named.onThisMachine:
		return job.Target{Device: fmt.Sprintf("cuda:%d", named.index)}, nil
	case f.device == "" && !f.isSet():
		return job.Target{Device: job.AutoDevice}, nil
	}
	gpu, err := f.oneGPU()
	return job.Simulated(gpu), err
}
