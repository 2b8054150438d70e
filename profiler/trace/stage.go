package trace

import "github.com/vprof/vprof/profiler/program"

// StagePart says which stages of a pipeline the code belongs to that runs, as one rank sees it.
type StagePart uint8

// A rank runs its own stage. The code of the stages before and after runs with it, to find out which tensors cross a
// boundary: its tensors have shapes and no memory, and it launches no kernels.
const (
	OwnStage StagePart = iota
	EarlierStages
	LaterStages
	// OtherGPU is what other GPUs of the same process run ([Tape.Spread]), which is part of the same graph.
	OtherGPU
)

// A StageBoundary is told of the tensors that one stage computes and another reads.
type StageBoundary interface {
	// Receive is called before the rank's own stage reads a tensor that has no memory.
	Receive(x *Tensor)
	// ReceiveLeaf is called with a tensor of an earlier stage whose gradient is sent back: it is a leaf from now on.
	ReceiveLeaf(x *Tensor)
	// Send is called when a later stage reads a tensor that the rank has, or follows it in autograd; several times,
	// and with views. It reports whether that is new.
	Send(x *Tensor) bool
}

// pipeline is where a recording stands among the stages of a model.
type pipeline struct {
	part     StagePart
	boundary StageBoundary
	// numbered counts the storages of earlier stages; those of some numbers are in buffers that were received.
	numbered uint32
	received map[uint32]*Tensor
	// crossings counts what the boundary was told of while later stages run.
	crossings int
	skipped   SkippedCalls
}

// SkippedCalls are the calls of modules in other stages that nothing leaves but their output, as a pass through a
// model has found them; passes after it skip them.
type SkippedCalls map[*Path]skippedCall

// skippedCall is the number of a call's output, and that of the storage made next (see [Tensor.Number]).
type skippedCall struct{ output, next uint32 }

// StagePass begins a pass through all stages of a model. Some storages of earlier stages were received, by their
// numbers (see [Tensor.Number]). Calls that need not run again are noted in skipped, unless that is nil, and skipped
// in passes after it. A nil boundary ends the pass.
func (t *Tape) StagePass(b StageBoundary, received map[uint32]*Tensor, skipped SkippedCalls) {
	t.ranks.pipeline = pipeline{boundary: b, received: received, skipped: skipped}
}

// CallOrSkip runs the call of a module with x, which leaves nothing behind but its output. Where it is known to be in
// another stage with no boundary in it, one operator takes its place.
func (t *Tape) CallOrSkip(p *Path, x *Tensor, call func() *Tensor) *Tensor {
	b := &t.ranks.pipeline
	if b.skipped == nil || b.part == OwnStage {
		return call()
	}
	if s, known := b.skipped[p]; known {
		b.numbered = s.output
		y := x.MulScalar()
		b.numbered = s.next
		return y
	}
	part, numbered, crossings := b.part, b.numbered, b.crossings
	y := call()
	if b.part == part && b.crossings == crossings && !b.receivedSince(numbered) && y.sameShape(x.layout) &&
		y.dtype == x.dtype && y.requiresGrad == x.requiresGrad {
		b.skipped[p] = skippedCall{y.Number(), b.numbered}
	}
	return y
}

// receivedSince reports whether a storage with this number or a later one was received.
func (b *pipeline) receivedSince(from uint32) bool {
	for n := from; n < b.numbered; n++ {
		if b.received[n] != nil {
			return true
		}
	}
	return false
}

// send tells the boundary of a tensor that a later stage reads.
func (b *pipeline) send(x *Tensor) {
	if b.boundary.Send(x) {
		b.crossings++
	}
}

// EnterStage says which stages the code from here on belongs to.
func (t *Tape) EnterStage(p StagePart) { t.ranks.pipeline.part = p }

// OnOtherRank runs f as the code of later stages where other is set, else as part of what runs now; of a model that is
// spread over GPUs, on another GPU or on the tape's own.
func (t *Tape) OnOtherRank(other bool, f func()) {
	was := t.ranks.pipeline.part
	defer func() { t.ranks.pipeline.part = was }()
	switch {
	case t.ranks.spread != nil && other:
		t.ranks.pipeline.part = OtherGPU
	case t.ranks.spread != nil:
		t.ranks.pipeline.part = OwnStage
	case other:
		t.ranks.pipeline.part = LaterStages
	}
	f()
}

// OnHost runs f on the host, whose memory is not counted. In passes through the stages of a pipeline, and where weights
// come and go, a tensor without memory is one that other ranks have: f runs on the device there.
func (t *Tape) OnHost(f func()) {
	t.OnOtherRank(t.ranks.pipeline.boundary == nil && t.onEmptyRead == nil, f)
}

// OnHost reports whether x lies in the host's memory.
func (x *Tensor) OnHost() bool {
	return x.store.blank && !x.store.otherGPU && x.store.bytes > 0 && x.tape.ranks.pipeline.boundary == nil &&
		x.tape.onEmptyRead == nil
}

// Number numbers the storages of earlier stages, which have no memory.
func (x *Tensor) Number() uint32 { return x.store.buffer }

// Storage identifies the storage of x as long as it lives.
func (x *Tensor) Storage() any { return x.store }

// StorageBytes returns the size of the storage that x is a view of.
func (x *Tensor) StorageBytes() int64 { return x.store.bytes }

// fill sets up a storage that the rank does not allocate: with the buffer that was received for it, or none.
func (b *pipeline) fill(s *storage) {
	s.blank = true
	if b.part != EarlierStages {
		return
	}
	s.buffer = b.numbered
	b.numbered++
	if y := b.received[s.buffer]; y != nil {
		s.buffer, s.blank, s.received = y.store.buffer, false, true
	}
}

// crossesBoundary tells the boundary of what a kernel reads. It reports whether another rank runs the kernel.
func (t *Tape) crossesBoundary(reads []*Tensor) bool {
	b := &t.ranks.pipeline
	if b.boundary == nil || b.part == EarlierStages {
		return b.part != OwnStage
	}
	for _, x := range reads {
		switch {
		case x == nil || x.store.bytes == 0:
		case b.part == OwnStage && x.store.blank:
			b.boundary.Receive(x)
		case b.part == LaterStages && x.isSent():
			b.send(x)
		}
	}
	return b.part != OwnStage
}

// isSent reports whether the rank has computed or received x, so that a later stage that reads x is sent it.
func (x *Tensor) isSent() bool {
	c := x.class()
	return !x.store.blank && c != program.Weights && c != program.Buffers && c != program.Batch
}

// followAcross is called with a tensor that is about to become the input of a node.
func (t *Tape) followAcross(x *Tensor) {
	b := &t.ranks.pipeline
	if x.node == nil || b.part == EarlierStages {
		return
	}
	if x.node.flags&isEarlierStage != 0 && (b.part == OwnStage || x.store.received) {
		n, v := x.node, x.view
		x.node, x.out, x.view = nil, 0, nil
		n.release()
		v.release()
		b.boundary.ReceiveLeaf(x)
		b.crossings++
	}
	if b.part == LaterStages && x.isSent() {
		b.send(x)
	}
}
