package profile

import (
	"io"
	"strings"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

// WriteMemoryViz writes the steps as PyTorch's torch.cuda.memory._dump_snapshot
// would after them: the segments at the end and everything that happened in the
// allocator before. pytorch.org/memory_viz and torch/cuda/_memory_viz.py read
// it. In place of Python's frames stand the operator and the modules around it;
// a key of its own says that it was simulated.
func (p *Profile) WriteMemoryViz(w io.Writer) error {
	out := newPickler(w)
	s := snapshot{p, out, p.owners()}
	out.dict(func() {
		out.key("segments").list(len(p.AtEnd.Segments), func(i int) { s.segment(p.AtEnd.Segments[i]) })
		out.key("device_traces").list(1, func(int) {
			out.list(len(p.Events), func(i int) { s.event(i) })
		})
		out.key("allocator_settings").dict(func() {
			out.key("PYTORCH_CUDA_ALLOC_CONF").string(p.Case.AllocConf)
		})
		out.key("external_annotations")
		s.annotations()
		out.key("simulated_by").string(strings.TrimSpace("vprof " + p.Tool.Version))
	})
	return out.close()
}

// snapshot writes the parts of a snapshot.
type snapshot struct {
	*Profile
	out *pickler
	// owners are the buffers of the events.
	owners []uint32
}

// none stands for an event that belongs to no buffer.
const none = ^uint32(0)

// owners finds the buffer that each event is about: the one that the event's
// instruction allocates or frees. Segments come and go for the sake of an
// allocation; they belong to no buffer.
func (p *Profile) owners() []uint32 {
	owners := make([]uint32, len(p.Events))
	for i, e := range p.Events {
		owners[i] = none
		in := p.Program.Instructions[e.Instruction]
		if in.Kind == program.Alloc || in.Kind == program.Free {
			owners[i] = in.Arg
		}
	}
	return owners
}

func (s *snapshot) segment(g allocator.SegmentInfo) {
	out := s.out
	out.dict(func() {
		out.key("device").int(0)
		out.key("address").int(int64(g.Address))
		out.key("total_size").int(g.Size)
		out.key("allocated_size").int(g.Allocated)
		out.key("active_size").int(g.Active)
		out.key("requested_size").int(g.Requested)
		out.key("stream").int(int64(g.Stream))
		out.key("segment_type").string(poolName(g.Pool))
		out.key("segment_pool_id").pair(0, 0)
		out.key("is_expandable").bool(g.Expandable)
		out.key("frames").list(0, nil)
		out.key("blocks").list(len(g.Blocks), func(i int) { s.block(g.Blocks[i]) })
	})
}

func (s *snapshot) block(b allocator.BlockInfo) {
	out := s.out
	out.dict(func() {
		out.key("address").int(int64(b.Address))
		out.key("size").int(b.Size)
		out.key("requested_size").int(b.Requested)
		out.key("state").string(b.State.String())
		buffer, held := s.AtEnd.Buffers[b.Address]
		out.key("frames")
		if !held || b.State == allocator.Free {
			buffer = none
		}
		s.frames(buffer)
	})
}

func (s *snapshot) event(i int) {
	out, e := s.out, s.Events[i]
	out.dict(func() {
		out.key("action").string(e.Action.String())
		if e.Action == allocator.TraceOOM {
			out.key("device_free").int(s.GPU.Memory - s.GPU.Context - reservedOf(s.AtEnd))
		} else {
			out.key("addr").int(int64(e.Addr))
		}
		out.key("size").int(e.Size)
		out.key("stream").int(int64(e.Stream))
		out.key("time_us").int(s.Clock[e.Instruction].Microseconds())
		out.key("compile_context").string("N/A")
		out.key("frames")
		s.frames(s.owners[i])
	})
}

// origin is what the frames of a buffer depend on.
type origin struct {
	class program.Class
	site  uint32
}

// frames are those of PyTorch's snapshots, the innermost first.
func (s *snapshot) frames(buffer uint32) {
	if buffer == none {
		s.out.list(0, nil)
		return
	}
	b := s.Program.Buffers[buffer]
	s.out.shared(origin{b.Class, b.Site}, func() {
		stack := s.Stack(buffer)
		s.out.list(len(stack), func(i int) {
			s.out.dict(func() {
				s.out.key("filename").string(b.Class.String())
				s.out.key("line").int(0)
				s.out.key("name").string(stack[len(stack)-1-i])
			})
		})
	})
}

// annotations are the beginnings and ends of the phases.
func (s *snapshot) annotations() {
	spans := s.Spans()
	s.out.list(2*len(spans), func(i int) {
		span, stage, at := spans[i/2], "START", spans[i/2].From
		if i%2 == 1 {
			stage, at = "END", span.To
		}
		s.out.dict(func() {
			s.out.key("device").int(0)
			s.out.key("time_us").int(s.Clock[at].Microseconds())
			s.out.key("name").string(phaseName(span.Phase))
			s.out.key("stage").string(stage)
		})
	})
}

func reservedOf(l *replay.Layout) (bytes int64) {
	for _, s := range l.Segments {
		bytes += s.Size
	}
	return bytes
}

// poolName is the segment type, as PyTorch calls it.
func poolName(p allocator.Pool) string {
	if p == allocator.SmallPool {
		return "small"
	}
	return "large"
}
