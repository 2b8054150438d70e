package trace

import (
	"fmt"
	"math/bits"

	"github.com/vprof/vprof/profiler/program"
)

// memory is the part of a tape that allocates storages, counts references to them and writes the program.
type memory struct {
	*pools
	live int64 // allocated bytes

	// quarantine is a ring of the 64 most recently freed tensors, the oldest at index oldest. Their Go objects are not
	// reused yet.
	quarantine [64]*Tensor
	oldest     int

	products [61]uint32 // indices of matrix products plus one, by a hash of their sizes

	// onEmptyRead, if set, allocates an empty storage when an operator first reads it.
	onEmptyRead func(x *Tensor)
	unplaced    bool // weights start without memory
	// savedOnHost counts the bytes in host memory that are saved for backward.
	savedOnHost onHost
}

func (t *Tape) allocate(bytes int64) *storage {
	s := t.stores.take()
	s.bytes, s.otherGPU = bytes, t.ranks.pipeline.part == OtherGPU
	if t.autograd.hooks.discards(t.native) || bytes == 0 {
		s.blank = true
		return s
	}
	if !t.ranks.isRecordedDevice() {
		t.ranks.pipeline.fill(s)
		return s
	}
	if bytes < 0 {
		panic(fmt.Sprintf("trace: %s allocates %d bytes", t.op, bytes))
	}
	if len(t.ranks.collectives) > 0 {
		t.waitForRead()
	}
	s.buffer = uint32(len(t.prog.Buffers))
	push(&t.prog.Buffers, program.Buffer{Bytes: bytes, Class: t.class, Stream: t.stream, Site: t.site()})
	t.emit(program.Alloc, s.buffer)
	if t.live += bytes; t.opts.Ceiling > 0 && t.live > t.opts.Ceiling {
		t.Raise(ErrCeiling)
	}
	return s
}

// drop removes a tensor's reference to a storage. The last one frees the storage.
func (t *Tape) drop(s *storage) {
	s.refs--
	if s.refs > 0 {
		return
	}
	if !s.blank && !s.received {
		t.free(s)
	}
	if t.autograd.hooks.unwinding { // the unwinding may still make views of it, which hold no memory
		s.blank = true
		return
	}
	t.stores.give(s)
}

func (t *Tape) free(s *storage) {
	t.live -= s.bytes
	t.emit(program.Free, s.buffer)
}

// newHeader makes a tensor on a storage, which becomes a temporary of the running C++ call, if there is one.
func (t *Tape) newHeader(s *storage, d DType, l *layout, offset int64) *Tensor {
	x := t.newBareHeader(s, d, l, offset)
	if !t.python {
		t.list(x)
	}
	return x
}

// newBareHeader makes a tensor on a storage that no call holds.
func (t *Tape) newBareHeader(s *storage, d DType, l *layout, offset int64) *Tensor {
	x := t.tensors.take()
	x.layout, x.tape, x.store, x.dtype, x.offset = l, t, s, d, offset
	s.refs++
	return x
}

// list adds a temporary to the running call.
func (t *Tape) list(x *Tensor) {
	x.listed++
	t.temps = append(t.temps, x)
}

// retire puts a tensor without references into quarantine, so that a model that still uses it is detected. Tensors
// freed while a recomputation unwinds are not reused, since the unwinding code still reads them.
func (t *Tape) retire(x *Tensor) {
	if t.autograd.hooks.unwinding {
		return
	}
	x.layout, x.store = expiredLayout, nil
	if old := t.quarantine[t.oldest]; old != nil {
		t.tensors.give(old)
	}
	t.quarantine[t.oldest] = x
	t.oldest = (t.oldest + 1) % len(t.quarantine)
}

func (t *Tape) layout(shape, strides []int64) *layout { return t.layouts.find(shape, strides) }

// contiguous returns the row-major layout of a shape.
func (t *Tape) contiguous(shape []int64) *layout {
	var buf [8]int64
	return t.layout(shape, contiguousStrides(buf[:0], shape))
}

func (t *Tape) channelsLast(shape []int64) *layout {
	var buf [8]int64
	return t.layout(shape, channelsLastStrides(buf[:0], shape))
}

