package trace

import "github.com/vprof/vprof/profiler/program"

// Streams sets the names of the streams, the compute stream first. It must be called before another stream is used.
func (t *Tape) Streams(names ...string) { t.prog.Streams = names }

// RecordEvent records an event on a stream and returns its number.
func (t *Tape) RecordEvent(s program.Stream) uint32 {
	e := uint32(len(t.prog.Events))
	push(&t.prog.Events, program.Event{Stream: s})
	t.emit(program.RecordEvent, e)
	return e
}

// WaitEvent makes a stream wait for an event.
func (t *Tape) WaitEvent(s program.Stream, event uint32) {
	if t.prog.Events[event].Stream == s {
		return // its own work is in order
	}
	push(&t.prog.Waits, program.Wait{Stream: s, Event: event})
	t.emit(program.AwaitEvent, uint32(len(t.prog.Waits)-1))
}

// WaitStream makes stream s wait for all work queued on stream on so far.
func (t *Tape) WaitStream(s, on program.Stream) {
	if s != on {
		t.WaitEvent(s, t.RecordEvent(on))
	}
}

// Collective records a collective operation of a group of ranks that reads in and writes out; one of them may be nil.
func (t *Tape) Collective(w program.Work, group int64, out, in *Tensor) {
	var writes []*Tensor
	if out != nil {
		writes = append(writes, out)
	}
	if op := t.Launch(w, 0, writes, []*Tensor{in}); op != nil {
		op.GroupSize = uint32(group)
	}
}

// FreeStorage records x.untyped_storage().resize_(0), which frees the memory; x and its views stay usable as tensors.
func (x *Tensor) FreeStorage() {
	s := x.store
	if !s.blank {
		x.tape.free(s)
		s.blank = true
	}
}

// Unallocated returns a flat tensor whose storage is empty until [Tensor.AllocStorage].
func (t *Tape) Unallocated(d DType, n int64) *Tensor {
	return t.newUnallocated(d, t.contiguous([]int64{n}))
}

// AllocStorage records x.untyped_storage().resize_(bytes) if the storage is empty; op is PyTorch's operator.
func (x *Tensor) AllocStorage(op string, c program.Class) {
	s, t := x.store, x.tape
	if !s.blank || s.bytes == 0 {
		return
	}
	t.withOp(op, op, c, func() {
		fresh := t.allocate(s.bytes)
		s.buffer, s.blank = fresh.buffer, fresh.blank
		t.stores.give(fresh)
	})
}

// Part returns a contiguous view of the given shape into a flat tensor, starting at an offset in elements.
func (x *Tensor) Part(offset int64, shape ...int64) *Tensor {
	var buf [8]int64
	return x.Alias(shape, contiguousStrides(buf[:0], shape), x.offset+offset)
}

// PartLike returns a view into a flat tensor with the layout of y, starting at an offset in elements.
func (x *Tensor) PartLike(offset int64, y *Tensor) *Tensor {
	if !y.dense {
		return x.Part(offset, y.shape...)
	}
	return x.Alias(y.shape, y.strides, x.offset+offset)
}

// OnEmptyRead registers f, which allocates a tensor's empty storage. It is called before an operator reads the tensor.
func (t *Tape) OnEmptyRead(f func(x *Tensor)) {
	before := t.onEmptyRead
	t.onEmptyRead = func(x *Tensor) {
		if before != nil {
			before(x)
		}
		f(x)
	}
}

// Touch allocates the storage of x if it is empty, as an operator that reads x does; see [Tape.OnEmptyRead].
func (x *Tensor) Touch() {
	if x.tape.onEmptyRead != nil {
		x.tape.allocateEmptyReads([]*Tensor{x})
	}
}

// allocateEmptyReads calls the functions of [Tape.OnEmptyRead] for the empty storages among an operator's arguments.
func (t *Tape) allocateEmptyReads(reads []*Tensor) {
	for _, x := range reads {
		if x != nil && x.store.blank && x.store.bytes > 0 {
			at, class, stream := t.location(), t.class, t.stream
			t.stream, t.python = 0, true
			t.RunHook(func() { t.onEmptyRead(x) })
			t.resume(at)
			t.class, t.stream = class, stream
		}
	}
}

// WithoutWeightMemory runs f, which moves a model to the device, without memory for the weights: their storages stay
// empty until [Tensor.AllocStorage].
func (t *Tape) WithoutWeightMemory(f func()) { withValue(&t.unplaced, true, f) }

// SkipsWeightMemory reports whether the code runs inside [Tape.WithoutWeightMemory].
func (t *Tape) SkipsWeightMemory() bool { return t.unplaced }
