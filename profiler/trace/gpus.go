package trace

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
)

// gpus are the GPUs that a recording serves: its own and [Options.Others]. On most GPUs a step differs only in the
// scratch memory of some kernels, so one recording serves them all. Where PyTorch or a library reads a property of the
// GPU, the recorder compares it on all of them ([GPUProperty], [Tape.sizedByGPU]). A GPU that would behave differently
// is dropped: it needs a recording of its own.
type gpus struct {
	// all begins with the recording's own GPU.
	all  []GPU
	lost []bool
	// sized are the buffers whose size differs between GPUs.
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

// GPUProperty returns a property of the tape's GPU. Other GPUs with another value are dropped from the recording.
func GPUProperty[T comparable](t *Tape, of func(GPU) T) T {
	own := of(t.gpus.all[0])
	for i, b := range t.gpus.all[1:] {
		t.gpus.lost[i+1] = t.gpus.lost[i+1] || of(b) != own
	}
	return own
}

// atLeast reports whether the GPU has a compute capability, in tenths.
func (t *Tape) atLeast(capability int) bool {
	return GPUProperty(t, func(gpu GPU) bool { return gpu.Capability >= capability })
}

// GPU returns the GPU of the recording. The caller may depend on any of its properties, so from then on the recording
// serves no other GPU.
func (t *Tape) GPU() GPU {
	for i := range t.gpus.lost[1:] {
		t.gpus.lost[i+1] = true
	}
	return t.gpus.all[0]
}

// sizedByGPU allocates a buffer whose size depends on the GPU, by its index in gpus.all. A GPU with zero bytes does not
// allocate it, and nothing else may depend on it. It reports whether any GPU allocates it.
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

// OtherPrograms are the programs of a recording on [Options.Others]. They share the tables in which they do not
// differ with the program of the recording's own GPU, and end with it.
type OtherPrograms struct {
	gpus
	// whole has the instructions of all GPUs, and the sizes on the recording's own.
	whole program.Program
}

// programs returns the programs of the other GPUs, and makes p the program of the tape's own.
func (b *gpus) programs(p *program.Program) *OtherPrograms {
	o := &OtherPrograms{*b, *p}
	if gone := b.absent(0); len(gone) > 0 {
		p.Instructions = withoutBuffers(slices.Clone(p.Instructions), gone)
	}
	return o
}

// ProgramOf builds the program on another GPU, by its index; nil if that GPU needs a recording of its own.
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

// IsUsable reports whether the recording serves another GPU, by its index, or its own for -1.
func (o *OtherPrograms) IsUsable(other int) bool {
	return o != nil && other+1 < len(o.all) && !o.lost[other+1]
}

// Sizes returns the sizes that differ between GPUs, on another GPU by its index, or on the recording's own for -1. GPUs
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

// GPU has the properties of a GPU that decide how much PyTorch and its libraries allocate.
type GPU struct {
	// Name is the catalog's name, such as "rtx-5060-ti".
	Name string
	// Capability is the compute capability times ten: 120 for 12.0.
	Capability int
	// SMs is the number of streaming multiprocessors.
	SMs int
	// ThreadsPerSM is the largest number of resident threads of a multiprocessor.
	ThreadsPerSM int
	// Memory is the memory the driver reports, in bytes.
	Memory int64
}
