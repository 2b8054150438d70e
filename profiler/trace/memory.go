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

	// quarantine is a ring of the 64 tensors that ended last, with the oldest at index
	// oldest. They are not reused while they are in it.
	quarantine [64]*Tensor
	oldest     int

	products [61]uint32 // indices of matrix products plus one, by a hash of their sizes

	// onEmptyRead allocates an empty storage when an operator first reads it.
	onEmptyRead func(x *Tensor)
	unplaced    bool // weights start without memory
	// savedOnHost counts the bytes in host memory that backward needs.
	savedOnHost onHost
}

func (t *Tape) allocate(bytes int64) *storage {
	s := t.stores.take()
	s.bytes, s.otherGPU = bytes, t.ranks.pipeline.part == OtherGPU
	if t.autograd.hooks.discards(t.native) || bytes == 0 {
		s.blank = true
		return s
	}
	if !t.ranks.here() {
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

// drop removes one tensor's reference to a storage; the last one frees it.
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

// header makes a tensor over a storage. It is a temporary of the running C++ activation, if there is one.
func (t *Tape) header(s *storage, d DType, l *layout, offset int64) *Tensor {
	x := t.bareHeader(s, d, l, offset)
	if !t.python {
		t.list(x)
	}
	return x
}

// bareHeader returns a header that no activation holds.
func (t *Tape) bareHeader(s *storage, d DType, l *layout, offset int64) *Tensor {
	x := t.tensors.take()
	x.layout, x.tape, x.store, x.dtype, x.offset = l, t, s, d, offset
	s.refs++
	return x
}

// list adds a temporary to the running activation.
func (t *Tape) list(x *Tensor) {
	x.listed++
	t.temps = append(t.temps, x)
}

// retire delays the reuse of a tensor without references until 64 others have ended, so a model that still uses it is
// detected. Tensors that end while a recomputation unwinds are not reused, since the unwinding code still reads them.
func (t *Tape) retire(x *Tensor) {
	if t.autograd.hooks.unwinding {
		return
	}
	x.layout, x.store = expired, nil
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

// fresh returns a tensor with its own storage, from its first to its last element.
func (t *Tape) fresh(d DType, l *layout) *Tensor {
	if l.numel > mostElements {
		t.Raise(fmt.Errorf("RuntimeError: Storage size calculation overflowed with sizes=%v", l.shape))
	}
	return t.header(t.allocate(l.extent*d.Size()), d, l, 0)
}

// Alloc returns a fresh row-major tensor.
func (t *Tape) Alloc(d DType, shape ...int64) *Tensor { return t.fresh(d, t.contiguous(shape)) }

// AllocStrided returns a fresh tensor with the given strides.
func (t *Tape) AllocStrided(d DType, shape, strides []int64) *Tensor {
	return t.fresh(d, t.layout(shape, strides))
}

// AllocLike records torch.empty_like with preserved strides.
func (x *Tensor) AllocLike(d DType) *Tensor {
	if x.dense {
		return x.tape.fresh(d, x.layout)
	}
	return x.tape.elementwise(d, x)
}

// unallocated returns a tensor whose storage is empty until [Tensor.AllocStorage].
func (t *Tape) unallocated(d DType, l *layout) *Tensor {
	s := t.stores.take()
	s.bytes, s.blank = l.numel*d.Size(), true
	return t.header(s, d, l, 0)
}

// Alias returns another header over the storage of x, without history.
func (x *Tensor) Alias(shape, strides []int64, offset int64) *Tensor {
	return x.tape.header(x.store, x.dtype, x.tape.layout(shape, strides), offset)
}

// detached returns a header like x without history.
func (x *Tensor) detached() *Tensor { return x.tape.header(x.store, x.dtype, x.layout, x.offset) }

// scratch allocates scratch memory of a library or kernel as a temporary of the running activation.
func (t *Tape) scratch(bytes int64) *Tensor { return t.Alloc(U8, bytes) }

// AllocWorkspace allocates scratch memory of a library, in the class of workspaces.
func (t *Tape) AllocWorkspace(bytes int64) *Tensor {
	w := t.scratch(bytes)
	w.classify(program.Workspace)
	return w
}

// Host counts the bytes that a rank offloads to host memory for the whole of training.
type Host struct {
	Weights   int64 `json:"weights,omitempty"`
	Gradients int64 `json:"gradients,omitempty"`
	// State is the optimizer's state. The optimizer updates Stepped bytes of weights on the host.
	State   int64 `json:"state,omitempty"`
	Stepped int64 `json:"stepped,omitempty"`
	// Rounding is the excess of page-locked memory over the bytes in use: blocks are
	// larger than requested, and freed ones stay allocated.
	Rounding int64 `json:"rounding,omitempty"`
}

// Pin adds a tensor in page-locked memory to a part of h.
func (h *Host) Pin(part *int64, bytes int64) {
	*part += bytes
	h.Rounding += pinned(bytes) - bytes
}

// Cache adds a freed block, which the allocator of page-locked memory keeps.
func (h *Host) Cache(bytes int64) { h.Rounding += pinned(bytes) }

// pinned returns the size of a block of page-locked memory, a power of two
// (aten/src/ATen/core/CachingHostAllocator.h, allocate).
func pinned(bytes int64) int64 {
	if bytes <= 0 {
		return 0
	}
	return 1 << bits.Len64(uint64(bytes-1))
}

// Host returns the offloaded bytes for the caller to add to.
func (t *Tape) Host() *Host { return &t.facts.Host }

// onHost counts the copies of saved tensors in host memory.
type onHost struct{ bytes, pinned int64 }

// saveOnHost adds a copy, or with a sign of -1 removes one.
func (t *Tape) saveOnHost(bytes, sign int64) {
	h := &t.savedOnHost
	h.bytes += sign * bytes
	h.pinned += sign * pinned(bytes)
	t.facts.HostSaved, t.facts.HostPinned = max(t.facts.HostSaved, h.bytes), max(t.facts.HostPinned, h.pinned)
}
