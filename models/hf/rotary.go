package hf

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// Frequencies are the buffers of rotary positions for one kind of layers, each [head size/2].
type Frequencies struct {
	nn.Module
	InvFreq, OriginalInvFreq *nn.Buffer
}

// NewFrequencies makes those of heads of a size, in fp32.
func NewFrequencies(headSize int64) *Frequencies {
	half := headSize / 2
	return &Frequencies{InvFreq: nn.NewBuffer(trace.F32, half), OriginalInvFreq: nn.NewBuffer(trace.F32, half)}
}

// RotateHalf is rotate_half: the halves of x's last dimension change places, and what was the
// second is negated.
func RotateHalf(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	g := f.FuncFrame(x)
	half := x.Size(-1) / 2
	first := g.Let(x.Slice(-1, 0, half))
	second := g.Let(x.Slice(-1, half, x.Size(-1)))
	return g.Return(trace.Cat(-1, second.Neg(), first))
}
