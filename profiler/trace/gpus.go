package trace

import "github.com/vprof/vprof/profiler/program"

// GPUs are what a recording is for: the GPU that was asked for, and others of
// [Options.Others]. On most GPUs a step is the same but for scratch memory of some
// kernels, so that one recording tells them all. Where PyTorch or a library looks at the
// GPU, the recorder asks what that comes to on each ([onBoard], [Tape.sizedByBoard]);
// one where something else would be done needs a recording of its own.
type gpus struct {
	// all begins with the GPU that was asked for.
	all  []GPU
	lost []bool
	// sized are the buffers whose size is not the same on all.
	sized []sizedBuffer
}

// sizedBuffer is a buffer with its bytes on each of the GPUs; zero is none.
type sizedBuffer struct {
	buffer uint32
	bytes  []int64
}

func newGPUs(own GPU, others []GPU) gpus {
	b := gpus{all: append([]GPU{own}, others...)}
	b.lost = make([]bool, len(b.all))
	return b
}

// onBoard is what a property of the GPU comes to on the tape's. Other GPUs on which
// it is not the same are lost.
func onGPU[T comparable](t *Tape, of func(GPU) T) T {
	own := of(t.gpus.all[0])
	for i, b := range t.gpus.all[1:] {
		t.gpus.lost[i+1] = t.gpus.lost[i+1] || of(b) != own
	}
	return own
}

// atLeast tells whether the GPU has a compute capability, given times ten.
func (t *Tape) atLeast(capability int) bool {
	return onGPU(t, func(b GPU) bool { return b.Capability >= capability })
}

// GPU returns the GPU that the step is recorded for. A caller may do anything depending on it, so
// from then on the recording serves no other GPU.
func (t *Tape) GPU() GPU {
	for i := range t.gpus.lost[1:] {
		t.gpus.lost[i+1] = true
	}
	return t.gpus.all[0]
}

// sizedByBoard has a buffer allocated whose bytes depend on the GPU, by its index in
// GPUs.all; where they are zero, it is not there. Nothing else may depend on it. It
// tells whether any GPU has it.
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

// programs returns what a recording comes to on the other GPUs, nil for those that are lost;
// p becomes that of the tape's own. They share the tables in which they do not differ.
func (b *gpus) programs(p *program.Program) (others []*program.Program) {
	for i := range b.all[1:] {
		var other *program.Program
		if !b.lost[i+1] {
			short := *p
			short.Buffers = append([]program.Buffer(nil), p.Buffers...)
			b.resize(&short, i+1)
			short.Instructions = withoutBuffers(append([]program.Instruction(nil), p.Instructions...), b.absent(i+1))
			other = &short
		}
		others = append(others, other)
	}
	p.Instructions = withoutBuffers(p.Instructions, b.absent(0))
	return others
}

func (b *gpus) resize(p *program.Program, gpu int) {
	for _, s := range b.sized {
		if n := s.bytes[gpu]; n > 0 {
			p.Buffers[s.buffer].Bytes = n
		}
	}
}

// absent returns the buffers that are not there on a GPU.
func (b *gpus) absent(gpu int) map[uint32]bool {
	gone := map[uint32]bool{}
	for _, s := range b.sized {
		if s.bytes[gpu] == 0 {
			gone[s.buffer] = true
		}
	}
	return gone
}

// withoutBuffers takes the instructions of some buffers out of a list, in its memory.
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

// GPU is the figures of a GPU that PyTorch and its libraries look at before they decide
// how much to allocate. The GPU catalog has them.
type GPU struct {
	// Name is the catalog's name, such as "rtx-5060-ti".
	Name string
	// Capability is the compute capability times ten: 120 for 12.0.
	Capability int
	// SMs is the number of streaming multiprocessors.
	SMs int
	// ThreadsPerSM is the largest number of resident threads of one of them.
	ThreadsPerSM int
	// Memory is the memory the driver reports, in bytes.
	Memory int64
}
