package device

import (
	"cmp"
	"fmt"
	"time"

	"github.com/vprof/vprof/internal/bytesize"
)

// An Observer is a device that can report other users of its GPU.
type Observer interface {
	// Baseline returns the GPU memory in use before the program's first segment.
	Baseline() Baseline
	// ProcessMemory returns this process's GPU memory by NVML, in bytes, with its context; false if unknown.
	ProcessMemory() (bytes int64, ok bool)
	// Neighbors are the other processes that use the GPU now, as far as they can be seen.
	Neighbors() []Neighbor
}

// A Limiter is a device that can be told to leave memory to others.
type Limiter interface {
	// LeaveFree makes allocations fail that would leave fewer free bytes than these.
	LeaveFree(bytes int64)
	// FreeLimit returns the number of bytes that allocations must leave free.
	FreeLimit() int64
}

// A DriverReporter is a device with a driver below it.
type DriverReporter interface {
	Driver() Driver
}

// A TimeFloor is a device that computes a lower bound of the time of its work from the GPU's speed.
type TimeFloor interface {
	// Floor returns that time for everything launched so far; the difference of two is the time of the launches between
	// them. It stays zero on a GPU whose speed is not known.
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

// A Driver is the NVIDIA driver below a device.
type Driver struct {
	// Release is the driver's version, "580.65.06"; empty if unknown.
	Release string
	// CUDA is the newest version of CUDA that the driver supports, "13.0".
	CUDA string
}

// An IdentityReporter is a device that can be told from others of its kind.
type IdentityReporter interface {
	Identity() Identity
}

// An Identity identifies the physical GPU of a device.
type Identity struct {
	// UUID is the driver's identifier of the GPU, "GPU-...", or of the slice of one, "MIG-..."; empty if unknown.
	UUID string
	// MIG reports whether the device is a slice of a GPU (multi-instance GPU).
	MIG bool
}

// A Baseline is memory of a GPU that is in use without any segment, in bytes.
type Baseline struct {
	// Others is the memory that was in use before the context was made. It is only known if OthersKnown; else it is the
	// memory in use beyond the catalog's context.
	Others      int64
	OthersKnown bool
	// Context is the memory that making the context took, Kernels the memory that loading the kernels took.
	Context, Kernels int64
}

// Total returns all that is in use.
func (b Baseline) Total() int64 { return b.Others + b.Context + b.Kernels }

// A SharingReporter is a device that reports software that divides its GPU among processes (MPS) or machines (vGPU).
type SharingReporter interface {
	// SharingSoftware returns a sentence without its full stop for each such software.
	SharingSoftware() []string
}

// A Neighbor is another process on a GPU. One without a PID represents all processes that are not listed: a container
// does not list processes of the host and of other containers.
type Neighbor struct {
	PID int
	// Name is the name of its program, empty if it is not known.
	Name string
	// Used is the memory it holds in bytes, -1 if it is not known.
	Used int64
	// Computes reports whether it uses the GPU for computing, not only to draw.
	Computes bool
}

// String names the process and what it holds: "python3 (1234), which holds 2.00 GiB".
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
