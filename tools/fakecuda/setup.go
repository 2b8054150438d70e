package fakecuda

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vprof/vprof/profiler/device"
)

// A Setup is a machine with a driver.
type Setup struct {
	GPUs []GPU
	// Fail lists calls that fail: see [FailNth] and [FailCall].
	Fail []string
	// Hang is a call of the driver or of NVML that does not return before the next Restart, "cuMemAlloc:3" for the
	// third of the name.
	Hang string
	// Take has another process allocate Bytes of the first GPU at the call number After of the driver; nil for none.
	Take *Taking
	// Lies has NVML report values that no GPU has: "sensors" 4294967291 degrees and the like, "memory" more in use than
	// there is, "total" no memory at all, "process" all of it for this process, "nothing" nothing in use, "count"
	// 4000000000 GPUs, "names" names that no terminal should get.
	Lies string
	// Version is that of CUDA times 1000; zero is 13.0.
	Version int
	// NVML is what nvmlInit returns: zero works, 9 is a driver not loaded.
	NVML int
	// OldNVML has NVML count what the driver keeps for itself as used.
	OldNVML bool
	// Lose takes the GPUs away from NVML in the middle; nil keeps them.
	Lose *Loss
	// Wave has the memory of other processes rise from nothing and fall again
	// within so many looks at it; zero has it stay.
	Wave int
	// Backed gives device memory host memory, and runs the kernels.
	Backed bool
	// Genuine makes the driver pass for a real one: memory is allocated and kernels run until a context has made
	// enough launches, each launch takes 100 ms, and NVML does not report that the driver is simulated.
	Genuine bool
	// Fast has such a driver's launches take the 10 us of others, which no GPU could.
	Fast bool
	// Sick has kernels whose names begin so, as "gemm" or "attention", come out wrong, where kernels run.
	Sick string
	// Addresses is the order of addresses: "falling", which is the default, "random" or "rising".
	Addresses string
	// Quiet leaves the log of all calls out, for benchmarks.
	Quiet bool
}

// A Taking is memory that another process allocates in the middle of a run.
type Taking struct {
	After int
	Bytes int64
}

// A Loss is NVML's, once: a driver that is loaded anew.
type Loss struct {
	// After is how many looks at the memory of GPUs succeed before.
	After int
	// Code is what calls return from then on, until NVML is initialized again:
	// 15 is a GPU that is lost. That fails Refused times first.
	Code, Refused int
}

// A GPU is one of the GPUs.
type GPU struct {
	device.GPU
	// Mode is the compute mode: 0 default, 2 prohibited, 3 exclusive.
	Mode int
	// MIG makes it one of the slices of the GPU before, or the GPU that is cut into them.
	MIG MIG
	// ID is a number, less than 256, of which its UUID is made: GPUs of several machines need different ones.
	ID int
	// Integrated has the GPU share the host's memory; Unpaged cannot map memory page by page; Spills hands out host
	// memory once the GPU is full, as WSL2 does; Display has it drive one, which limits the time of kernels; MPS has
	// contexts share it through the Multi-Process Service.
	Integrated, Unpaged, Spills, Display, MPS bool
	// Unlisted has NVML list no other processes, as in a container.
	Unlisted bool
	// Module is what loading a module takes, Adds what the driver adds to a segment, bytes.
	Module, Adds int64
	Others       []Process
}

// MIG is the part of a GPU in multi-instance mode.
type MIG int

// A GPU in that mode is not seen by CUDA, its slices are.
const (
	Whole MIG = iota
	Slice
	Sliced
)

// A Process is another one that uses a GPU.
type Process struct {
	PID  int
	Name string
	Used int64
}

// FailNth makes the nth call of the driver, counted from 1, return a CUresult.
func FailNth(n, result int) string { return fmt.Sprintf("%d:%d", n, result) }

// FailCall makes the nth call of a name, such as "cuMemAlloc", return a CUresult.
func FailCall(name string, n, result int) string { return fmt.Sprintf("%s:%d:%d", name, n, result) }