// newTensor returns a tensor with a new storage that ends with its last element.
func (t *Tape) newTensor(d DType, l *layout) *Tensor {
	if l.numel > mostElements {
		t.Raise(fmt.Errorf("RuntimeError: Storage size calculation overflowed with sizes=%v", l.shape))
	}
	return t.newHeader(t.allocate(l.extent*d.Size()), d, l, 0)
}

// Alloc returns a new row-major tensor.
func (t *Tape) Alloc(d DType, shape ...int64) *Tensor { return t.newTensor(d, t.contiguous(shape)) }

// AllocStrided returns a new tensor with the given strides.
func (t *Tape) AllocStrided(d DType, shape, strides []int64) *Tensor {
	return t.newTensor(d, t.layout(shape, strides))
}

// AllocLike records torch.empty_like with preserved strides.
func (x *Tensor) AllocLike(d DType) *Tensor {
	if x.dense {
		return x.tape.newTensor(d, x.layout)
	}
	return x.tape.elementwise(d, x)
}

// newUnallocated returns a tensor whose storage is empty until [Tensor.AllocStorage].
func (t *Tape) newUnallocated(d DType, l *layout) *Tensor {
	s := t.stores.take()
	s.bytes, s.blank = l.numel*d.Size(), true
	return t.newHeader(s, d, l, 0)
}

// Alias returns another tensor on the storage of x, without autograd history.
func (x *Tensor) Alias(shape, strides []int64, offset int64) *Tensor {
	return x.tape.newHeader(x.store, x.dtype, x.tape.layout(shape, strides), offset)
}

// withoutHistory returns another tensor like x on its storage, without autograd history.
func (x *Tensor) withoutHistory() *Tensor {
	return x.tape.newHeader(x.store, x.dtype, x.layout, x.offset)
}

// scratch allocates temporary memory of a library or kernel until the running call ends its statement.
func (t *Tape) scratch(bytes int64) *Tensor { return t.Alloc(U8, bytes) }

// AllocWorkspace allocates temporary memory of a library in the workspace class.
func (t *Tape) AllocWorkspace(bytes int64) *Tensor {
	w := t.scratch(bytes)
	w.classify(program.Workspace)
	return w
}

// Host counts the host memory that a rank uses for offloading throughout training.
type Host struct {
	Weights   int64 `json:"weights,omitempty"`
	Gradients int64 `json:"gradients,omitempty"`
	// State is the bytes of the optimizer's state. The optimizer updates Stepped bytes of weights on the host.
	State   int64 `json:"state,omitempty"`
	Stepped int64 `json:"stepped,omitempty"`
	// Rounding is the excess of page-locked memory over the bytes in use: blocks are larger than requested, and cached
	// when freed.
	Rounding int64 `json:"rounding,omitempty"`
}

// Pin adds a tensor in page-locked memory to a field of h.
func (h *Host) Pin(part *int64, bytes int64) {
	*part += bytes
	h.Rounding += pinnedBlockSize(bytes) - bytes
}

// Cache counts a freed block, which the page-locked memory allocator caches.
func (h *Host) Cache(bytes int64) { h.Rounding += pinnedBlockSize(bytes) }

// pinnedBlockSize returns the size of a block of page-locked memory, a power of two
// (aten/src/ATen/core/CachingHostAllocator.h, allocate).
func pinnedBlockSize(bytes int64) int64 {
	if bytes <= 0 {
		return 0
	}
	return 1 << bits.Len64(uint64(bytes-1))
}

// Host returns the counts of host memory, to which the caller may add.
func (t *Tape) Host() *Host { return &t.facts.Host }

// onHost counts copies of saved tensors in host memory.
type onHost struct{ bytes, pinned int64 }

// saveOnHost counts a copy of a saved tensor; with a sign of -1, its removal.
func (t *Tape) saveOnHost(bytes, sign int64) {
	h := &t.savedOnHost
	h.bytes += sign * bytes
	h.pinned += sign * pinnedBlockSize(bytes)
	t.facts.HostSaved, t.facts.HostPinned = max(t.facts.HostSaved, h.bytes), max(t.facts.HostPinned, h.pinned)
}
