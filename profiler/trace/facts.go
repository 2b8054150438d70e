package trace

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// Facts are properties of a recorded model other than its memory.
type Facts struct {
	// Inputs are the batch, in the order in which it was brought to the device.
	Inputs []Input
	// Attention has what calls of scaled_dot_product_attention ran on, each
	// different kind once, in the order of first use.
	Attention []Attention
	// Convolutions are the calls of cuDNN's convolutions, each different one once, in
	// the order of first use.
	Convolutions []Convolution
	// Answered says that the recording knew answers of cuDNN's, if not about these calls.
	Answered bool
	// Managed is the size of state in managed memory (cudaMallocManaged), in bytes:
	// the driver moves it to the device when it is touched, and away from it when the
	// device is full.
	Managed int64
	// HostSaved is the most that lay in the host's memory for backward at a time, in
	// bytes.
	HostSaved int64
	// HostPinned is as much of page-locked blocks.
	HostPinned int64
	// Host is what is offloaded for the whole of training.
	Host Host
	// Uncast says that the same is recorded without autocast: operators alone ask for it ([Tape.AutocastAlone]), and
	// nothing came in another type for it.
	Uncast bool
	// Outputs is the size of what a forward pass has returned besides the loss, in bytes: the loop
	// decides how long it lives.
	Outputs int64
}

// Input is a tensor of the batch.
type Input struct {
	DType DType
	Shape []int64
}

// Convolution is a call of cuDNN.
type Convolution struct {
	Config    cudnn.Config
	Direction cudnn.Direction
	// Asked says that its workspace is what cuDNN said itself, else it is modeled.
	Asked bool
}

// Attention is a kind of call of scaled_dot_product_attention.
type Attention struct {
	// Backend is the kernel family: "flash", "memory-efficient", "cuDNN" or
	// "math", which materializes the probabilities.
	Backend string
	DType   DType
	// HeadWidth is the width of a head of the query.
	HeadWidth int64
	Masked    bool
	// Why says what keeps faster kernels off; empty where none is faster.
	Why string
}

// Managed adds bytes of CUDA managed memory, which the driver pages and the caching allocator
// does not see.
func (t *Tape) Managed(bytes int64) { t.facts.Managed += bytes }

// Returned notes what a forward pass has returned besides the loss.
func (t *Tape) Returned(xs ...*Tensor) {
	var bytes int64
	for _, x := range xs {
		bytes += x.Bytes()
	}
	t.facts.Outputs = max(t.facts.Outputs, bytes)
}

// Facts returns the facts of the recording so far.
func (t *Tape) Facts() Facts {
	f := t.facts
	f.Uncast = f.Uncast && !t.casts.consulted
	return f
}

// AutocastAlone notes that the precision of autocast decides by regions of autocast alone what is recorded.
func (t *Tape) AutocastAlone() { t.facts.Uncast = true }

func (f *Facts) attention(a Attention) { f.Attention = lists.Union(f.Attention, a) }

// input notes a tensor that is held from set-up on, if it is of the batch.
func (f *Facts) input(t *Tape, x *Tensor) {
	if s := x.store; t.step < 0 && !s.blank && t.prog.Buffers[s.buffer].Class == program.Batch {
		f.Inputs = append(f.Inputs, Input{x.dtype, slices.Clone(x.shape)})
	}
}
