package trace

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// Facts are properties of a recorded model apart from its allocations.
type Facts struct {
	// Inputs are the tensors of the batch, in the order in which they were copied to the device.
	Inputs []Input
	// Attention lists the distinct calls of scaled_dot_product_attention, in the order of first use.
	Attention []Attention
	// Convolutions lists the distinct convolution calls of cuDNN, in the order of first use.
	Convolutions []Convolution
	// Answered reports whether recorded answers of cuDNN were available, even if they cover none of the calls.
	Answered bool
	// Managed is the size in bytes of optimizer states in managed memory (cudaMallocManaged). The driver moves them to
	// the device when a kernel uses them, and to the host when the device is full.
	Managed int64
	// HostSaved is the peak in bytes of tensors saved for backward in host memory.
	HostSaved int64
	// HostPinned is the peak of HostSaved, counted in page-locked blocks.
	HostPinned int64
	// Host counts the host memory that offloading uses throughout training.
	Host Host
	// Uncast reports whether the recording is the same without autocast: only operators depend on autocast
	// ([Tape.AutocastAlone]), and none of them cast a tensor.
	Uncast bool
	// Outputs is the size in bytes of a forward pass's outputs besides the loss, whose lifetime the loop determines.
	Outputs int64
}

// Input is a tensor of the batch.
type Input struct {
	DType DType
	Shape []int64
}

// Convolution is a convolution call of cuDNN.
type Convolution struct {
	Config    cudnn.Config
	Direction cudnn.Direction
	// Asked reports whether cuDNN itself returned the workspace size; otherwise vprof's model of cuDNN did.
	Asked bool
}

// Attention describes calls of scaled_dot_product_attention.
type Attention struct {
	// Backend is the kernel family: "flash", "memory-efficient", "cuDNN", or "math", which stores probabilities.
	Backend string
	DType   DType
	// HeadWidth is the size of a query head.
	HeadWidth int64
	Masked    bool
	// Why is the reason that excludes faster kernels; empty if there are none.
	Why string
}

// Managed counts bytes of CUDA managed memory, which the driver pages and the caching allocator does not allocate.
func (t *Tape) Managed(bytes int64) { t.facts.Managed += bytes }

// AddOutputs counts the outputs of a forward pass besides the loss.
func (t *Tape) AddOutputs(xs ...*Tensor) {
	t.facts.Outputs = max(t.facts.Outputs, lists.Sum(xs, (*Tensor).Bytes))
}

// Facts returns the facts of the recording so far.
func (t *Tape) Facts() Facts {
	f := t.facts
	f.Uncast = f.Uncast && !t.casts.consulted
	return f
}

// AutocastAlone declares that autocast affects the recording only through operators in its regions.
func (t *Tape) AutocastAlone() { t.facts.Uncast = true }

// input adds a tensor that was allocated in set-up, if it belongs to the batch.
func (f *Facts) input(t *Tape, x *Tensor) {
	if s := x.store; t.step < 0 && !s.blank && t.prog.Buffers[s.buffer].Class == program.Batch {
		f.Inputs = append(f.Inputs, Input{x.dtype, slices.Clone(x.shape)})
	}
}
