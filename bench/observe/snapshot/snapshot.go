// Package snapshot reads the memory snapshots of PyTorch, the pickles of torch.cuda.memory._dump_snapshot, and
// summarizes them. It never executes the contents of a file: see package pickle.
package snapshot

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/pickle"
)

// Snapshot is the state of PyTorch's caching allocator on every device.
type Snapshot struct {
	Segments []Segment
	// Traces are the events of each device, in order; empty unless PyTorch recorded them.
	Traces [][]Event
	// Failures are the allocations that failed, in order.
	Failures []Failure
	// AllocConf is the PYTORCH_CUDA_ALLOC_CONF of the process.
	AllocConf string
	// SimulatedBy is the program that wrote a simulated snapshot; empty for PyTorch's.
	SimulatedBy string
}

// Segment is a range of memory that the allocator allocated from the driver.
type Segment struct {
	Device     int
	Address    int64
	Total      int64
	Stream     int64
	Expandable bool
	Blocks     []Block
}

// Block is a part of a segment.
type Block struct {
	Address, Size int64
	// Requested is only valid while the block is in use.
	Requested int64
	State     string
	Frames    []Frame
}

// InUse reports whether the block belongs to a tensor.
func (b Block) InUse() bool { return b.State == "active_allocated" }

// Free reports whether the block is free for a new tensor.
func (b Block) Free() bool { return b.State == "inactive" }

// Frame is a line of the stack that allocated a block.
type Frame struct {
	File string
	Line int64
	Name string
}

// Event is an action of the allocator, such as an allocation.
type Event struct {
	Action  string
	Address int64
	Size    int64
}

// Failure is an allocation that failed.
type Failure struct {
	Device int
	// Requested is the requested bytes, Free the bytes that the driver had left.
	Requested, Free int64
	Frames          []Frame
}

// String returns the source line that requested the memory; see [Block.String].
func (f Failure) String() string { return Block{Frames: f.Frames}.String() }

// IsSnapshot reports whether a file that begins with head is a pickle of protocol 2 or newer, as snapshots are.
func IsSnapshot(head []byte) bool { return pickle.IsPickle(head) }

// Read reads a snapshot; name is for messages. The error is a [*input.FormatError] unless reading failed.
func Read(r io.Reader, name string) (*Snapshot, error) {
	data, err := input.ReadAll(r, name)
	if err != nil {
		return nil, err
	}
	return Parse(data, name)
}

// Parse parses the data of a snapshot. Its memory and time are limited in proportion to the length of data. The error
// is a [*input.FormatError].
func Parse(data []byte, name string) (*Snapshot, error) {
	if !IsSnapshot(data) {
		return nil, &input.FormatError{File: name, Reason: "not a pickle; torch.cuda.memory._dump_snapshot writes one"}
	}
	b := pickle.NewBudget(len(data))
	v, err := pickle.Read(data, knownKeys, b)
	if err != nil {
		return nil, &input.FormatError{File: name, Reason: "not a memory snapshot: " + err.Error()}
	}
	d := &decoder{budget: b, stacks: map[*pickle.List][]Frame{}}
	s := d.snapshot(v)
	if d.err != nil {
		return nil, &input.FormatError{File: name, Reason: "not a memory snapshot: " + d.err.Error()}
	}
	return s, nil
}

// Devices returns the devices that have segments, ascending.
func (s *Snapshot) Devices() []int {
	devices := lists.Map(s.Segments, func(g Segment) int { return g.Device })
	slices.Sort(devices)
	return slices.Compact(devices)
}

// String returns the source line that allocated a block: the innermost frame outside of PyTorch, else the innermost
// one; empty if no stack was recorded.
func (b Block) String() string {
	for _, f := range b.Frames {
		if f.File != "" && !strings.Contains(f.File, "/torch/") && !strings.HasPrefix(f.File, "??") {
			return fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Name)
		}
	}
	if len(b.Frames) > 0 {
		return b.Frames[0].Name
	}
	return ""
}
