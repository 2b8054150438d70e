//go:build cgo && linux

package cudac

// #cgo CXXFLAGS: -std=c++17 -O2 -Wno-unknown-pragmas
// #cgo LDFLAGS: -lstdc++ -lm
// #include <stdlib.h>
// #include "run.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"unsafe"
)

// Available reports whether kernels can be run here.
const Available = true

// Missing names what this build needs to run kernels; empty if it can.
const Missing = ""

// running serializes what uses the one CPU: its state is global.
var running sync.Mutex

// A Buffer is memory that kernels may access.
type Buffer struct {
	r     *C.host_range
	bytes []byte
	marks []uint8
}

// NewBuffer makes a buffer of n bytes, aligned as the driver's are.
func NewBuffer(n int) *Buffer {
	const alignment = 512
	// A byte more, so that an empty buffer has an address, too.
	size := C.size_t((n + alignment) / alignment * alignment)
	data, marks := C.aligned_alloc(alignment, size), C.calloc(size, 1)
	b := &Buffer{r: (*C.host_range)(C.calloc(1, C.sizeof_host_range))}
	b.r.data, b.r.bytes, b.r.marks = (*C.char)(data), C.size_t(n), (*C.uchar)(marks)
	b.bytes, b.marks = unsafe.Slice((*byte)(data), n), unsafe.Slice((*uint8)(marks), n)
	clear(b.bytes)
	running.Lock()
	defer running.Unlock()
	C.host_register(b.r)
	return b
}

// NewSparse returns a buffer of n zero bytes that uses host memory only where it is accessed, and counts no accesses.
func NewSparse(n int64) (*Buffer, error) {
	bytes, err := syscall.Mmap(-1, 0, int(n), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	b := &Buffer{r: (*C.host_range)(C.calloc(1, C.sizeof_host_range)), bytes: bytes}
	b.r.data, b.r.bytes = (*C.char)(unsafe.Pointer(unsafe.SliceData(bytes))), C.size_t(n)
	running.Lock()
	defer running.Unlock()
	C.host_register(b.r)
	return b, nil
}

// Free ends the buffer.
func (b *Buffer) Free() {
	running.Lock()
	defer running.Unlock()
	C.host_forget(b.r)
	if b.marks == nil {
		_ = syscall.Munmap(b.bytes) // the slice is what Mmap returned
		C.free(unsafe.Pointer(b.r))
		return
	}
	C.free(unsafe.Pointer(b.r.data))
	C.free(unsafe.Pointer(b.r.marks))
	C.free(unsafe.Pointer(b.r))
}

// Address returns the first byte's address, as kernels see it.
func (b *Buffer) Address() uint64 { return uint64(uintptr(unsafe.Pointer(b.r.data))) }

// Bytes returns the memory itself.
func (b *Buffer) Bytes() []byte { return b.bytes }

// Reads and Writes return how often kernels read and wrote byte i since the marks were cleared, 15 at most.
func (b *Buffer) Reads(i int) int { return int(b.marks[i] & 15) }

// Writes returns the number of times that kernels wrote byte i.
func (b *Buffer) Writes(i int) int { return int(b.marks[i] >> 4) }

// ClearMarks clears the counts of reads and writes.
func (b *Buffer) ClearMarks() { clear(b.marks) }

// Arguments returns the size of a kernel's arguments in bytes, and whether there is such a kernel.
func Arguments(arch int, name string) (int, bool) {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	n := C.host_arguments(C.int(arch), cname)
	return int(n), n >= 0
}

// Run runs a launch to its end. The error reports an access outside of all buffers or beyond the requested shared
// memory, or a block in which some threads never reach a barrier.
func Run(l Launch) error {
	if n, ok := Arguments(l.Arch, l.Name); !ok || n != 8*len(l.Args) {
		return fmt.Errorf("kernel %s on sm_%d got %d bytes of arguments, and needs %d",
			l.Name, l.Arch, 8*len(l.Args), n)
	}
	name := C.CString(l.Name)
	defer C.free(unsafe.Pointer(name))
	flags := C.int(C.HOST_CHECKED)
	if l.Backward {
		flags |= C.HOST_BACKWARD
	}
	running.Lock()
	defer running.Unlock()
	problem := C.host_launch(C.int(l.Arch), name, (*C.uint)(&l.Grid[0]), (*C.uint)(&l.Block[0]), C.uint(l.Shared),
		unsafe.Pointer(unsafe.SliceData(l.Args)), C.ulonglong(l.First), flags)
	if problem != nil {
		return fmt.Errorf("%s on sm_%d: %w", l.Name, l.Arch, errors.New(C.GoString(problem)))
	}
	return nil
}
