// Package device describes what a GPU is. A [Device] is one that programs are replayed on: simulated
// ([github.com/vprof/vprof/profiler/device/sim]) or real. A [GPU] of the catalog describes one that need not be there.
package device

import (
	"fmt"
	"strings"
	"time"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/program"
)

// A Device is a GPU with its memory and one queue of work. Fills, copies and launches run in the order of the calls,
// after the calls have returned; their errors may show only at a later call, at the latest in Synchronize. A Device is
// not safe for concurrent use.
type Device interface {
	// Name is the name under which users select the device: "sim:rtx-5060-ti", "cuda:0".
	Name() string
	// GPU describes the GPU. Rates of a real one that the catalog does not know are zero.
	GPU() GPU
	// Simulated reports whether times and bytes are computed by a model. What such a
	// device says must never be called measured.
	Simulated() bool

	// PagedSource is the device's memory, as the caching allocator uses it. An error for lack of memory wraps
	// [allocator.ErrOutOfMemory].
	allocator.PagedSource
	// AvailableBytes is the number of bytes that are not in use, as cudaMemGetInfo reports it. The rest of Total is in
	// use, also by the CUDA context and other processes.
	AvailableBytes() (int64, error)

	// Fill sets bytes at dst to a value.
	Fill(dst uint64, value byte, bytes int64) error
	// Launch runs a kernel. The device does not keep k's slices.
	Launch(k Kernel) error

	// Synchronize waits until the queue is empty.
	Synchronize() error
	// Record puts an event into the queue.
	Record() (Event, error)

	// Close releases everything that the device holds.
	Close() error
}

// A Streamer is a device whose streams of work run in parallel. Other devices do all work in the order of the calls,
// which satisfies every wait.
type Streamer interface {
	// RecordOn puts an event into the queue of a stream.
	RecordOn(s program.Stream) (Event, error)
	// Await holds up a stream until an event was reached.
	Await(s program.Stream, e Event) error
}

// A Verifier is a device whose memory can be tested with patterns.
type Verifier interface {
	// Patterns prepares for writing and verifying patterns.
	Patterns() (Patterns, error)
}

// Patterns write and check patterns in memory: one that is found again shows that no other process writes there.
type Patterns interface {
	// Write fills a range with a pattern that follows from a seed and each byte's place.
	Write(r Range, seed uint64) error
	// Verify waits, compares a range with a seed's pattern on the device, and returns a [*PatternError] if they differ.
	Verify(r Range, seed uint64) error
	// Close releases the memory of the verification itself.
	Close() error
}

// A PatternError reports that memory does not hold the pattern that was written.
type PatternError struct {
	Range Range
	// Offset is the position of the first difference, within 16 bytes, and Bytes the number of bytes that may differ.
	Offset, Bytes int64
}

func (e *PatternError) Error() string {
	return fmt.Sprintf("%d bytes at %#x do not hold what was written: up to %d bytes differ, the first at byte %d",
		e.Range.Bytes, e.Range.Addr, e.Bytes, e.Offset)
}

// An Event is a point in a device's queue of work.
type Event interface {
	// Since waits until the queue has reached the event, and returns the device's time since an earlier event.
	Since(earlier Event) (time.Duration, error)
	// Close releases the event.
	Close() error
}

// A Kernel is the work of one launch: the bytes to read and write and the operations to compute. A synthetic kernel
// with this work takes as long as the op that it replaces.
type Kernel struct {
	Work      program.Work
	Precision program.Precision
	// FLOPs counts a multiply-add as two.
	FLOPs int64
	// M, N, K and Batch are the matrix product that the op amounts to, zero if it is none.
	M, N, K, Batch int64
	// Window is the geometry of a convolution in two dimensions, zero for other operations.
	Window program.Window
	// Stream is the queue that the kernel waits in.
	Stream program.Stream
	// Sent is the number of bytes sent to other GPUs: zero but for collectives. A device that is alone copies from
	// Reads to Writes instead.
	Sent int64
	// Reads and Writes are the ranges of memory that the kernel reads and writes.
	Reads, Writes []Range
}

// A Range is a stretch of device memory.
type Range struct {
	Addr  uint64
	Bytes int64
}

// Traffic returns the number of bytes that the kernel reads and writes.
func (k Kernel) Traffic() int64 {
	bytes := func(r Range) int64 { return r.Bytes }
	return lists.Sum(k.Reads, bytes) + lists.Sum(k.Writes, bytes)
}

// An UnusableError reports why a requested GPU cannot be used, and what to do. The cause is the machine, not the
// program: no driver, no such device, a GPU that another process uses exclusively.
type UnusableError struct {
	// Device is the requested device: "cuda:0", or "cuda" for all.
	Device string
	// Reason describes what is in the way, and Remedy what to do, each in a clause; Remedy may be empty.
	Reason, Remedy string
	// Err is the driver's error; nil if there is none.
	Err error
}

func (e *UnusableError) Error() string {
	var b strings.Builder
	b.WriteString(e.Device + ": " + e.Reason)
	if e.Err != nil {
		b.WriteString(" (" + e.Err.Error() + ")")
	}
	if e.Remedy != "" {
		b.WriteString("; " + e.Remedy)
	}
	return b.String()
}

func (e *UnusableError) Unwrap() error { return e.Err }

// A DefectError reports a GPU that runs but is wrong: memory that does not keep its contents, or results that differ
// from the CPU's.
type DefectError struct {
	// Device is the name of the device, "cuda:0".
	Device string
	// Finding describes the wrong result.
	Finding string
}

func (e *DefectError) Error() string {
	return e.Device + ": the GPU gives wrong results: " + e.Finding +
		"; look for memory errors (nvidia-smi -q -d ECC) and Xids (dmesg | grep -i xid), and use another GPU"
}
