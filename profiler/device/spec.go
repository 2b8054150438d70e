package device

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/vprof/vprof/internal/bytesize"
)

// A SpecError reports that a file does not describe a valid GPU.
type SpecError struct{ File, Reason string }

func (e *SpecError) Error() string { return e.File + ": " + e.Reason }

// gpuSpec is a user's description of a GPU. Missing values come from the GPU that Like names.
type gpuSpec struct {
	Name       string  `yaml:"name"`
	Like       string  `yaml:"like"`
	Memory     string  `yaml:"memory"`
	Context    string  `yaml:"context"`
	Capability float64 `yaml:"compute_capability"`
	SMs        int     `yaml:"multiprocessors"`
	Threads    int     `yaml:"threads_per_multiprocessor"`
	Bandwidth  float64 `yaml:"bandwidth_gb_per_s"`
	FP32       float64 `yaml:"fp32_tflops"`
	TF32       float64 `yaml:"tf32_tflops"`
	FP16       float64 `yaml:"fp16_tflops"`
	BF16       float64 `yaml:"bf16_tflops"`
	FP64       float64 `yaml:"fp64_tflops"`
	Addresses  string  `yaml:"addresses"`
}

// maxSpecBytes is the largest accepted size of the file.
const maxSpecBytes = 1 << 16

// ReadSpec reads a user's description of a GPU as YAML: a name, the memory, the compute capability and the number of
// multiprocessors, or the name of a similar GPU and the values that differ. file is the file's name for messages. The
// error is a [*SpecError] unless reading failed.
func ReadSpec(r io.Reader, file string) (GPU, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSpecBytes+1))
	if err != nil {
		return GPU{}, fmt.Errorf("%s: %w", file, err)
	}
	if len(data) > maxSpecBytes {
		return GPU{}, &SpecError{file, fmt.Sprintf("longer than %d bytes; this describes no GPU", maxSpecBytes)}
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	var s gpuSpec
	if err := d.Decode(&s); err != nil {
		if !bytes.Contains(data, []byte("name:")) { // the error quotes lines, which may be secret
			err = errors.New("the file describes no GPU; write its name, memory, compute_capability and " +
				"multiprocessors")
		}
		return GPU{}, &SpecError{file, strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")}
	}
	g, err := s.gpu()
	if err != nil {
		return GPU{}, &SpecError{file, err.Error()}
	}
	g.Source = file
	return g, nil
}

func (s gpuSpec) gpu() (g GPU, err error) {
	if s.Like != "" {
		if g, err = Lookup(s.Like); err != nil {
			return g, fmt.Errorf("like: %w", err)
		}
	}
	if s.Name == "" {
		return g, errors.New("name is missing; write the name of the GPU")
	}
	g.Name, g.Product, g.Aliases = s.Name, s.Name, nil
	for key, of := range map[string]struct {
		text string
		to   *int64
	}{"memory": {s.Memory, &g.Memory}, "context": {s.Context, &g.Context}} {
		if of.text == "" {
			continue
		}
		if *of.to, err = bytesize.Parse(of.text); err != nil {
			return g, fmt.Errorf("%s: %w", key, err)
		}
		if key == "context" {
			g.ContextSource, g.Libraries = "the GPU's own file", 0
		}
	}
	if s.Capability != 0 {
		g.Capability = Capability(math.Round(10 * s.Capability))
		g.Generation, g.ThreadsPerSM = capabilityDefaults(g.Capability)
	}
	switch s.Addresses {
	case "":
	case "rising", "falling":
		g.Rising = s.Addresses == "rising"
	default:
		return g, fmt.Errorf("addresses: invalid %q: need rising or falling", s.Addresses)
	}
	replaceIfGiven(&g.SMs, s.SMs)
	replaceIfGiven(&g.ThreadsPerSM, s.Threads)
	replaceIfGiven(&g.Bandwidth, s.Bandwidth*gigabyte)
	for of, given := range map[*float64]float64{
		&g.Peak.FP32: s.FP32, &g.Peak.TF32: s.TF32, &g.Peak.FP16: s.FP16,
		&g.Peak.BF16: s.BF16, &g.Peak.FP64: s.FP64,
	} {
		replaceIfGiven(of, given*tera)
	}
	return g, g.check()
}

func replaceIfGiven[T comparable](to *T, given T) {
	var none T
	if given != none {
		*to = given
	}
}

// capabilityDefaults returns the architecture's name and the threads of a multiprocessor for a compute capability, or
// for the nearest older one in the catalog.
func capabilityDefaults(c Capability) (generation string, threads int) {
	for _, g := range catalog {
		if g.Capability <= c {
			generation, threads = g.Generation, g.ThreadsPerSM
		}
	}
	return generation, threads
}

// check returns an error if no GPU can have these values.
func (g GPU) check() error {
	// The limits are above the largest GPUs, with 192 multiprocessors and some 300 GB.
	const mostSMs, mostMemory, mostRate = 1024, 1 << 42, 1e18
	switch {
	case g.Memory < 64*MiB || g.Memory > mostMemory:
		return fmt.Errorf("memory: %s: need 64 MiB to 4 TiB, like 16GiB", bytesize.Format(g.Memory))
	case g.Context < 0 || g.Context >= g.Memory:
		return fmt.Errorf("context: need less than the GPU's memory of %[2]s, and it is %[1]s",
			bytesize.Format(g.Context), bytesize.Format(g.Memory))
	case g.Capability < 30 || g.Capability > 200:
		return fmt.Errorf("compute_capability: %v: need 3.0 to 20.0, like 8.9", g.Capability)
	case g.SMs < 1 || g.SMs > mostSMs:
		return fmt.Errorf("multiprocessors: %d: need 1 to %d", g.SMs, mostSMs)
	case g.ThreadsPerSM < 32 || g.ThreadsPerSM > 4096:
		return fmt.Errorf("threads_per_multiprocessor: %d: need 32 to 4096", g.ThreadsPerSM)
	}
	for name, rate := range map[string]float64{
		"bandwidth_gb_per_s": g.Bandwidth, "fp32_tflops": g.Peak.FP32, "tf32_tflops": g.Peak.TF32,
		"fp16_tflops": g.Peak.FP16,
		"bf16_tflops": g.Peak.BF16, "fp64_tflops": g.Peak.FP64,
	} {
		if !(rate >= 0 && rate <= mostRate) {
			return fmt.Errorf("%s: invalid rate %v: need a number from 0 to %g", name, rate, mostRate)
		}
	}
	return nil
}
