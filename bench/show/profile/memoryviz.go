package profile

import (
	"io"
	"strings"

	"github.com/vprof/vprof/internal/pickle"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

// WriteMemoryViz writes a snapshot as torch.cuda.memory._dump_snapshot would after the steps: the segments at the end,
// and all events of the allocator. pytorch.org/memory_viz and torch/cuda/_memory_viz.py read it. Operators and modules
// replace Python's frames; an additional key marks it as simulated.
func (p *Profile) WriteMemoryViz(w io.Writer) error {
	out := pickle.NewWriter(w)
	s := snapshot{p, out, p.owners()}
	out.Dict(func() {
		out.Key("segments").List(len(p.AtEnd.Segments), func(i int) { s.segment(p.AtEnd.Segments[i]) })
		out.Key("device_traces").List(1, func(int) { out.List(len(p.Events), func(i int) { s.event(i) }) })
		out.Key("allocator_settings").Dict(func() { out.Key("PYTORCH_CUDA_ALLOC_CONF").String(p.Case.AllocConf) })
		out.Key("external_annotations")
		s.annotations()
		out.Key("simulated_by").String(strings.TrimSpace("vprof " + p.Tool.Version))
	})
	return out.Close()
}

// snapshot writes a snapshot of PyTorch's allocator.
type snapshot struct {
	*Profile
	out *pickle.Writer
	// owners holds the buffer of each event.
	owners []uint32
}

// noOwner marks an event that belongs to no buffer.
const noOwner = ^uint32(0)

// owners returns the buffer of each event, which the event's instruction allocates or frees. Events of segments belong
// to no buffer.
func (p *Profile) owners() []uint32 {
	owners := make([]uint32, len(p.Events))
	for i, e := range p.Events {
		owners[i] = noOwner
		in := p.Program.Instructions[e.Instruction]
		if in.Kind == program.Alloc || in.Kind == program.Free {
			owners[i] = in.Arg
		}
	}
	return owners
}

func (s *snapshot) segment(g allocator.SegmentInfo) {
	out := s.out
	out.Dict(func() {
		out.Key("device").Int(0)
		out.Key("address").Int(int64(g.Address))
		out.Key("total_size").Int(g.Size)
		out.Key("allocated_size").Int(g.Allocated)
		out.Key("active_size").Int(g.Active)
		out.Key("requested_size").Int(g.Requested)
		out.Key("stream").Int(int64(g.Stream))
		out.Key("segment_type").String(poolName(g.Pool))
		out.Key("segment_pool_id").Pair(0, 0)
		out.Key("is_expandable").Bool(g.Expandable)
		out.Key("frames").List(0, nil)
		out.Key("blocks").List(len(g.Blocks), func(i int) { s.block(g.Blocks[i]) })
	})
}

func (s *snapshot) block(b allocator.BlockInfo) {
	out := s.out
	out.Dict(func() {
		out.Key("address").Int(int64(b.Address))
		out.Key("size").Int(b.Size)
		out.Key("requested_size").Int(b.Requested)
		out.Key("state").String(b.State.String())
		buffer, held := s.AtEnd.Buffers[b.Address]
		out.Key("frames")
		if !held || b.State == allocator.Free {
			buffer = noOwner
		}
		s.frames(buffer)
	})
}

func (s *snapshot) event(i int) {
	out, e := s.out, s.Events[i]
	out.Dict(func() {
		out.Key("action").String(string(e.Action))
		if e.Action == allocator.TraceOOM {
			out.Key("device_free").Int(s.GPU.Memory - s.GPU.Context - reservedOf(s.AtEnd))
		} else {
			out.Key("addr").Int(int64(e.Addr))
		}
		out.Key("size").Int(e.Size)
		out.Key("stream").Int(int64(e.Stream))
		out.Key("time_us").Int(s.Clock[e.Instruction].Microseconds())
		out.Key("compile_context").String("N/A")
		out.Key("frames")
		s.frames(s.owners[i])
	})
}

// siteAndClass holds the data from which a buffer's frames are made.
type siteAndClass struct {
	class program.Class
	site  uint32
}

// frames writes the stack frames of a buffer, the innermost first, as PyTorch's snapshots hold them.
func (s *snapshot) frames(buffer uint32) {
	if buffer == noOwner {
		s.out.List(0, nil)
		return
	}
	b := s.Program.Buffers[buffer]
	s.out.Shared(siteAndClass{b.Class, b.Site}, func() {
		stack := s.Stack(buffer)
		s.out.List(len(stack), func(i int) {
			s.out.Dict(func() {
				s.out.Key("filename").String(b.Class.String())
				s.out.Key("line").Int(0)
				s.out.Key("name").String(stack[len(stack)-1-i])
			})
		})
	})
}

// annotations writes the start and the end of each phase.
func (s *snapshot) annotations() {
	spans := s.Spans()
	s.out.List(2*len(spans), func(i int) {
		span, stage, at := spans[i/2], "START", spans[i/2].From
		if i%2 == 1 {
			stage, at = "END", span.To
		}
		s.out.Dict(func() {
			s.out.Key("device").Int(0)
			s.out.Key("time_us").Int(s.Clock[at].Microseconds())
			s.out.Key("name").String(span.String())
			s.out.Key("stage").String(stage)
		})
	})
}

func reservedOf(l *replay.Layout) (bytes int64) {
	for _, s := range l.Segments {
		bytes += s.Size
	}
	return bytes
}

// poolName returns PyTorch's name for the segment type of a pool.
func poolName(p allocator.Pool) string {
	if p == allocator.SmallPool {
		return "small"
	}
	return "large"
}
