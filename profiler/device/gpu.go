package device

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/nearest"
	"github.com/vprof/vprof/internal/pattern"
	"github.com/vprof/vprof/profiler/program"
)

// GPU is the description of a GPU: the properties that PyTorch and its libraries query before they decide how much to
// allocate, and its speed. Entries of the catalog are typical GPUs under Linux; a real device fills in its own values.
type GPU struct {
	// Name is how users call it, such as "rtx-5060-ti".
	Name string
	// Product is the name the driver reports, such as "NVIDIA GeForce RTX 5060 Ti".
	Product string
	// Aliases are further names that Lookup takes.
	Aliases []string
	// Generation is NVIDIA's name of the architecture, such as "Blackwell".
	Generation string
	// Capability is the compute capability.
	Capability Capability
	// SMs is the number of streaming multiprocessors.
	SMs int
	// ThreadsPerSM is the largest number of resident threads of a multiprocessor.
	ThreadsPerSM int
	// L2 is the size of the second-level cache in bytes, as NVIDIA's papers on the architectures and
	// cudaDeviceProp.l2CacheSize have it: Inductor allocates a buffer of that size when it tunes a kernel.
	// Zero is not known.
	L2 int64
	// BoostMHz is the clock in MHz at which the GPU reaches Peak.
	BoostMHz int
	// Memory is the total that the driver reports to programs, in bytes: less than what the GPU is sold with, and a few
	// ten MiB apart between GPUs and driver versions.
	Memory int64
	// Bandwidth of the memory, in bytes per second.
	Bandwidth float64
	// Peak is the arithmetic throughput.
	Peak Rates
	// LinkBandwidth is the speed at which the GPU sends to others of its kind, in bytes per
	// second and direction, by its data sheet: NVLink of GPUs that come with it, of
	// others PCIe with all the lanes that the GPU has. Zero is a GPU without others.
	LinkBandwidth float64 `json:"Link"`
	// Context is the memory in bytes that a process of PyTorch uses besides its tensors: the bare CUDA context and
	// Libraries. ContextSource names the source of both.
	Context       int64
	ContextSource string
	// Libraries is the part of Context that kernels of PyTorch, cuBLAS and cuDNN take once they are loaded, in bytes.
	// Zero means unknown: Context is then the bare one.
	Libraries int64 `json:",omitempty"`
	// HasBareContext reports whether the process is vprof's own, which loads no library: Context is then the bare one.
	HasBareContext bool `json:"Bare,omitempty"`
	// Source names where the other values come from.
	Source string
	// Rising reports whether the driver gives each segment a higher address than the one before
	// ([allocator.SimulatedMemory]). The driver below the reference records did.
	Rising bool `json:",omitempty"`
	// HostMemory is the memory of the GPU's machine, in bytes; zero if unknown.
	HostMemory int64 `json:",omitempty"`
	// UnifiedMemory reports whether Memory is the machine's own, which programs on the CPU use, too.
	UnifiedMemory bool `json:"Unified,omitempty"`
}

// EmulatesBF16 reports whether PyTorch emulates bfloat16 on the GPU (torch.cuda.is_bf16_supported).
func (g GPU) EmulatesBF16() bool {
	const first = 80
	return g.Capability > 0 && g.Capability < first
}

// displayGPUs matches the products of GPUs that drive displays.
var displayGPUs = regexp.MustCompile(`GeForce|RTX|Quadro|TITAN`)

// DrivesDisplays reports whether the GPU drives displays, so that it may run under Windows or WSL2.
func (g GPU) DrivesDisplays() bool { return displayGPUs.MatchString(g.Product) }

// WithoutLibraries returns the GPU with the context of a process that loads no libraries of PyTorch.
func (g GPU) WithoutLibraries() GPU {
	g.Context, g.Libraries, g.HasBareContext = g.Context-g.Libraries, 0, true
	return g
}

// Capability is a compute capability times ten: 120 for 12.0.
type Capability int

// String returns the capability as NVIDIA writes it: "12.0".
func (c Capability) String() string { return fmt.Sprintf("%d.%d", c/10, c%10) }

// The oldest GPUs that builds of PyTorch have kernels for: its wheels for CUDA 12.6 begin with Maxwell, those for CUDA
// 12.8 with Volta (pytorch/pytorch#157517), and those for CUDA 13 with Turing, since CUDA 13 itself does.
const (
	oldestInWheels Capability = 50
	oldestInCUDA12 Capability = 70
	oldestInCUDA13 Capability = 75
)

// Unsupported returns the reason why a release of PyTorch does not run on a GPU as in PyPI, for a version of CUDA like
// "13.0"; empty if it does.
func (g GPU) Unsupported(torch, cuda string) string {
	oldest := oldestInCUDA12
	if !strings.HasPrefix(cuda, "12.") {
		oldest = oldestInCUDA13
	}
	switch {
	case g.Capability == 0 || g.Capability >= oldest:
		return ""
	case g.Capability < oldestInWheels:
		return fmt.Sprintf("no build of PyTorch %s has kernels for compute capability %v", torch, g.Capability)
	}
	return fmt.Sprintf("PyTorch %s as PyPI has it, for CUDA %s, has no kernels for compute capability %v; builds "+
		"for CUDA 12.6 have, where a release comes with them", torch, cuda, g.Capability)
}

// Rates are dense arithmetic rates in FLOP/s, a multiply-add counting as two. Rates of the 16-bit formats are the
// tensor cores' rates with accumulation in FP32, as PyTorch uses them. Zero means that the GPU has no tensor cores for
// the format.
type Rates struct {
	FP32, TF32, FP16, BF16, FP64 float64
}

