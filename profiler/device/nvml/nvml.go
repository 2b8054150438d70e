// Package nvml reads the state of this machine's GPUs from NVIDIA's management library: memory of the GPU and of each
// process, utilization, clocks, temperature, power, and why a GPU runs slower than it could.
//
// NVML needs no CUDA context and allocates no device memory, so its values can be compared with the driver's. The
// library is loaded at run time. If the machine has none, [Open] returns an error that wraps [ErrNoDriver]. Without
// cgo, and on operating systems other than Linux, it returns [ErrNotBuilt].
package nvml

import "errors"

var (
	// ErrNoDriver means that there is no NVIDIA driver on this machine.
	ErrNoDriver = errors.New("this machine has no NVIDIA driver")
	// ErrNotBuilt means that the binary was built without NVML.
	ErrNotBuilt = errors.New("this vprof was built without cgo, so it cannot use NVML (the NVIDIA driver's library); " +
		"build it with a C compiler (make build)")
)

// Versions are the versions of the installed driver.
type Versions struct {
	// Driver is the driver's release, such as "580.65.06". NVML is the library's release.
	Driver, NVML string
}

// A Reading is the state of a GPU at one time. Values that the GPU or its driver does not report are nil.
type Reading struct {
	Memory Memory
	// Processes are the processes that use the GPU, sorted by PID.
	Processes []Process
	// GPUPercent is the share of the last sample period (up to a second) in which a kernel ran. MemoryPercent is the
	// share in which memory was read or written.
	GPUPercent, MemoryPercent *int
	// SMMHz is the clock of the multiprocessors.
	SMMHz   *int
	Celsius *int
	// Milliwatts is the current power draw, LimitMilliwatts the enforced limit.
	Milliwatts, LimitMilliwatts *int
	// Slowdowns are the reasons for reduced clocks, nil if there are none.
	Slowdowns []Slowdown
	// Impossible lists values that were left out since no GPU can have them: "nvmlDeviceGetTemperature reports
	// 4294967291".
	Impossible []string
}

// Clocks are the clocks of a GPU in MHz, zero if it does not report them.
type Clocks struct {
	SM, Memory int
	// Slowdowns are as in [Reading].
	Slowdowns []Slowdown
}

// Memory is the memory of a GPU, in bytes.
type Memory struct {
	// Total is the GPU's memory in bytes. Reserved is used by the driver, Used by contexts. An old driver includes its
	// own memory in Used and reports a Reserved of zero.
	Total, Reserved, Used int64
	// Shared reports whether the GPU uses the host's memory. Used then only counts the listed processes on the GPU.
	Shared bool
}

// UsedByProcesses returns the bytes that contexts of programs use. visible is the GPU's total memory as programs see
// it. An old driver counts its own memory as used; programs do not see that part, and it is subtracted.
func (m Memory) UsedByProcesses(visible int64) int64 {
	if m.Reserved > 0 || m.Shared {
		return m.Used
	}
	return max(0, m.Used-max(0, m.Total-visible))
}

// A Process is a process that uses a GPU.
type Process struct {
	// PID is the process ID in the driver's namespace, which in a container differs from the process's own.
	PID int
	// Name is the file name of the process's program, with U+FFFD for unprintable characters; empty if NVML does not
	// report it, as for processes of other users.
	Name string
	// Used is the process's device memory in bytes; -1 if NVML does not report it.
	Used int64
	// Computes reports whether the process uses the GPU for computing, and not only for graphics.
	Computes bool
}

// A Slowdown is a reason for lower clocks.
type Slowdown string

// The reasons that NVML distinguishes.
const (
	Idle               Slowdown = "idle"
	Setting            Slowdown = "clock setting"
	PowerCap           Slowdown = "power cap"
	Hardware           Slowdown = "hardware slowdown"
	SlowdownSyncBoost  Slowdown = "sync boost"
	SlowdownThermal    Slowdown = "temperature"
	HardwareHeat       Slowdown = "temperature, by hardware"
	SlowdownPowerBrake Slowdown = "power brake"
	Display            Slowdown = "display clock"
)

// slowdowns are the reasons by bit number in NVML's mask.
var slowdowns = [...]Slowdown{
	Idle, Setting, PowerCap, Hardware, SlowdownSyncBoost, SlowdownThermal, HardwareHeat,
	SlowdownPowerBrake, Display,
}

func slowdownsOf(mask uint64) []Slowdown {
	var reasons []Slowdown
	for bit, reason := range slowdowns {
		if mask&(1<<bit) != 0 {
			reasons = append(reasons, reason)
		}
	}
	return reasons
}

// Mode is the compute mode of a GPU: which processes may create CUDA contexts on it.
type Mode string

// The compute modes.
const (
	DefaultMode    Mode = "default"
	ProhibitedMode Mode = "prohibited"
	ExclusiveMode  Mode = "exclusive process"
)
