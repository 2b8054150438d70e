package hf

import (
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// llama3Attention records Llama3FlashAttnVarlenFunc of ring-flash-attn 0.1 with heads_k_stride=1, over query, key and
// value [local length, heads, head size]. The ranks' keys and values are gathered one head after the other.
func (c ContextParallel) llama3Attention() *trace.Function {
	return ringFunction("Llama3FlashAttnVarlenFuncBackward", c.llama3Forward, c.llama3Backward)
}

// ringFunction returns an autograd function of ring-flash-attn that saves its inputs and output.
func ringFunction(name string, forward func(f *frame, q, k, v *tensor) (y, lse *tensor),
	backward func(f *frame, q, k, v *tensor) []*tensor,
) *trace.Function {
	return &trace.Function{
		Name: name,
		Forward: func(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			q, k, v := in[0], f.Bind(in[1].Contiguous()), f.Bind(in[2].Contiguous())
			y, lse := forward(f, q, k, v)
			f.BindAll([]*tensor{y, lse})
			ctx.SaveForBackward(q, k, v, y, lse)
			return []*tensor{y}
		},
		Backward: func(f *frame, ctx *trace.FunctionContext, _ []*tensor) []*tensor {
			return backward(f, ctx.Saved(0), ctx.Saved(1), ctx.Saved(2))
		},
	}
}

// keysSeen returns the number of keys that the rank's tokens attend to: keys of the rank and of earlier ranks.
func (c ContextParallel) keysSeen(local int64) int64 { return (c.Rank + 1) * local }

// llama3Forward records llama3_flash_attn_varlen_forward.
func (c ContextParallel) llama3Forward(f *frame, q, k, v *tensor) (y, lse *tensor) {
	t := f.Tape()
	g := f.FunctionFrame(q, k, v)
	local, heads, keyHeads, size := q.Size(0), q.Size(1), k.Size(1), q.Size(2)
	all := g.Bind(t.Empty(k.DType(), 2, local*c.Ranks, 1, size))
	var ys, sums []*tensor
	for i := range keyHeads {
		h := g.FunctionFrame()
		part := g.Bind(q.Slice(1, i*heads/keyHeads, (i+1)*heads/keyHeads))
		key := h.Bind(k.Slice(1, i, i+1).Contiguous())
		value := h.Bind(v.Slice(1, i, i+1).Contiguous())
		t.Collective(program.AllGather, c.Ranks, all, key)
		t.Collective(program.AllGather, c.Ranks, all, value)
		h.End()
		h = g.FunctionFrame()
		out, s := flashKernels{h}.forward(part, c.keysSeen(local), heads/keyHeads, local)
		ys, sums = append(ys, g.Bind(out)), append(sums, g.Bind(s))
		h.End()
	}
	y, lse = g.Bind(trace.Cat(1, ys...)), g.Bind(trace.Cat(0, sums...))
	return g.ReturnPair(y, lse)
}

// llama3Backward records llama3_flash_attn_varlen_backward.
func (c ContextParallel) llama3Backward(f *frame, q, k, v *tensor) []*tensor {
	t := f.Tape()
	g := f.FunctionFrame(q, k, v)
	local, heads, keyHeads, size := q.Size(0), q.Size(1), k.Size(1), q.Size(2)
	all := g.Bind(t.Empty(k.DType(), 2, local*c.Ranks, 1, size))
	sums := g.Bind(t.Empty(k.DType(), 2, local*c.Ranks, 1, size))
	own := sums
	if keyHeads > 1 {
		own = g.Bind(t.Empty(k.DType(), 2, local, 1, size))
	}
	dq, dk, dv := g.Bind(q.EmptyLike()), g.Bind(k.EmptyLike()), g.Bind(v.EmptyLike())
	for i := range keyHeads {
		sums.ZeroInPlace()
		t.Kernel("copy_", own.Numel(), []*tensor{own}, []*tensor{k, v})
		t.Collective(program.AllGather, c.Ranks, all, own)
		part := g.Bind(q.Slice(1, i*heads/keyHeads, (i+1)*heads/keyHeads))
		flashKernels{g}.backward(part, local+128, heads/keyHeads, c.keysSeen(local), 1)
		t.Collective(program.ReduceScatter, c.Ranks, own, sums)
		t.Kernel("copy_", own.Numel(), []*tensor{dk, dv}, []*tensor{own})
	}
	g.End(dq, dk, dv)
	return []*tensor{dq, dk, dv}
}

// ringAttention records RingFlashAttnFunc of ring-flash-attn over query, key and value [batch, local length, heads,
// head size]. Keys and values are passed around the ranks, and the results of the blocks are combined in fp32.
func (c ContextParallel) ringAttention() *trace.Function {
	return ringFunction("RingFlashAttnFuncBackward", c.ringForward, c.ringBackward)
}

// sendToNext sends x to the next rank and receives the previous rank's tensor.
func (c ContextParallel) sendToNext(f *frame, x *tensor) *tensor {
	y := f.Bind(x.EmptyLike())
	f.Tape().Collective(program.Send, c.Ranks, y, x)
	return y
}

// ringForward records ring_flash_attn_forward of ring-flash-attention.
func (c ContextParallel) ringForward(f *frame, q, k, v *tensor) (y, lse *tensor) {
	g := f.FunctionFrame(q, k, v)
	batch, local, heads := q.Size(0), q.Size(1), q.Size(2)
	var out, sums, block, blockSums *tensor
	for step := range c.Ranks {
		h := g.FunctionFrame()
		key, value := k, v
		if step+1 < c.Ranks {
			key, value = c.sendToNext(h, k), c.sendToNext(h, v)
		}
		if step <= c.Rank {
			b, s := flashKernels{h}.forward(q, local, batch, heads, local)
			g.Set(&block, b)
			g.Set(&blockSums, s)
			u := h.FunctionFrame()
			c.mergeBlock(u, g, block, blockSums, &out, &sums)
			u.End()
		}
		if step+1 < c.Ranks {
			g.Set(&k, key)
			g.Set(&v, value)
		}
		h.End()
	}
	y = g.Bind(out.To(q.DType()))
	lse = sums.Squeeze(-1).Transpose(1, 2)
	return g.ReturnPair(y, lse)
}

// mergeBlock records update_out_and_lse of ring-flash-attention.
func (c ContextParallel) mergeBlock(f, g *frame, block, blockSums *tensor, out, sums **tensor) {
	wide := f.Bind(block.To(trace.F32))
	s := f.Bind(blockSums.Transpose(-2, -1).Unsqueeze(-1))
	if *out == nil {
		g.Set(out, wide)
		g.Set(sums, s)
		return
	}
	g.Set(out, (*out).Sub(s.Sub(*sums).Sigmoid().Mul((*out).Sub(wide))))
	g.Set(sums, (*sums).Sub((*sums).Sub(s).LogSigmoid()))
}

// ringBackward records ring_flash_attn_backward of ring-flash-attention.
func (c ContextParallel) ringBackward(f *frame, q, k, v *tensor) []*tensor {
	t := f.Tape()
	g := f.FunctionFrame(q, k, v)
	batch, local, heads, keyHeads := q.Size(0), q.Size(1), q.Size(2), k.Size(2)
	rows := ceil.Multiple(local, 128)
	blockQ, blockK, blockV := g.Bind(t.Empty(q.DType(), q.Shape()...)), g.Bind(t.Empty(k.DType(), k.Shape()...)),
		g.Bind(t.Empty(v.DType(), v.Shape()...))
	var dq, dk, dv, nextK, nextV *tensor
	for step := range c.Ranks {
		h := g.FunctionFrame()
		key, value := k, v
		if step+1 < c.Ranks {
			key, value = c.sendToNext(h, k), c.sendToNext(h, v)
		}
		switch {
		case step <= c.Rank:
			flashKernels{h}.backward(q, batch*rows, heads, batch*local, keyHeads)
			if dq == nil {
				g.Set(&dq, blockQ.To(trace.F32))
				g.Set(&dk, blockK.To(trace.F32))
				g.Set(&dv, blockV.To(trace.F32))
			} else {
				trace.Update("add__Tensor", 1, dq, blockQ)
				g.Set(&dk, blockK.Add(nextK))
				g.Set(&dv, blockV.Add(nextV))
			}
		case step > 0:
			g.Set(&dk, nextK)
			g.Set(&dv, nextV)
		}
		if step+1 < c.Ranks {
			g.Set(&k, key)
			g.Set(&v, value)
		}
		g.Set(&nextK, c.sendToNext(h, dk))
		g.Set(&nextV, c.sendToNext(h, dv))
		h.End()
	}
	gq, gk, gv := dq.To(q.DType()), nextK.To(q.DType()), nextV.To(q.DType())
	g.End(gq, gk, gv)
	return []*tensor{gq, gk, gv}
}
