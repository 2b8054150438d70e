package hf

import "github.com/vprof/vprof/profiler/trace"

// torchRingAttention returns attention under PyTorch's context_parallel with its defaults (_templated_ring_attention in
// torch/distributed/tensor/experimental/_context_parallel), over query, key and value [batch, heads, local length,
// head size]. The keys and values of all ranks are gathered at once. Each rank has a chunk from the start of a
// sequence and one from its end, which balances the work. The blocks' results are combined in fp32.
func (c ContextParallel) torchRingAttention() *trace.Function {
	return &trace.Function{
		Name: "ScaledDotProductFlashAttentionBackward0",
		Forward: func(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			r := &torchRing{ContextParallel: c, f: f.FunctionFrame(in...), q: in[0], k: in[1], v: in[2]}
			kept := r.forward()
			r.f.End(kept...)
			f.BindAll(kept)
			ctx.SaveForBackward(append([]*tensor{in[1], in[0], in[2]}, kept...)...)
			return kept[:1]
		},
		Backward: func(f *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			r := &torchRing{ContextParallel: c, f: f.FunctionFrame(), q: ctx.Saved(1), k: ctx.Saved(0), v: ctx.Saved(2)}
			d := r.backward(ctx.Saved(3), ctx.Saved(4), grads[0])
			r.f.End(d...)
			return d
		},
	}
}

func (c ContextParallel) callTorchRing(f *frame, q, k, v *tensor, o AttentionOptions) *tensor {
	g := f.FunctionFrame(q, k, v)
	if o.Groups > 1 && o.RepeatKV {
		g.Set(&k, repeatHeads(g, k, o.Groups))
		g.Set(&v, repeatHeads(g, v, o.Groups))
	}
	y := g.Bind(g.Apply(c.torchRingAttention(), q, k, v)[0])
	return g.Return(g.Set(&y, y.Transpose(1, 2).Contiguous()))
}

// torchRing is the state of one call: key and value of the current step and of all ranks, and the last concatenation.
type torchRing struct {
	ContextParallel
	f                       *frame
	q, k, v                 *tensor
	key, value, all, joined *tensor
}

const tokenDimension = 2

// halfOfChunks returns one of the rank's two chunks of a sequence.
func halfOfChunks(f *frame, x *tensor, i int64) *tensor {
	n := x.Size(tokenDimension) / 2
	return f.Bind(x.Slice(tokenDimension, i*n, (i+1)*n))
}

// concatFlat computes torch.cat([x.flatten(), y.flatten()]).
func concatFlat(f *frame, x, y *tensor) *tensor {
	g := f.FunctionFrame(x, y)
	return g.Return(trace.Cat(0, g.Bind(x.Reshape(-1)), g.Bind(y.Reshape(-1))))
}

// splitFlat sets first and second to views of the halves of a flat tensor, with the shape of x.
func (r *torchRing) splitFlat(joined, x *tensor, first, second **tensor) {
	n := x.Numel()
	r.f.Set(first, joined.Slice(0, 0, n).Reshape(x.Shape()...))
	r.f.Set(second, joined.Slice(0, n, 2*n).Reshape(x.Shape()...))
}

// setStep sets the keys and values of step i. The first step gathers them from all ranks. keep keeps the gathered
// tensor, as backward does.
func (r *torchRing) setStep(i int64, keep bool) {
	if i == 0 {
		r.f.Set(&r.key, r.k.Contiguous())
		r.f.Set(&r.value, r.v.Contiguous())
	} else {
		r.all.Wait()
		from := (r.Rank - i + r.Ranks) % r.Ranks
		n := 2 * r.k.Numel()
		r.splitFlat(r.f.Bind(r.all.Slice(0, from*n, (from+1)*n)), r.k, &r.key, &r.value)
	}
	if i == r.Ranks-1 {
		return
	}
	r.f.Set(&r.joined, concatFlat(r.f, r.key, r.value))
	if r.all == nil {
		r.f.Set(&r.all, r.joined.GatherAsync(r.Ranks))
	}
	if !keep {
		r.f.Del(&r.joined)
	}
}