// ForPrecision returns the rate for a precision. Without tensor cores for it, libraries compute in FP32, and the result
// is the FP32 rate.
func (r Rates) ForPrecision(p program.Precision) float64 {
	rate := r.FP32
	switch p {
	case program.TF32:
		rate = r.TF32
	case program.FP16:
		rate = r.FP16
	case program.BF16:
		rate = r.BF16
	case program.FP64:
		rate = r.FP64
	}
	if rate == 0 {
		return r.FP32
	}
	return rate
}

// Roofline returns the least possible time of flops operations that move bytes to and from the GPU's memory: the longer
// of the two at full speed. Launch latency and imperfect kernels come on top. It is zero for a GPU with unknown rates.
func (g GPU) Roofline(flops, bytes int64, p program.Precision) time.Duration {
	rate := g.Peak.ForPrecision(p)
	if rate == 0 || g.Bandwidth == 0 {
		return 0
	}
	seconds := max(float64(flops)/rate, float64(bytes)/g.Bandwidth)
	return time.Duration(seconds * float64(time.Second))
}

// Transfer returns the least possible time to send bytes to other GPUs. It is zero for a GPU with unknown links.
func (g GPU) Transfer(bytes int64) time.Duration {
	if g.LinkBandwidth == 0 {
		return 0
	}
	return time.Duration(float64(bytes) / g.LinkBandwidth * float64(time.Second))
}

// Names returns the names of all GPUs of the catalog, in its order.
func Names() []string { return lists.Map(catalog, func(g GPU) string { return g.Name }) }

// Catalog returns all known GPUs, the oldest generation first and by rising speed within each.
func Catalog() []GPU { return slices.Clone(catalog) }

// Lookup finds a GPU of the catalog by its name, an alias or the driver's product name. Letter case, spaces and
// punctuation do not matter, nor does the maker's "NVIDIA", the "sim:" of results, or the memory that it is sold with
// ("5060 Ti 16 GB"). A slice of a GPU has its profile behind the name ("a100-80 1g.10gb"). The error is an
// [*UnknownGPUError].
func Lookup(name string) (GPU, error) {
	key := normalizeName(name)
	if i, ok := index[key]; ok {
		return catalog[i], nil
	}
	if i, ok := indexOfProduct(key); ok {
		return catalog[i], nil
	}
	if g, ok := migSlice(name); ok {
		return g, nil
	}
	near := migNames(name)
	if near == nil {
		near = nearest.Names(name, Names(), 3)
	}
	return GPU{}, &UnknownGPUError{Name: name, Nearest: near}
}

// indexOfProduct finds a GPU by a folded name with the memory behind it that it is sold with.
func indexOfProduct(key string) (at int, ok bool) {
	const gib, apart = 1 << 30, 0.15 // drivers report less than what is sold
	name := strings.TrimSuffix(strings.TrimSuffix(key, "b"), "g")
	for digits := 1; digits <= 3 && digits < len(name) && name != key; digits++ {
		gb, err := strconv.Atoi(name[len(name)-digits:])
		i, known := index[name[:len(name)-digits]]
		if err == nil && known && math.Abs(float64(catalog[i].Memory)/float64(gb)/gib-1) < apart {
			return i, true
		}
	}
	return 0, false
}

// normalizeName returns the key of a name in the index.
func normalizeName(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(nearest.Normalize(name), "sim"), "nvidia")
}

// An UnknownGPUError reports that the catalog has no GPU of a name.
type UnknownGPUError struct {
	Name string
	// Nearest are up to three names that may have been meant.
	Nearest []string
}

// nameHints lists words that people write in place of a GPU's name, with the advice for each.
var nameHints = []struct {
	name func() *regexp.Regexp
	hint string
}{
	{pattern.Lazy(`(?i)^\W*$`), "; name a GPU such as rtx-4090"},
	{
		pattern.Lazy(`(?i)[1-7]g\.[0-9]+gb`),
		"; describe a slice of MIG by --gpu-spec, as nvidia-smi mig -lgip lists it: like: a100-80, memory: 9.5GiB, " +
			"multiprocessors: 14",
	},
	{
		pattern.Lazy(`(?i)^(amd|radeon|instinct|mi[0-9]{2,3}|rx|intel|arc|gaudi|habana|tpu|apple|m[1-9]\b|` +
			`ascend|trainium|inferentia)`),
		"; vprof knows NVIDIA's GPUs alone",
	},
	{
		pattern.Lazy(`(?i)^(cuda|gpu)?:?[0-9]?$|^(local|auto|this|mine)$`),
		"; it is the name of a GPU that is simulated, and --device cuda:0 of sweep, fit and smoke is a GPU of " +
			"this machine",
	},
	{pattern.Lazy(`(?i)^[0-9]+ ?[x*] ?[a-z]*[0-9]|[x*:] ?[0-9]$`), "; several GPUs are --gpus N beside one name"},
}

func (e *UnknownGPUError) Error() string {
	near := ""
	if len(e.Nearest) > 0 {
		near = "; near it: " + strings.Join(e.Nearest, ", ")
	}
	known := len(migNames(e.Name)) > 0
	for _, m := range nameHints {
		if !known && m.name().MatchString(e.Name) {
			near = m.hint
			break
		}
	}
	return fmt.Sprintf(`unknown GPU %q%s (list all with "vprof gpus"; --gpu-spec describes another)`, e.Name, near)
}

// Usage marks the error as bad input.
func (*UnknownGPUError) Usage() bool { return true }
