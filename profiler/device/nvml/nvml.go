// Package nvml reads the state of this machine's GPUs from NVIDIA's management library: memory of the GPU and of each
// process, utilization, clocks, temperature, power, and why a GPU runs slower than it could.
//
// NVML needs no CUDA context and allocates no device memory, so its values can be compared with the driver's. The
// library is loaded at run time. That a machine has none is an ordinary result: [Open] returns an error that wraps
// [ErrNoDriver]. Without cgo, or elsewhere than on Linux, it returns [ErrNotBuilt].
package nvml

import "errors"

var (
	// ErrNoDriver means that there is no NVIDIA driver on this machine.
	ErrNoDriver = errors.New("no NVIDIA driver")
	// ErrNotBuilt means that the binary was built without NVML.
	ErrNotBuilt = errors.New(
		"this vprof was built without cgo and cannot ask NVML; build it with a C compiler (make build)")
)

// Versions are the versions that the driver reports.
type Versions struct {
	// Driver is the driver's release, "580.65.06"; NVML the library's.
	Driver, NVML string
}

// A Reading is the state of a GPU at one moment. What a GPU or its driver does not report is nil.
type Reading struct {
	Memory Memory
	// Processes are the processes that use the GPU, by process number.
	Processes []Process
	// GPUPercent is the share of the last sample period, up to a second, in which a kernel ran; MemoryPercent that in
	// which memory was read or written.
	GPUPercent, MemoryPercent *int
	// SMMHz is the clock of the multiprocessors.
	SMMHz   *int
	Celsius *int
	// Milliwatts is the power drawn, LimitMilliwatts what is enforced.
	Milliwatts, LimitMilliwatts *int
	// Slowdowns are the reasons for reduced clocks, nil if there are none.
	Slowdowns []Slowdown
	// Impossible are values that were left out since no GPU has them: "nvmlDeviceGetTemperature reports 4294967291".
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
	// Total is the GPU's memory in bytes. Reserved is the driver's own share, Used that of contexts. An old driver
	// counts its share in Used and reports a Reserved of zero.
	Total, Reserved, Used int64
	// Shared reports whether the memory is the host's. Used then counts only what the listed processes hold on the GPU.
	Shared bool
}

// UsedByProcesses returns the memory in bytes that contexts of programs hold. Visible is the total that programs see of
// the GPU. An old driver counts its own share of the memory as used; that share is what programs do not see, and is
// subtracted.
func (m Memory) UsedByProcesses(visible int64) int64 {
	if m.Reserved > 0 || m.Shared {
		return m.Used
	}
	return max(0, m.Used-max(0, m.Total-visible))
}

// A Process is one that uses a GPU.
type Process struct {
	// PID is its number as the driver sees it; in a container that is not the one that the process itself sees.
	PID int
	// Name is the name of its program, without the folder, with U+FFFD for what is not printable; empty if NVML does
	// not tell, as of the processes of other users.
	Name string
	// Used is the device memory it holds in bytes, -1 if NVML does not report it.
	Used int64
	// Computes reports whether it uses the GPU for computing, not only to draw.
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

// slowdowns is the reason for each bit of NVML's mask.
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

// Mode is the compute mode of a GPU: which processes may make CUDA contexts on it.
type Mode string

// The compute modes.
const (
	DefaultMode    Mode = "default"
	ProhibitedMode Mode = "prohibited"
	ExclusiveMode  Mode = "exclusive process"
)
