package distributed

import (
	"math"
	"slices"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

type gatherResult struct {
	output *trace.Tensor
	ranks  int64   // ranks
	splits []int64 // what a rank has of each parameter, in elements
	done   uint32
	copied uint32 // an event after its copy-out
}

// unshard records the all-gather of the group's parameters (foreach_all_gather). They are usable only after
// [ParamGroup.wait].
func (g *ParamGroup) unshard() {
	f, t := g.fsdp, g.fsdp.tape
	if g.gathered != nil || g.isUnsharded {
		return
	}
	out := &gatherResult{ranks: g.world.Size}
	if g.isDivided {
		out.ranks = f.options.ReshardRanks
	}
	if g.at != nil {
		f.streamsWait(*g.at)
		g.at = nil
	}
	if g.world.Size == 1 { // the rank has all, and wait copies it
		g.gathered = out
		return
	}
	t.NoGrad(func() {
		t.OnStream(f.copyIn(), func() { g.copyIn(out) })
		t.WaitStream(f.allGather(), f.copyIn())
		t.OnStream(f.allGather(), func() {
			if out.ranks > 1 {
				own := t.Hold(out.output.Part(0, out.output.Numel()/out.ranks))
				t.Collective(program.AllGather, out.ranks, out.output, own)
				t.Release(own)
			}
			out.done = t.RecordEvent(f.allGather())
		})
	})
	g.gathered = out
}

// copyIn copies the rank's shards to the rank's part of the all-gather's output.
func (g *ParamGroup) copyIn(out *gatherResult) {
	f, t := g.fsdp, g.fsdp.tape
	frame := t.Frame()
	dtype, sum, cast := g.params[0].gathered, int64(0), int64(0)
	inputs := make([]*trace.Tensor, len(g.params))
	for i, s := range g.params {
		n := s.data.Numel()
		switch {
		case g.isDivided:
			inputs[i], n = s.part, s.part.Numel()
		case f.options.Offload: // one by one
			x := t.New("to_device", program.Temporaries, s.dtype, n)
			inputs[i] = x.To(s.gathered)
			if s.dtype != s.gathered {
				frame.Discard(x)
			}
		default:
			inputs[i] = s.data
		}
		out.splits = append(out.splits, n)
		sum += n
		if s.dtype != s.gathered && !f.options.Offload {
			cast += n
		}
		if s.gathered != dtype {
			dtype = trace.U8
		}
	}
	if f.options.Offload && !g.isDivided { // a list releases its last element first
		for _, x := range slices.Backward(inputs) {
			frame.Bind(x)
		}
	}
	if cast > 0 {
		flat := frame.Bind(newEmpty(t, program.Temporaries, g.params[0].gathered, cast))
		var to, from []*trace.Tensor
		at := int64(0)
		for i, s := range g.params {
			if n := out.splits[i]; s.dtype != s.gathered {
				from = append(from, inputs[i])
				inputs[i] = frame.Bind(flat.Part(at, n))
				at += n
				to = append(to, inputs[i])
			}
		}
		trace.ForeachUpdate("_foreach_copy_", 0, to, from)
	}
	if dtype == trace.U8 {
		sum = 0
		for i, s := range g.params {
			out.splits[i] *= s.gathered.Size()
			sum += out.splits[i]
		}
	}
	out.output = t.Hold(newEmpty(t, program.Temporaries, dtype, sum*out.ranks))
	own := frame.Bind(out.output.Part(0, sum))
	trace.ForeachUpdate("_foreach_copy_", 0, []*trace.Tensor{own}, inputs)
	frame.End()
}

// wait copies the gathered buffer to the parameters (wait_for_unshard). In forward, the buffer lives until the next
// group's buffer is copied, so that the two overlap.
func (g *ParamGroup) wait() {
	f, t := g.fsdp, g.fsdp.tape
	now := g.gathered
	if now == nil {
		return
	}
	var before *gatherResult
	if g.phase == inForward && f.gathered != nil {
		before = f.gathered
		f.streamsWait(before.copied)
		f.gathered = nil
		if t.Rules().GatherEndsFirst {
			t.Release(before.output)
			before = nil
		}
	}
	alone := now.output == nil
	if alone {
		t.NoGrad(g.copySingle)
	} else {
		t.NoGrad(func() { g.copyOut(now) })
	}
	if g.isDivided {
		for _, s := range g.params {
			s.keepPart(nil)
		}
	}
	g.isUnsharded, g.isDivided = true, false
	now.copied = t.RecordEvent(computeStream)
	g.gathered = nil
	switch {
	case g.phase == inForward && !alone:
		f.gathered = now
	case alone:
		f.streamsWait(now.copied)
	default:
		f.streamsWait(now.copied)
		t.Release(now.output)
	}
	if before != nil {
		t.Release(before.output)
	}
}

// copySingle copies the parameters of a group that has replicas but no shards, so that there is nothing to gather.
func (g *ParamGroup) copySingle() {
	t := g.fsdp.tape
	frame := t.Frame()
	var from *trace.Tensor
	for _, s := range g.params {
		x := s.data
		if g.fsdp.options.Offload {
			x = t.New("to_device", program.Temporaries, s.dtype, s.data.Numel())
		}
		if s.dtype != s.gathered {
			y := x.To(s.gathered)
			if x != s.data {
				frame.Discard(x)
			}
			x = y
		}
		frame.Set(&from, x)
		s.allocate()
		trace.Update("copy_", 0, s.output, from)
	}
	frame.End()
}

// copyOut records FSDP2's foreach_all_gather_copy_out: it copies the gathered buffer to the parameters.
func (g *ParamGroup) copyOut(from *gatherResult) {
	t := g.fsdp.tape
	t.WaitEvent(computeStream, from.done)
	outputs := make([]*trace.Tensor, len(g.params))
	chunks := make([]int64, len(g.params))
	element := from.output.DType().Size()
	for i, s := range g.params {
		s.allocate()
		outputs[i] = s.output
		chunks[i] = from.splits[i] * element
	}
	frame := t.Frame()
	blocks := trace.GPUProperty(t, func(gpu trace.GPU) int64 {
		return int64(gpu.SMs) * int64(gpu.ThreadsPerSM) / copyBlock * 2
	})
	table := frame.Bind(t.New("split_with_sizes_copy_out", program.Temporaries, trace.I64,
		splitTable(chunks, from.ranks, blocks)))
	trace.ForeachUpdate("split_with_sizes_copy_out", 0, outputs, []*trace.Tensor{from.output, table})
	frame.End()
}

// The blocks of the kernels that copy between flat buffers and parameters (ATen/native/cuda/TensorShape.cu): the number
// of threads, and the bytes that a block copies at a time.
const (
	copyBlock = 128
	copyTile  = 16 * copyBlock
)

// splitTable returns the number of elements of the table that split_with_sizes_copy_out_cuda_contiguous_no_cast copies
// to the device. For each split it has the source, destination, size and offset of its blocks; for each block it has
// the index of the split. chunks are the bytes of each split on one of n ranks. most is twice the number of blocks that
// run on the GPU at a time.
func splitTable(chunks []int64, n, most int64) int64 {
	tiles := func(each int64) int64 {
		return lists.Sum(chunks, func(c int64) int64 { return ceil.Div(c, each) })
	}
	work := ceil.Div(tiles(copyTile)*n, max(1, most)) // tiles of a block
	perBlock := min(int64(math.Ceil(math.Sqrt(float64(work)))), n)
	perChunk := ceil.Div(work, max(1, perBlock))
	return 4*int64(len(chunks)) + 1 + tiles(copyTile*max(1, perChunk))
}