// Simulated returns a machine with one GPU of the catalog.
func Simulated(gpu device.GPU) Setup { return Setup{GPUs: []GPU{{GPU: gpu}}} }

// Genuine returns such a machine that passes for one with the GPU.
func Genuine(gpu device.GPU) Setup { return Setup{GPUs: []GPU{{GPU: gpu}}, Genuine: true} }

// A Driver is a setup in the environment of a test or of its children.
type Driver struct {
	// Library is the file that is both libcuda and libnvidia-ml.
	Library string
	// Env are the variables, KEY=VALUE.
	Env []string
	// stats and log are the files that the driver writes.
	stats, log string
}

// Driver builds the library and puts the setup into an environment.
func (s Setup) Driver(tb testing.TB) *Driver {
	tb.Helper()
	dir := tb.TempDir()
	d := &Driver{Library: library(tb), stats: filepath.Join(dir, "stats"), log: filepath.Join(dir, "log")}
	set := func(key, value string) { d.Env = append(d.Env, key+"="+value) }
	var gpus []string
	for _, b := range s.GPUs {
		gpus = append(gpus, b.String())
	}
	set("VPROF_LIBCUDA", d.Library)
	set("VPROF_LIBNVML", d.Library)
	set("FAKECUDA", strings.Join(gpus, ";"))
	set("FAKECUDA_STATS", d.stats)
	log := d.log
	if s.Quiet {
		log = ""
	}
	set("FAKECUDA_LOG", log)
	set("FAKECUDA_FAIL", strings.Join(s.Fail, ","))
	set("FAKECUDA_HANG", s.Hang)
	take := ""
	if s.Take != nil {
		take = fmt.Sprintf("%d:%d", s.Take.After, s.Take.Bytes)
	}
	set("FAKECUDA_TAKE", take)
	set("FAKENVML_LIES", s.Lies)
	set("FAKECUDA_VERSION", number(s.Version))
	set("FAKENVML_FAIL", number(s.NVML))
	set("FAKENVML_WAVE", number(s.Wave))
	lose := ""
	if s.Lose != nil {
		lose = fmt.Sprintf("%d:%d:%d", s.Lose.After, s.Lose.Code, s.Lose.Refused)
	}
	set("FAKENVML_LOSE", lose)
	set("FAKENVML_OLD", flag(s.OldNVML))
	set("FAKECUDA_BACKED", flag(s.Backed))
	set("FAKECUDA_GENUINE", flag(s.Genuine))
	set("FAKECUDA_FAST", flag(s.Fast))
	set("FAKECUDA_SICK", s.Sick)
	set("FAKECUDA_ADDRESSES", cmp.Or(s.Addresses, "falling"))
	return d
}

// flag returns a variable that is set or empty.
func flag(on bool) string {
	if on {
		return "1"
	}
	return ""
}

// number returns n in decimal, or nothing where zero stands for the default.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// String returns the GPU as the driver reads it.
func (b GPU) String() string {
	text := fmt.Sprintf("name=%s,cc=%d,sms=%d,threads=%d,mhz=%d,memory=%d,context=%d,module=%d,mode=%d",
		b.Product, int(b.Capability), b.SMs, b.ThreadsPerSM, b.BoostMHz, b.Memory, b.WithoutLibraries().Context,
		b.Module, b.Mode)
	if b.ID != 0 {
		text += fmt.Sprintf(",id=%d", b.ID)
	}
	if b.MIG != Whole {
		text += fmt.Sprintf(",mig=%d", b.MIG)
	}
	for field, on := range map[string]bool{
		"integrated": b.Integrated, "unpaged": b.Unpaged, "spills": b.Spills,
		"display": b.Display, "mps": b.MPS, "unlisted": b.Unlisted,
	} {
		if on {
			text += "," + field + "=1"
		}
	}
	if b.Adds != 0 {
		text += fmt.Sprintf(",adds=%d", b.Adds)
	}
	for _, p := range b.Others {
		text += fmt.Sprintf(",other=%d:%s:%d", p.PID, p.Name, p.Used)
	}
	return text
}
