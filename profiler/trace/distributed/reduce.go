package distributed

import (
	"slices"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// reduction is the state of a reduce-scatter that has not finished (ReduceScatterState).
type reduction struct {
	input *trace.Tensor
	done  uint32
}

// reduce records the reduce-scatter of gradients; each rank gets the sum of its rows (foreach_reduce). It takes
// ownership of the gradients.
func (g *ParamGroup) reduce(params []*shardedParam, grads []*trace.Tensor) *reduction {
	t := g.fsdp.tape
	r := &reduction{}
	last := len(grads) // of the buffers that are freed once copied
	if !t.Rules().ReduceFreesAll {
		last--
	}
	t.NoGrad(func() { g.reduceInto(r, params, grads, grads[:last]) })
	for _, x := range grads[last:] {
		t.Release(x)
	}
	return r
}

func (g *ParamGroup) reduceInto(r *reduction, params []*shardedParam, grads, freed []*trace.Tensor) {
	f, t := g.fsdp, g.fsdp.tape
	n := g.world.Size
	dtype := grads[0].DType()
	if d := f.options.ReduceType; d != nil {
		dtype = *d
	}
	total := lists.Sum(params, func(s *shardedParam) int64 { return s.rows * s.row * n })
	r.input = t.Hold(newEmpty(t, program.Gradients, dtype, total))
	copyGradients(t, r.input, grads, params, n)
	for _, x := range slices.Backward(freed) {
		t.Release(x)
	}
	t.WaitStream(reduceScatterStream, computeStream)
	frame := t.Frame()
	var output *trace.Tensor
	t.OnStream(reduceScatterStream, func() {
		frame.Set(&output, newEmpty(t, program.Gradients, dtype, total/n))
		divideByRanks(r.input, n*f.copies, dtype)
		switch {
		case n > 1:
			t.Collective(program.ReduceScatter, n, output, r.input)
		case g.scaled:
			quotient := frame.Bind(newEmpty(t, program.Gradients, dtype, total))
			trace.Update("copy_", 1, output, quotient)
			frame.Del(&quotient)
		default:
			trace.Update("copy_", 0, output, r.input)
		}
		r.done = t.RecordEvent(reduceScatterStream)
	})
	post := reduceScatterStream
	if f.copies > 1 {
		post = allReduceStream
		t.WaitStream(allReduceStream, reduceScatterStream)
		t.OnStream(allReduceStream, func() { t.Collective(program.AllReduce, f.copies, output, output) })
		g.summed = t.Hold(output)
	}
	t.OnStream(post, func() {
		divideByRanks(output, n*f.copies, dtype)
		if own := params[0].dtype; own != dtype {
			frame.Set(&output, output.To(own))
		}
		if !f.options.Offload { // else the host gets them
			g.setShardGradients(params, output)
		}
		g.reduced = new(t.RecordEvent(post))
	})
	frame.End()
}

// divideByRanks records the division by the number of ranks if NCCL's average could overflow: by a part before, by the
// rest after.
func divideByRanks(x *trace.Tensor, ranks int64, d trace.DType) {
	if d == trace.F16 && ranks > 1 {
		trace.Update("div__Scalar", 1, x)
	}
}

// setShardGradients sets the gradients of shards to the rows of a reduced buffer, or adds these to existing gradients.
func (g *ParamGroup) setShardGradients(params []*shardedParam, output *trace.Tensor) {
	at := int64(0)
	for _, s := range params {
		part := output.Part(at, s.local.Shape()...)
		if s.local.Grad() != nil {
			trace.Update("add__Tensor", 1, s.local.Grad(), part)
		} else {
			s.local.SetGrad(part)
		}
		at += s.rows * s.row
	}
}

// copyGradients copies gradients into the input of a reduce-scatter, ordered by rank (torch._chunk_cat).
func copyGradients(t *trace.Tape, into *trace.Tensor, grads []*trace.Tensor, params []*shardedParam, n int64) {
	frame := t.Frame()
	same := grads[0].DType() == into.DType() || grads[0].DType() == trace.BF16 && into.DType() == trace.F32
	if same {
		chunks := lists.Map(params, func(s *shardedParam) int64 { return s.rows * s.row * into.DType().Size() })
		frame.Bind(t.New("_chunk_cat_out", program.Temporaries, trace.I64, chunkTable(chunks)))
	} else { // the composite operator pads uneven tensors and concatenates all
		for i, s := range params {
			if s.shape[0]%n != 0 {
				frame.Bind(t.New("constant_pad_nd", program.Temporaries, grads[i].DType(), s.padded(World{Size: n})))
			}
		}
	}
	trace.ForeachUpdate("_chunk_cat_out", 0, []*trace.Tensor{into}, grads)
	frame.End()
}

// chunkTable returns the number of elements of the table that _chunk_cat_out_cuda copies to the device. For each tensor
// it has the address, sizes, number of blocks and the offsets of bytes and blocks; for each block it has the index of
// the tensor. chunks are the bytes of each tensor that a rank receives.
func chunkTable(chunks []int64) int64 {
	n := int64(len(chunks))
	return 4*n + 2*(n+1) + lists.Sum(chunks, func(c int64) int64 { return ceil.Div(c, copyTile) })
}
