package trace

import "github.com/vprof/vprof/profiler/program"

// Streams names the streams of the recording, the computing one first. It is called
// before anything runs on another.
func (t *Tape) Streams(names ...string) { t.prog.Streams = names }

// RecordEvent puts an event into the queue of a stream.
func (t *Tape) RecordEvent(s program.Stream) uint32 {
	e := uint32(len(t.prog.Events))
	push(&t.prog.Events, program.Event{Stream: s})
	t.emit(program.Record, e)
	return e
}

// WaitEvent holds up a stream until an event was reached.
func (t *Tape) WaitEvent(s program.Stream, event uint32) {
	if t.prog.Events[event].Stream == s {
		return // its own work is in order
	}
	push(&t.prog.Waits, program.Wait{Stream: s, Event: event})
	t.emit(program.Await, uint32(len(t.prog.Waits)-1))
}

// WaitStream holds up a stream until another has done all it was given so far.
func (t *Tape) WaitStream(s, on program.Stream) {
	if s != on {
		t.WaitEvent(s, t.RecordEvent(on))
	}
}

// Collective records a collective of a group of ranks: it reads in and writes out, of
// which one may be nil.
func (t *Tape) Collective(w program.Work, group int64, out, in *Tensor) {
	var writes []*Tensor
	if out != nil {
		writes = append(writes, out)
	}
	if op := t.launch(w, 0, writes, []*Tensor{in}); op != nil {
		op.Group = uint32(group)
	}
}

// FreeStorage is untyped_storage().resize_(0): the memory goes, the tensors over it
// stay.
func (x *Tensor) FreeStorage() {
	s := x.store
	if !s.blank {
		x.tape.free(s)
		s.blank = true
	}
}

// Unallocated returns a flat tensor whose storage is empty until [Tensor.AllocStorage].
func (t *Tape) Unallocated(d DType, n int64) *Tensor {
	return t.unallocated(d, t.contiguous([]int64{n}))
}

// AllocStorage is untyped_storage().resize_() to what the tensor needs, if its storage
// is empty; op is what PyTorch calls.
func (x *Tensor) AllocStorage(op string, c program.Class) {
	s, t := x.store, x.tape
	if !s.blank || s.bytes == 0 {
		return
	}
	t.as(op, op, c, func() {
		fresh := t.allocate(s.bytes)
		s.buffer, s.blank = fresh.buffer, fresh.blank
		t.stores.give(fresh)
	})
}

// Part returns a view of n elements of a flat tensor, from an offset on, in a shape.
func (x *Tensor) Part(offset int64, shape ...int64) *Tensor {
	var buf [8]int64
	return x.alias(shape, contiguousStrides(buf[:0], shape), x.offset+offset)
}

// PartLike returns a view of a flat tensor, from an offset on, laid out as another tensor is.
func (x *Tensor) PartLike(offset int64, y *Tensor) *Tensor {
	if !y.dense {
		return x.Part(offset, y.shape...)
	}
	return x.alias(y.shape, y.strides, x.offset+offset)
}

// OnEmptyRead has f called with a tensor that an op is about to read and whose storage is
// empty. It is to allocate it.
func (t *Tape) OnEmptyRead(f func(x *Tensor)) {
	before := t.onEmptyRead
	t.onEmptyRead = func(x *Tensor) {
		if before != nil {
			before(x)
		}
		f(x)
	}
}

// Touch has the storage of x allocated if it is empty, as an op that reads it does; see [Tape.OnEmptyRead].
func (x *Tensor) Touch() {
	if x.tape.onEmptyRead != nil {
		x.tape.fetch([]*Tensor{x})
	}
}

// fetch has empty storages of what an op reads allocated.
func (t *Tape) fetch(reads []*Tensor) {
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

// Unplaced runs f, which brings a model to the device, without memory for its weights:
// their storages are empty until [Tensor.AllocStorage].
func (t *Tape) Unplaced(f func()) { during(&t.unplaced, true, f) }

// Unplacing says that a model's weights get no memory for now, as [Tape.Unplaced] has it.
func (t *Tape) Unplacing() bool { return t.unplaced }
