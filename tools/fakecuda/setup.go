package fakecuda

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vprof/vprof/profiler/device"
)

// A Setup describes a machine with GPUs and a driver.
type Setup struct {
	GPUs []GPU
	// Fail lists calls that fail: see [FailNth] and [FailCall].
	Fail []string
	// Hang names a call of the driver or NVML that blocks until the next Restart: "cuMemAlloc:3" is the third
	// cuMemAlloc.
	Hang string
	// Take makes another process allocate Bytes of the first GPU at driver call number After; nil for none.
	Take *Taking
	// Lies makes NVML report impossible values: "sensors" 4294967291 degrees and the like, "memory" more bytes in use
	// than the total, "total" no memory at all, "process" all memory in use by this process, "nothing" no memory in
	// use, "count" 4000000000 GPUs, "names" names with control characters.
	Lies string
	// Version is the CUDA version times 1000; zero means 13.0.
	Version int
	// NVML is the result of nvmlInit: 0 is success, 9 a driver that is not loaded.
	NVML int
	// OldNVML makes NVML count the driver's reserved memory as used.
	OldNVML bool
	// Lose makes NVML lose the GPUs during a run; nil for never.
	Lose *Loss
	// Wave is a period in memory queries: the load and the memory of other processes rise from zero and fall again
	// within it. Zero keeps them constant.
	Wave int
	// Backed backs device memory by host memory and runs the kernels.
	Backed bool
	// Genuine makes the driver look like a real one: memory is backed and kernels run until a context has made enough
	// launches, each launch takes 100 ms, and NVML does not report that the driver is simulated.
	Genuine bool
	// Fast makes launches of a genuine driver take 10 us, as for a simulated one.
	Fast bool
	// Sick is a prefix of kernel names ("gemm", "attention"): these kernels write wrong results, if kernels run.
	Sick string
	// Addresses is the order of allocated addresses: "falling" (the default), "random" or "rising".
	Addresses string
	// Quiet disables the log of all calls, for benchmarks.
	Quiet bool
}

// A Taking is an allocation by another process during a run.
type Taking struct {
	After int
	Bytes int64
}

// A Loss makes NVML fail once, as when the driver is reloaded.
type Loss struct {
	// After is the number of memory queries that succeed before.
	After int
	// Code is the result of every call from then on, such as 15 for a lost GPU, until NVML is initialized again. The
	// initialization fails Refused times first.
	Code, Refused int
}

// A GPU is a GPU of the catalog with its state.
type GPU struct {
	device.GPU
	// Mode is the compute mode: 0 default, 2 prohibited, 3 exclusive.
	Mode int
	// MIG tells whether it is a MIG instance of the GPU before it, or a GPU with instances.
	MIG MIG
	// ID, less than 256, determines the UUID: GPUs of different machines need different ones.
	ID int
	// Integrated shares memory with the host. Unpaged lacks virtual memory management. Spills allocates host memory
	// when the GPU is full, as WSL2 does. Display drives a display, which limits the run time of kernels. MPS shares
	// the GPU through the Multi-Process Service.
	Integrated, Unpaged, Spills, Display, MPS bool
	// Unlisted hides other processes from NVML, as in a container.
	Unlisted bool
	// Module is the bytes of a loaded module, Adds the bytes that the driver adds to a segment.
	Module, Adds int64
	Others       []Process
}

// MIG is the role of a GPU in multi-instance (MIG) mode.
type MIG int

// CUDA does not see a Sliced GPU, but the Slices that follow it, which are its instances.
const (
	Whole MIG = iota
	Slice
	Sliced
)

// A Process is another process that uses a GPU.
type Process struct {
	PID  int
	Name string
	Used int64
}

// FailNth makes the nth call of the driver, counted from 1, return a CUresult.
func FailNth(n, result int) string { return fmt.Sprintf("%d:%d", n, result) }

// FailCall makes the nth call of a function, such as "cuMemAlloc", return a CUresult.
func FailCall(name string, n, result int) string { return fmt.Sprintf("%s:%d:%d", name, n, result) }

// Simulated returns the setup of a machine with one GPU of the catalog.
func Simulated(gpu device.GPU) Setup { return Setup{GPUs: []GPU{{GPU: gpu}}} }

// Genuine returns the setup of a machine that looks like a real one with this GPU.
func Genuine(gpu device.GPU) Setup { return Setup{GPUs: []GPU{{GPU: gpu}}, Genuine: true} }

// A Driver is a setup as environment variables of a test or its child processes.
type Driver struct {
	// Library is the file that is both libcuda and libnvidia-ml.
	Library string
	// Env are the environment variables, KEY=VALUE.
	Env []string
	// stats and log are the files that the driver writes.
	stats, log string
}

// Driver builds the library and returns it with the environment variables of the setup.
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

// flag returns "1" for true and an empty string for false.
func flag(on bool) string {
	if on {
		return "1"
	}
	return ""
}

// number returns n in decimal, or an empty string for zero, which selects the default.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// String returns the GPU in the format of FAKECUDA.
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
