package trace

import (
	"github.com/vprof/vprof/profiler/program"
)

// StagePart is the part of a pipeline that the running code belongs to, as one rank sees it.
type StagePart uint8

// A rank runs its own stage. The code of the stages before and after runs too, to find the tensors
// that cross a boundary: its tensors have shapes but no memory, and it launches no kernels.
const (
	OwnStage StagePart = iota
	EarlierStages
	LaterStages
	// OtherGPU is the code on other GPUs of the same process ([Tape.SetDeviceMap]), in the same graph.
	OtherGPU
)

// A StageBoundary handles the tensors that one stage computes and another reads.
type StageBoundary interface {
	// Receive is called before the rank's own stage reads a tensor that has no memory.
	Receive(x *Tensor)
	// ReceiveLeaf is called with a tensor of an earlier stage, now a leaf, whose gradient is sent back.
	ReceiveLeaf(x *Tensor)
	// Send is called when a later stage reads the rank's tensor, or follows it in autograd;
	// several times, and with views. It reports whether the tensor is new.
	Send(x *Tensor) bool
}

// pipeline is the state of a recording that runs all stages of a model.
type pipeline struct {
	part     StagePart
	boundary StageBoundary
	// numbered counts the storages of earlier stages. Some of them, by number, are received buffers.
	numbered uint32
	received map[uint32]*Tensor
	// crossings counts the calls of the boundary while later stages run.
	crossings int
	skipped   OtherStagesCalls
}

// OtherStagesCalls are the calls of modules in other stages from which only the output crosses, found
// by one pass through a model. Later passes skip them.
type OtherStagesCalls map[*Path]skippedCall

// skippedCall has the numbers of a call's output and of the next storage (see [Tensor.Number]).
type skippedCall struct{ output, next uint32 }

// StagePass begins a pass through all stages of a model. received has the received storages of
// earlier stages by their numbers (see [Tensor.Number]). Calls that need not run again are added to
// skipped, unless it is nil, and later passes skip them. A nil boundary ends the pass.
func (t *Tape) StagePass(b StageBoundary, received map[uint32]*Tensor, skipped OtherStagesCalls) {
	t.ranks.pipeline = pipeline{boundary: b, received: received, skipped: skipped}
}

// CallOrSkip runs call, a module's call with x whose only remaining tensor is its output. If the call is known to run
// in another stage and to cross no boundary, one operator replaces it.
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

// send passes a tensor that a later stage reads to the boundary.
func (b *pipeline) send(x *Tensor) {
	if b.boundary.Send(x) {
		b.crossings++
	}
}

// EnterStage sets the part that the code from here on belongs to.
func (t *Tape) EnterStage(p StagePart) { t.ranks.pipeline.part = p }

// OnOtherRank runs f as the code of later stages if other is set, else in the current part. A model
// that is spread over GPUs runs f on another GPU, or on the tape's own.
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

// OnHost runs f on the host, whose memory is not counted. In passes through the stages of a pipeline, and with weights
// that are allocated on demand, tensors without memory belong to other ranks: there f runs on the device.
func (t *Tape) OnHost(f func()) {
	t.OnOtherRank(t.ranks.pipeline.boundary == nil && t.onEmptyRead == nil, f)
}

// OnHost reports whether x is in the host's memory.
func (x *Tensor) OnHost() bool {
	return x.store.blank && !x.store.otherGPU && x.store.bytes > 0 && x.tape.ranks.pipeline.boundary == nil &&
		x.tape.onEmptyRead == nil
}

// Number numbers the storages of earlier stages, which have no memory.
func (x *Tensor) Number() uint32 { return x.store.buffer }

// Storage returns an identifier of the storage of x, valid while it lives.
func (x *Tensor) Storage() any { return x.store }

// StorageBytes returns the size of the storage that x is a view of.
func (x *Tensor) StorageBytes() int64 { return x.store.bytes }

// fill sets up the storage of another stage's tensor: with the buffer received from that stage, or without memory.
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

// crossesBoundary passes a kernel's inputs to the boundary. It reports whether another rank runs it.
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

// isSent reports whether the rank has computed or received x, and sends it to later stages.
func (x *Tensor) isSent() bool {
	c := x.class()
	return !x.store.blank && c != program.Weights && c != program.Buffers && c != program.Batch
}

// followAcross reports to the boundary that a tensor becomes the input of a node.
func (t *Tape) followAcross(x *Tensor) {
	b := &t.ranks.pipeline
	if x.node == nil || b.part == EarlierStages {
		return
	}
	if x.node.flags&isEarlierStage != 0 && (b.part == OwnStage || x.store.received) {
		n, v := x.node, x.view
		x.node, x.out, x.view = nil, 0, nil
		n.release()
		v.Release()
		b.boundary.ReceiveLeaf(x)
		b.crossings++
	}
	if b.part == LaterStages && x.isSent() {
		b.send(x)
	}
}

// ranks is the part of a tape that relates its device to others: ranks that share weights
// or tokens, stages of a pipeline, and further GPUs of the same process.
type ranks struct {
	// splits are the weights that ranks share; nil if there are none.
	splits map[*Tensor]Sharing
	// styles apply to the calls of modules whose ranks share tokens; nil if there are none.
	styles map[*Path]Style
	// subclassed reports whether tensors are DTensors.
	subclassed bool
	// collectives are asynchronous and not yet waited for.
	collectives []asyncCollective
	pipeline    pipeline
	// spread describes a model over several GPUs of the process; nil for most.
	spread *deviceMap
}

// here reports whether the recorded device runs the current code.
func (r *ranks) here() bool { return r.pipeline.part == OwnStage }

// crossing reports whether a kernel may read tensors of other devices, or run on one.
func (r *ranks) crossing() bool { return !r.here() || r.pipeline.boundary != nil }
