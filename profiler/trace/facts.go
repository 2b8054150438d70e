package trace

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// Facts are properties of a recorded model besides its memory.
type Facts struct {
	// Inputs are the batch, in the order in which it was brought to the device.
	Inputs []Input
	// Attention has the kinds of calls of scaled_dot_product_attention, each once, in the order of first use.
	Attention []Attention
	// Convolutions are the calls of cuDNN's convolutions, each once, in the order of first use.
	Convolutions []Convolution
	// Answered reports whether the recording had cuDNN's answers, even if not about these calls.
	Answered bool
	// Managed is the size of state in managed memory (cudaMallocManaged), in bytes. The
	// driver moves it to the device when a kernel uses it, and away when the device is full.
	Managed int64
	// HostSaved is the peak of the bytes that backward needs in host memory.
	HostSaved int64
	// HostPinned is the same peak in page-locked blocks.
	HostPinned int64
	// Host counts the bytes offloaded for the whole of training.
	Host Host
	// Uncast reports whether the recording is the same without autocast: only operators
	// depend on it ([Tape.AutocastAlone]), and none cast a tensor.
	Uncast bool
	// Outputs is the size of a forward pass's outputs besides the loss, in bytes. The loop decides how long they live.
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
	// Asked reports whether its workspace is cuDNN's own answer; otherwise it is modeled.
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
	// Why is the reason that excludes faster kernels; empty if none is faster.
	Why string
}

// Managed adds bytes of CUDA managed memory, which the driver pages and the caching allocator does not see.
func (t *Tape) Managed(bytes int64) { t.facts.Managed += bytes }

// AddOutputs adds the outputs of a forward pass besides the loss to the facts.
func (t *Tape) AddOutputs(xs ...*Tensor) {
	t.facts.Outputs = max(t.facts.Outputs, lists.Sum(xs, (*Tensor).Bytes))
}

// Facts returns the facts of the recording so far.
func (t *Tape) Facts() Facts {
	f := t.facts
	f.Uncast = f.Uncast && !t.casts.consulted
	return f
}

// AutocastAlone declares that autocast affects the recording only through its regions.
func (t *Tape) AutocastAlone() { t.facts.Uncast = true }

// input adds a tensor that lives from set-up on, if it belongs to the batch.
func (f *Facts) input(t *Tape, x *Tensor) {
	if s := x.store; t.step < 0 && !s.blank && t.prog.Buffers[s.buffer].Class == program.Batch {
		f.Inputs = append(f.Inputs, Input{x.dtype, slices.Clone(x.shape)})
	}
}
