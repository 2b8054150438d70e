package device

import (
	"cmp"
	"fmt"
	"time"

	"github.com/vprof/vprof/internal/bytesize"
)

// An Observer is a device that can report other users of its GPU.
type Observer interface {
	// Baseline returns the GPU memory in use before the program's first segment was allocated.
	Baseline() Baseline
	// ProcessMemory returns this process's GPU memory with its context, as NVML reports it, in bytes; false if unknown.
	ProcessMemory() (bytes int64, ok bool)
	// Neighbors returns the other processes on the GPU, as far as they are visible.
	Neighbors() []Neighbor
}

// A Limiter is a device on which a program can leave memory to other processes.
type Limiter interface {
	// LeaveFree makes allocations fail if fewer than this number of bytes would remain free.
	LeaveFree(bytes int64)
	// FreeLimit returns the number of bytes that allocations must leave free.
	FreeLimit() int64
}

// A DriverReporter is a device that reports its driver.
type DriverReporter interface {
	Driver() Driver
}

// A TimeFloor is a device that computes a lower bound for the time of its work from the GPU's speed.
type TimeFloor interface {
	// Floor returns the lower bound for everything launched so far; the difference of two is for the launches between
	// them. It stays zero on a GPU of unknown speed.
	Floor() time.Duration
}

// A ClockReporter is a device that reports its GPU's clocks.
type ClockReporter interface {
	// Clocks returns the current clocks; false if they are unknown.
	Clocks() (Clocks, bool)
}

// Clocks are the clocks of a GPU in MHz, zero if it does not report them, and the reasons for lower clocks: "power
// cap", "thermal".
type Clocks struct {
	SM, Memory int
	Slowdowns  []string
}

// A Driver describes the NVIDIA driver of a device.
type Driver struct {
	// Release is the driver's version, "580.65.06"; empty if unknown.
	Release string
	// CUDA is the newest version of CUDA that the driver supports, "13.0".
	CUDA string
}

// An IdentityReporter is a device that reports which physical GPU it is.
type IdentityReporter interface {
	Identity() Identity
}

// An Identity identifies the physical GPU of a device.
type Identity struct {
	// UUID is the driver's identifier of the GPU ("GPU-...") or MIG slice ("MIG-..."); empty if unknown.
	UUID string
	// MIG reports whether the device is a MIG slice of a GPU.
	MIG bool
}

// A Baseline is the GPU memory in use before any segment is allocated, in bytes.
type Baseline struct {
	// Others is the memory in use before the context was created. It is only known if OthersKnown is true; otherwise it
	// is the memory in use beyond the catalog's context size.
	Others      int64
	OthersKnown bool
	// Context is the memory that creating the context took, Kernels the memory that loading the kernels took.
	Context, Kernels int64
}

// Total returns the sum of all fields in bytes.
func (b Baseline) Total() int64 { return b.Others + b.Context + b.Kernels }

// A SharingReporter is a device that reports software that shares its GPU among processes (MPS) or machines (vGPU).
type SharingReporter interface {
	// SharingSoftware returns a sentence, without a full stop, about each such software.
	SharingSoftware() []string
}

// A Neighbor is another process on a GPU. A Neighbor without a PID represents all processes that are not listed: a
// container lists no processes of the host and of other containers.
type Neighbor struct {
	PID int
	// Name is the name of the process's program; empty if unknown.
	Name string
	// Used is the process's GPU memory in bytes; -1 if unknown.
	Used int64
	// Computes reports whether the process uses the GPU for computing, and not only for graphics.
	Computes bool
}

// String describes the process and its memory: "python3 (1234), which holds 2.00 GiB".
func (n Neighbor) String() string {
	if n.PID == 0 {
		return "processes that are not listed, as those outside a container, which hold about " +
			bytesize.Format(n.Used)
	}
	name := n.Name
	name = cmp.Or(name, "a process")
	s := fmt.Sprintf("%s (%d)", name, n.PID)
	if n.Used >= 0 {
		s += ", which holds " + bytesize.Format(n.Used)
	}
	return s
}
