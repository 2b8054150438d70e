package trace

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
)

// gpus are the GPUs for which a recording is valid: its own and [Options.Others]. On most GPUs a step differs only in
// the scratch memory of some kernels, so one recording is valid for all. Where PyTorch or a library reads a property of
// the GPU, the recorder compares it on all of them ([GPUProperty], [Tape.sizedByGPU]). A GPU that would behave
// differently is removed, and needs its own recording.
type gpus struct {
	// all lists the GPUs; the tape's own GPU is first.
	all  []GPU
	lost []bool
	// sized lists the buffers whose size differs between GPUs.
	sized []sizedBuffer
}

// sizedBuffer is a buffer with its size on each GPU; zero means that it is not allocated.
type sizedBuffer struct {
	buffer uint32
	bytes  []int64
}

func newGPUs(own GPU, others []GPU) gpus {
	b := gpus{all: append([]GPU{own}, others...)}
	b.lost = make([]bool, len(b.all))
	return b
}

// GPUProperty returns a property of the tape's GPU. GPUs with another value are removed from the recording.
func GPUProperty[T comparable](t *Tape, of func(GPU) T) T {
	own := of(t.gpus.all[0])
	for i, b := range t.gpus.all[1:] {
		t.gpus.lost[i+1] = t.gpus.lost[i+1] || of(b) != own
	}
	return own
}

// atLeast reports whether the GPU has at least a compute capability (times ten).
func (t *Tape) atLeast(capability int) bool {
	return GPUProperty(t, func(gpu GPU) bool { return gpu.Capability >= capability })
}

// GPU returns the tape's GPU. The caller may depend on any property, so the recording is then valid for no other GPU.
func (t *Tape) GPU() GPU {
	for i := range t.gpus.lost[1:] {
		t.gpus.lost[i+1] = true
	}
	return t.gpus.all[0]
}

// sizedByGPU allocates a buffer whose bytes depend on the GPU, given by its index in gpus.all. A GPU with zero bytes
// does not allocate it, and nothing else may depend on that. It reports whether any GPU allocates the buffer.
func (t *Tape) sizedByGPU(bytes func(gpu int) int64, allocate func(bytes int64) *Tensor) bool {
	own := bytes(0)
	some, same := own, true
	for i := range t.gpus.all[1:] {
		if t.gpus.lost[i+1] {
			continue
		}
		n := bytes(i + 1)
		same, some = same && n == own, max(some, n)
	}
	if some == 0 {
		return false
	}
	if own > 0 {
		some = own
	}
	x := allocate(some)
	if same || x.store.blank {
		return true
	}
	s := sizedBuffer{x.store.buffer, make([]int64, len(t.gpus.all))}
	for i := range s.bytes {
		if !t.gpus.lost[i] {
			s.bytes[i] = bytes(i)
		}
	}
	t.gpus.sized = append(t.gpus.sized, s)
	return true
}

// OtherPrograms are the programs of a recording on [Options.Others]. They share tables with the program of the tape's
// own GPU and are valid as long as that.
type OtherPrograms struct {
	gpus
	// whole has the instructions for all GPUs, with the sizes on the tape's own GPU.
	whole program.Program
}

// programs returns the programs for the other GPUs, and reduces p to the program for the tape's own GPU.
func (b *gpus) programs(p *program.Program) *OtherPrograms {
	o := &OtherPrograms{*b, *p}
	if gone := b.absent(0); len(gone) > 0 {
		p.Instructions = withoutBuffers(slices.Clone(p.Instructions), gone)
	}
	return o
}

// ProgramOf returns the program for another GPU, by index; nil if that GPU needs its own recording.
func (o *OtherPrograms) ProgramOf(other int) *program.Program {
	if !o.IsUsable(other) {
		return nil
	}
	p := o.whole
	p.Buffers = slices.Clone(p.Buffers)
	o.resize(&p, other+1)
	p.Instructions = withoutBuffers(slices.Clone(p.Instructions), o.absent(other+1))
	return &p
}

// IsUsable reports whether the recording is valid for another GPU, by index, or the tape's own for -1.
func (o *OtherPrograms) IsUsable(other int) bool {
	return o != nil && other+1 < len(o.all) && !o.lost[other+1]
}

// Sizes returns the buffer sizes that differ between GPUs, for another GPU by index, or the tape's own for -1. GPUs
// with equal sizes have equal programs.
func (o *OtherPrograms) Sizes(other int) []int64 {
	return lists.Map(o.sized, func(s sizedBuffer) int64 { return s.bytes[other+1] })
}

func (b *gpus) resize(p *program.Program, gpu int) {
	for _, s := range b.sized {
		if n := s.bytes[gpu]; n > 0 {
			p.Buffers[s.buffer].Bytes = n
		}
	}
}

// absent returns the buffers that a GPU does not allocate.
func (b *gpus) absent(gpu int) map[uint32]bool {
	gone := map[uint32]bool{}
	for _, s := range b.sized {
		if s.bytes[gpu] == 0 {
			gone[s.buffer] = true
		}
	}
	return gone
}

// withoutBuffers removes the instructions of some buffers from a list, in place.
func withoutBuffers(all []program.Instruction, gone map[uint32]bool) []program.Instruction {
	if len(gone) == 0 {
		return all
	}
	kept := all[:0]
	for _, in := range all {
		if (in.Kind == program.Alloc || in.Kind == program.Free) && gone[in.Arg] {
			continue
		}
		kept = append(kept, in)
	}
	return kept
}

// GPU holds the properties of a GPU that determine allocations of PyTorch and its libraries.
type GPU struct {
	// Name is the name in the catalog, such as "rtx-5060-ti".
	Name string
	// Capability is the compute capability times ten: 120 for 12.0.
	Capability int
	// SMs is the number of streaming multiprocessors.
	SMs int
	// ThreadsPerSM is the largest number of resident threads of a multiprocessor.
	ThreadsPerSM int
	// Memory is the memory size in bytes that the driver reports.
	Memory int64
}
