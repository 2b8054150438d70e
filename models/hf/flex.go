package hf

import (
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/trace"
)

// flexBlock is the number of queries or keys in a block of a block mask.
const flexBlock = 128

// FlexMask records the compiled create_block_mask for a causal mask. It returns tensors [batch, blocks] and [batch,
// blocks, blocks] (the key blocks of each query block, and the reverse), and the tensors that the mask function
// reads, which live as long. chunked selects chunked attention.
func FlexMask(f *frame, batch int64, positions, padding *tensor, packed Packing, chunked bool) []*tensor {
	g := f.CallFrame(positions, padding)
	var read []*tensor
	if padding != nil {
		g.Set(&padding, padding.To(trace.Bool))
		read = append(read, padding)
	} else if sequences := packedSequences(g, batch, positions, packed); sequences != nil {
		read = append(read, g.Bind(sequences), g.Bind(positions.Expand(batch, -1)))
	}
	if chunked {
		read = append(read, g.Bind(leftPadding(g, batch, padding)))
	}
	if padding != nil {
		g.Discard(padding.Sum(false).EqScalar()) // fast_all()
	}
	out := append(blockMask(g, batch, ceil.Div(positions.Size(1), flexBlock)), read...)
	g.End(out...)
	return out
}

// blockMask returns the tensors of a BlockMask with n blocks of queries and of keys, as TorchInductor's
// create_block_mask allocates them.
func blockMask(f *frame, batch, n int64) []*tensor {
	t := f.Tape()
	fresh := func(d trace.DType, shape ...int64) *tensor { return f.Bind(t.Empty(d, shape...)) }
	counted := fresh(trace.I64, batch, n, n)
	partial, full := fresh(trace.I32, batch, n, n+1), fresh(trace.I32, batch, n, n+1)
	out := []*tensor{
		fresh(trace.I32, batch, n), fresh(trace.I32, batch, n), fresh(trace.I32, batch, n, n),
		fresh(trace.I32, batch, n, n),
	}
	t.Kernel("create_block_mask", batch*n*n*flexBlock*flexBlock, append([]*tensor{partial, full}, out...),
		[]*tensor{counted})
	f.Del(&counted)
	out = append(out, fresh(trace.I32, batch, n, n), fresh(trace.I32, batch, n, n), fresh(trace.I32, batch, n))
	f.Del(&partial)
	out = append(out, fresh(trace.I32, batch, n))
	f.Del(&full)
	return out
}

// FlexAttention records transformers' flex_attention_forward over [batch, heads, length, head size], compiled by
// TorchInductor of PyTorch 2.11, with a block mask's tensors. It returns the output [batch, length, heads, head size]
// and the logsumexp of each row [batch, heads, length].
func FlexAttention(f *frame, q, k, v *tensor, blocks []*tensor, o AttentionOptions) (y, sums *tensor) {
	g := f.FunctionFrame(q, k, v)
	if heads := q.Size(1); o.Groups > 1 && heads&(heads-1) != 0 {
		g.Set(&k, repeatHeads(g, k, o.Groups))
		g.Set(&v, repeatHeads(g, v, o.Groups))
	}
	out := g.BindAll(g.Apply(flexFunction(), append([]*tensor{q, k, v}, blocks...)...))
	sums = g.Bind(out[1].To(v.DType()))
	y = g.Bind(out[0].Transpose(1, 2).Contiguous())
	return g.ReturnPair(y, sums)
}

// flexFunction returns the compiled flex_attention. Forward saves its inputs in autocast's type, its result, the
// logsumexp and the block mask; backward frees each after its last use.
func flexFunction() *trace.Function {
	const query, key, value, result, sums, blocks = 0, 1, 2, 3, 4, 5
	var types [3]trace.DType
	return &trace.Function{
		Name: "CompiledFunctionBackward",
		Forward: func(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			t, q, k, v := f.Tape(), in[query], in[key], in[value]
			for i, x := range []**tensor{&q, &k, &v} {
				types[i] = (*x).DType()
				if d, on := t.Autocasting(); on && d != types[i] {
					*x = f.Bind((*x).To(d))
				}
			}
			rows := q.Shape()[:3]
			kept, given := f.Bind(t.Empty(trace.F32, rows...)), f.Bind(t.Empty(trace.F32, rows...))
			y := f.Bind(q.Slice(-1, 0, v.Size(-1)).EmptyLike())
			t.Product("flex_attention", flexFLOPs(q, v), []*tensor{y, kept, given}, []*tensor{q, k, v})
			ctx.SaveForBackward(append([]*tensor{q, k, v, y, kept}, in[value+1:]...)...)
			return []*tensor{y, given}
		},
		Backward: func(f *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			t, q, k, v := f.Tape(), ctx.Saved(query), ctx.Saved(key), ctx.Saved(value)
			rows := q.Shape()[:3]
			if grads[1] == nil {
				f.Bind(t.Zeros(trace.F32, rows...))
			}
			grad := f.Bind(grads[0].Contiguous())
			delta := f.Bind(t.Empty(trace.F32, rows...))
			t.Kernel("flex_attention_delta", 2*grad.Numel(), []*tensor{delta}, []*tensor{grad, ctx.Saved(result)})
			ctx.Drop(result)
			out := []*tensor{f.Bind(q.EmptyLike()), nil, f.Bind(v.EmptyLike())}
			out[key] = f.Bind(k.EmptyLike())
			t.Product("flex_attention_backward", 5*flexFLOPs(q, v)/2, out,
				[]*tensor{q, k, v, grad, delta, ctx.Saved(sums)})
			f.Del(&delta)
			ctx.Drop(sums)
			ctx.Drop(query)
			for i := blocks; i < ctx.Inputs()+2; i++ {
				ctx.Drop(i)
			}
			ctx.Drop(key)
			ctx.Drop(value)
			f.Del(&grad)
			for i := range out {
				if d := types[i]; d != out[i].DType() {
					f.Set(&out[i], out[i].To(d))
				}
			}
			return append(out, make([]*tensor, ctx.Inputs()-3)...)
		},
	}
}

// flexFLOPs returns the FLOPs of causal attention's two matrix products.
func flexFLOPs(q, v *tensor) int64 {
	return q.Numel() / q.Size(-1) * q.Size(2) * (q.Size(-1) + v.Size(-1))
}
