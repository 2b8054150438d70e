package trace

import (
	"github.com/vprof/vprof/profiler/program"
)

// StagePart is the part of a model to which running code belongs: the rank's pipeline stage, or other ranks' stages.
type StagePart uint8

// The parts of a model. The code of other ranks' stages runs too, to find the tensors that cross a stage boundary. Its
// tensors have shapes but no memory, and its kernels are not recorded.
const (
	OwnStage StagePart = iota
	EarlierStages
	LaterStages
	// OtherGPU is code on another GPU of the same process ([Tape.SetDeviceMap]). It belongs to the same autograd graph.
	OtherGPU
)

// A StageBoundary handles tensors that one pipeline stage computes and another one reads.
type StageBoundary interface {
	// Receive is called before the rank's own stage reads a tensor that has no memory.
	Receive(x *Tensor)
	// ReceiveLeaf is called with a received tensor, which has become a leaf, and whose gradient is sent back.
	ReceiveLeaf(x *Tensor)
	// Send is called when a later stage reads a tensor of the rank or records it in autograd. It is called for each
	// read, and with views. It reports whether the tensor was not sent before.
	Send(x *Tensor) bool
}

// pipeline is the state of a recording that runs all stages of a model.
type pipeline struct {
	part     StagePart
	boundary StageBoundary
	// numbered counts the storages of earlier stages so far. received maps their numbers to received buffers.
	numbered uint32
	received map[uint32]*Tensor
	// crossings counts the calls of the boundary while later stages run.
	crossings int
	skipped   OtherStagesCalls
}

// OtherStagesCalls holds module calls in other stages of which only the output is read elsewhere. The first pass
// through a model finds them; later passes skip them.
type OtherStagesCalls map[*Path]skippedCall

// skippedCall holds the numbers of the output's storage and of the next storage (see [Tensor.Number]).
type skippedCall struct{ output, next uint32 }

// StagePass begins a pass through all stages of a model; a nil boundary ends it. received maps the numbers of earlier
// stages' storages (see [Tensor.Number]) to the received tensors. Module calls that the pass shows to be skippable are
// added to skipped, and calls in skipped do not run; nil skips none.
func (t *Tape) StagePass(b StageBoundary, received map[uint32]*Tensor, skipped OtherStagesCalls) {
	t.ranks.pipeline = pipeline{boundary: b, received: received, skipped: skipped}
}

// CallOrSkip runs call, the call of module p with x, whose output is the only tensor that it leaves. If skipped
// ([Tape.StagePass]) has the module, one operator replaces the call.
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

// receivedSince reports whether a storage with the number from or a higher one was received.
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

// EnterStage sets the part of the model to which the code that follows belongs.
func (t *Tape) EnterStage(p StagePart) { t.ranks.pipeline.part = p }

// OnOtherRank runs f as code of later stages if other is set, otherwise as code of the current part. With a device map
// ([Tape.SetDeviceMap]), it runs f on another GPU if other is set, otherwise on the tape's GPU.
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

// OnHost runs f on the host, whose memory is not recorded. During a pipeline pass, and if weights are allocated on
// demand, a tensor without memory would be taken for another rank's; f then runs on the device.
func (t *Tape) OnHost(f func()) {
	t.OnOtherRank(t.ranks.pipeline.boundary == nil && t.onEmptyRead == nil, f)
}

// OnHost reports whether x is in host memory.
func (x *Tensor) OnHost() bool {
	return x.store.blank && !x.store.otherGPU && x.store.bytes > 0 && x.tape.ranks.pipeline.boundary == nil &&
		x.tape.onEmptyRead == nil
}

// Number returns the number of x's storage among the storages of earlier stages, which have no memory.
func (x *Tensor) Number() uint32 { return x.store.buffer }

// Storage returns an identifier of x's storage, which is valid while the storage exists.
func (x *Tensor) Storage() any { return x.store }

// StorageBytes returns the size of the storage that x is a view of.
func (x *Tensor) StorageBytes() int64 { return x.store.bytes }

// fill initializes the storage of another stage's tensor: with the buffer received for it, or without memory.
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

// crossesBoundary passes the inputs of a kernel to the stage boundary. It reports whether another rank runs the kernel.
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

// isSent reports whether later stages receive x from the rank: x has memory, and is no weight, buffer or batch data.
func (x *Tensor) isSent() bool {
	c := x.class()
	return !x.store.blank && c != program.Weights && c != program.Buffers && c != program.Batch
}

// followAcross passes x, an input of a new autograd node, to the stage boundary.
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

// ranks is the part of a tape that describes other devices: ranks that share weights or tokens, stages of a pipeline,
// and further GPUs of the process.
type ranks struct {
	// splits are the sharded weights; nil if there are none.
	splits map[*Tensor]Sharing
	// styles are the styles of modules that ranks share tokens of (see [Tape.Parallelize]); nil if there are none.
	styles map[*Path]Style
	// subclassed reports whether tensors are DTensors.
	subclassed bool
	// collectives are the asynchronous collectives that nothing has waited for yet.
	collectives []asyncCollective
	pipeline    pipeline
	// spread is the device map of a model on several GPUs of the process; nil without one.
	spread *deviceMap
}

// isRecordedDevice reports whether the running code runs on the recorded device.
func (r *ranks) isRecordedDevice() bool { return r.pipeline.part == OwnStage }

// mayUseOtherDevices reports whether kernels may read tensors of other devices or run there.
func (r *ranks) mayUseOtherDevices() bool { return !r.isRecordedDevice() || r.pipeline.boundary != nil }