// forward records the forward pass. It returns the merged output, its log-sum-exp, and the random state of the kernel
// over the rank's own keys.
func (r *torchRing) forward() []*tensor {
	var y, lse, out, sums, state, unused *tensor
	var kept []*tensor
	for i := range r.Ranks {
		r.setStep(i, false)
		q, k, v, late := r.q, r.key, r.value, false
		switch {
		case i == 0:
		case i <= r.Rank:
			k, v = halfOfChunks(r.f, k, 0), halfOfChunks(r.f, v, 0)
		default:
			q, late = halfOfChunks(r.f, q, 1), true
		}
		got := q.FlashAttentionForward(k, v, i == 0)
		r.f.Set(&y, got[0])
		r.f.Set(&lse, got[1])
		r.f.Set(&state, got[2])
		r.f.Set(&unused, got[3])
		if i == 0 {
			kept = r.f.BindAll(got[2:])
		}
		r.merge(y, lse, late, &out, &sums)
	}
	return append([]*tensor{out.To(y.DType()), sums.Squeeze(-1)}, kept...)
}

// merge records _SDPAMerger.step; a late block updates only the second half of the tokens.
func (r *torchRing) merge(y, lse *tensor, late bool, out, sums **tensor) {
	g := r.f.FunctionFrame(y, lse)
	wide := g.Bind(y.To(trace.F32))
	block := g.Bind(lse.Unsqueeze(-1))
	if *out == nil {
		r.f.Set(out, wide)
		r.f.Set(sums, block)
		g.End()
		return
	}
	was, wasSums := *out, *sums
	if late {
		was, wasSums = halfOfChunks(g, was, 1), halfOfChunks(g, wasSums, 1)
	}
	now := g.Bind(was.Sub(block.Sub(wasSums).Sigmoid().Mul(was.Sub(wide))))
	nowSums := g.Bind(wasSums.Sub(wasSums.Sub(block).LogSigmoid()))
	if late {
		r.f.Set(sums, trace.Cat(tokenDimension, halfOfChunks(g, *sums, 0), nowSums))
		r.f.Set(out, trace.Cat(tokenDimension, halfOfChunks(g, *out, 0), now))
	} else {
		r.f.Set(sums, nowSums)
		r.f.Set(out, now)
	}
	g.End()
}

// addToHalf records PyTorch's _partial_update(x, part, add=True): it adds to half i of x and concatenates the halves.
func addToHalf(f *frame, x, part *tensor, i int) *tensor {
	g := f.FunctionFrame(x, part)
	halves := g.BindAll(x.Chunk(2, tokenDimension))
	halves[i].AddInPlace(part)
	return g.Return(trace.Cat(tokenDimension, halves...))
}

// backward records PyTorch's _templated_ring_attention_backward, which sends fp32 gradients of keys and values around.
func (r *torchRing) backward(y, lse, grad *tensor) []*tensor {
	f := r.f
	var dq, dk, dv, blockQ, blockK, blockV, sums, arriving, sent *tensor
	f.Set(&dq, r.q.FilledLike("zeros_like", trace.F32))
	f.Set(&dk, r.k.FilledLike("zeros_like", trace.F32))
	f.Set(&dv, r.v.FilledLike("zeros_like", trace.F32))
	for i := range r.Ranks {
		r.setStep(i, true)
		q, k, v, out, g, lse := r.q, r.key, r.value, y, grad, lse
		early := i <= r.Rank
		switch {
		case i == 0:
		case early:
			k, v = halfOfChunks(r.f, k, 0), halfOfChunks(r.f, v, 0)
		default:
			q, out, g = halfOfChunks(f, q, 1), halfOfChunks(f, out, 1), halfOfChunks(f, g, 1)
			f.Set(&sums, halfOfChunks(f, lse, 1).Contiguous())
			lse = sums
		}
		d := q.FlashAttentionBackward(k, v, out, lse, g, i == 0)
		f.Set(&blockQ, d[0])
		f.Set(&blockK, d[1])
		f.Set(&blockV, d[2])
		if i > 0 {
			arriving.Wait()
			f.Set(&sent, arriving)
			r.splitFlat(sent, r.k, &dk, &dv)
		}
		if i > 0 && early {
			f.Set(&dk, addToHalf(f, dk, blockK, 0))
			f.Set(&dv, addToHalf(f, dv, blockV, 0))
		} else {
			dk.AddInPlace(blockK)
			dv.AddInPlace(blockV)
		}
		f.Set(&sent, concatFlat(f, dk, dv))
		f.Set(&arriving, sent.PermuteAsync(r.Ranks))
		if early {
			dq.AddInPlace(blockQ)
		} else {
			f.Set(&dq, addToHalf(f, dq, blockQ, 1))
		}
	}
	f.Set(&dq, dq.To(r.q.DType()))
	arriving.Wait()
	f.Set(&sent, arriving.To(r.k.DType()))
	r.splitFlat(sent, r.k, &dk, &dv)
	return []*tensor{dq, dk, dv}
}
