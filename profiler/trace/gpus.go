package trace

import "github.com/vprof/vprof/profiler/program"

// gpus are the GPUs that a recording serves: its own, and [Options.Others]. On most GPUs a
// step differs only in the scratch memory of some kernels, so that one recording serves all.
// Where PyTorch or a library reads a property of the GPU, the recorder compares it on all of
// them ([OnGPU], [Tape.sizedByGPU]). A GPU that would behave differently is lost: it needs a
// recording of its own.
type gpus struct {
	// all begins with the recording's own GPU.
	all  []GPU
	lost []bool
	// sized are the buffers whose size differs between them.
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

// OnGPU returns a property of the tape's GPU. Other GPUs with another value are lost.
func OnGPU[T comparable](t *Tape, of func(GPU) T) T {
	own := of(t.gpus.all[0])
	for i, b := range t.gpus.all[1:] {
		t.gpus.lost[i+1] = t.gpus.lost[i+1] || of(b) != own
	}
	return own
}

// atLeast reports whether the GPU has a compute capability, in tenths.
func (t *Tape) atLeast(capability int) bool {
	return OnGPU(t, func(b GPU) bool { return b.Capability >= capability })
}

// GPU returns the GPU that the step is recorded for. The caller may depend on any property of it,
// so that from then on the recording serves no other GPU.
func (t *Tape) GPU() GPU {
	for i := range t.gpus.lost[1:] {
		t.gpus.lost[i+1] = true
	}
	return t.gpus.all[0]
}

// sizedByGPU allocates a buffer whose size depends on the GPU, by its index in gpus.all. A GPU
// with zero bytes does not allocate it, and nothing else may depend on it. It reports whether
// any GPU allocates it.
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

// programs returns the programs of the other GPUs, nil for lost ones, and makes p the program
// of the tape's own. They share the tables in which they do not differ.
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

// GPU has the properties of a GPU that decide how much PyTorch and its libraries allocate. The
// catalog of GPUs has their values.
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
