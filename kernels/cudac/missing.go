//go:build !cgo || !linux

package cudac

// Available reports whether this build can run kernels.
const Available = false

// Missing is the reason why this build cannot run kernels; empty if it can.
const Missing = "running kernels on the CPU takes cgo, a C++ compiler and Linux"

// A Buffer is memory that kernels may access.
type Buffer struct{}

// NewBuffer panics: this build cannot run kernels.
func NewBuffer(int) *Buffer { panic(Missing) }

// NewSparse panics: this build cannot run kernels.
func NewSparse(int64) (*Buffer, error) { panic(Missing) }

// Free frees nothing.
func (b *Buffer) Free() {}

// Address returns the first byte's address, as kernels see it.
func (b *Buffer) Address() uint64 { return 0 }

// Bytes returns nil.
func (b *Buffer) Bytes() []byte { return nil }

// Reads returns the number of times that kernels read byte i.
func (b *Buffer) Reads(int) int { return 0 }

// Writes returns the number of times that kernels wrote byte i.
func (b *Buffer) Writes(int) int { return 0 }

// ClearMarks clears the counts of reads and writes.
func (b *Buffer) ClearMarks() {}

// Arguments returns the size in bytes of a kernel's arguments.
func Arguments(int, string) (int, bool) { return 0, false }

// Run panics: this build cannot run kernels.
func Run(Launch) error { panic(Missing) }
