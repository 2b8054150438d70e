package trace

import (
	"slices"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
)

// The fused attention kernels. Tensors are [batch, heads, length, head size] (BHSD). The flash and memory-efficient
// kernels work on [batch, length, heads, head size] (BSHD) views.

// headsTransposed records the view of BHSD as BSHD or back, without autograd.
func (x *Tensor) headsTransposed() *Tensor {
	shape := []int64{x.shape[0], x.shape[2], x.shape[1], x.shape[3]}
	strides := []int64{x.strides[0], x.strides[2], x.strides[1], x.strides[3]}
	return x.Alias(shape, strides, x.offset)
}

// flashAttention records _scaled_dot_product_flash_attention.
func (q *Tensor) flashAttention(k, v *Tensor, a AttentionArgs) *Tensor {
	c := q.tape.Begin("_scaled_dot_product_flash_attention", q, k, v)
	kept := c.t.selectedResults(keptAttention, func() []*Tensor { return q.flashForward(k, v, a) })
	y, lse, rng, unused := kept[0], kept[1], kept[2], kept[3]
	c.BindAll(kept)
	return c.End(y.SetGradFn("ScaledDotProductFlashAttentionBackward0", inputs{q, k, v},
		saves{k, q, v, lse, y, rng, unused},
		func(b *Gradients) {
			d := b.flashGradients(b.Saved(1), b.Saved(0), b.Saved(2), b.Saved(4), b.Saved(3), b.Grad, a.IsCausal)
			b.SetAll(d[0].Retain(), d[1].Retain(), d[2].Retain())
		}))
}

// flashForward records mha_fwd of flash_api.cpp.
func (q *Tensor) flashForward(k, v *Tensor, a AttentionArgs) []*Tensor {
	c := q.tape.Begin("_flash_attention_forward", q, k, v)
	batch, heads, length, d := q.shape[0], q.shape[1], q.shape[2], q.shape[3]
	out := c.Bind(q.headsTransposed().AllocLike(q.dtype))
	lse := c.Bind(c.t.Alloc(F32, batch, heads, length))
	if a.Dropout == 0 {
		mBlocks := batch * heads * ceil.Div(length, 64)
		splits := GPUProperty(c.t, func(gpu GPU) int64 {
			return flashSplits(mBlocks, 2*int64(gpu.SMs), ceil.Div(k.shape[2], flashBlockN(d)))
		})
		if splits > 1 {
			lseParts := c.t.Alloc(F32, splits, batch, heads, length)
			outParts := c.t.Alloc(F32, splits, batch, heads, length, flashHeadSize(d))
			c.BindAll([]*Tensor{lseParts, outParts})
		}
	}
	rng := c.Bind(c.t.Alloc(I64, 2)) // uint64: seed and offset
	unused := c.Bind(c.t.Alloc(I64))
	if a.Dropout > 0 {
		c.Set(&rng, c.t.Alloc(I64, 2))
	}
	c.t.launchAttention(q, k, a.IsCausal, 2, []*Tensor{out, lse}, []*Tensor{q, k, v})
	return c.EndAll(out.headsTransposed(), lse, rng, unused)
}

// FlashAttentionForward records aten::_scaled_dot_product_flash_attention without autograd. It returns the result, its
// log-sum-exp [batch, heads, length] in fp32, and two tensors for random numbers.
func (q *Tensor) FlashAttentionForward(k, v *Tensor, causal bool) []*Tensor {
	return q.flashForward(k, v, AttentionArgs{IsCausal: causal})
}

// FlashAttentionBackward records aten::_scaled_dot_product_flash_attention_backward: the gradients of query,
// key and value from the gradient of the result y and its log-sum-exp.
func (q *Tensor) FlashAttentionBackward(k, v, y, lse, grad *Tensor, causal bool) []*Tensor {
	c := q.tape.Begin("_flash_attention_backward", q, k, v, grad) // autograd holds y and lse
	return c.EndAll(c.flashGradients(q, k, v, y, lse, grad, causal)...)
}

// flashBlockN returns the number of keys a block of the split kernel handles.
func flashBlockN(d int64) int64 {
	switch {
	case d <= 64:
		return 256
	case d <= 128:
		return 128
	}
	return 64
}

// flashHeadSize implements head_size_rounded.
func flashHeadSize(d int64) int64 {
	if d <= 128 {
		return ceil.Multiple(d, 32)
	}
	return ceil.Multiple(d, 64)
}

// flashSplits implements num_splits_heuristic: the smallest number of splits along the keys whose use of the
// multiprocessors is within 85 % of the best.
func flashSplits(mBlocks, sms, nBlocks int64) int64 {
	if float32(mBlocks) >= 0.8*float32(sms) {
		return 1
	}
	most := min(128, sms, nBlocks)
	eligible := func(n int64) bool { return n == 1 || ceil.Div(nBlocks, n) != ceil.Div(nBlocks, n-1) }
	efficiency := func(n int64) float64 {
		waves := float64(mBlocks*n) / float64(sms)
		return waves / float64(ceil.Div(mBlocks*n, sms))
	}
	best := 0.0
	for n := int64(1); n <= most; n++ {
		if eligible(n) {
			best = max(best, efficiency(n))
		}
	}
	for n := int64(1); n <= most; n++ {
		if eligible(n) && efficiency(n) >= 0.85*best {
			return n
		}
	}
	return 1
}

// flashGradients records _flash_attention_backward: the gradients of query, key and value from the gradient of the
// result y. It needs gradient and result contiguous in BSHD, and sums the gradient of the query in fp32.
func (c *Call) flashGradients(q, k, v, y, lse, grad *Tensor, causal bool) []*Tensor {
	t := c.t
	grad = c.Bind(grad.headsTransposed().ContiguousUntracked())
	out := c.Bind(y.headsTransposed().ContiguousUntracked())
	dq := c.Bind(q.headsTransposed().AllocLike(q.dtype))
	dk := c.Bind(k.headsTransposed().AllocLike(k.dtype))
	dv := c.Bind(v.headsTransposed().AllocLike(v.dtype))
	batch, heads, keys, d := q.shape[0], q.shape[1], k.shape[2], q.shape[3]
	rows := ceil.Multiple(q.shape[2], 128)
	delta := c.Bind(t.Alloc(F32, batch, heads, rows))
	sum := c.Bind(t.Alloc(F32, batch, rows, heads, flashHeadSize(d)))
	wideK, wideV := dk, dv
	if k.shape[1] != heads {
		wideK = c.Bind(t.Alloc(q.dtype, batch, keys, heads, d))
		wideV = c.Bind(t.Alloc(q.dtype, batch, keys, heads, d))
	}
	t.launchAttention(q, k, causal, 5, []*Tensor{dq, wideK, wideV, delta, sum}, []*Tensor{grad, q, k, v, out, lse})
	if wideK != dk {
		t.LaunchElementwise(dk, 1, dk, wideK)
		t.LaunchElementwise(dv, 1, dv, wideV)
		c.DropAll(wideV, wideK)
	}
	c.DropAll(sum, delta, out, grad)
	return []*Tensor{dq.headsTransposed(), dk.headsTransposed(), dv.headsTransposed()}
}

// cudnnAttention records _scaled_dot_product_cudnn_attention.
func (q *Tensor) cudnnAttention(k, v *Tensor, a AttentionArgs) *Tensor {
	c := q.tape.Begin("_scaled_dot_product_cudnn_attention", q, k, v, a.Mask)
	kept := c.t.selectedResults(keptAttention, func() []*Tensor {
		return q.cudnnForward(k, v, a, c.t.RequiresGrad(q, k, v))
	})
	y, lse, seed, offset := kept[0], kept[1], kept[2], kept[3]
	c.BindAll(kept)
	return c.End(y.SetGradFn("ScaledDotProductCudnnAttentionBackward0", inputs{q, k, v},
		saves{a.Mask, k, q, v, lse, y, offset, seed}, func(b *Gradients) { b.cudnnGradients(a) }))
}

// cudnnAttentionWorkspace is the workspace in bytes of cuDNN 9's fused attention kernels, besides their accumulators.
const cudnnAttentionWorkspace = 256

// cudnnForward records run_cudnn_SDP_fprop. It returns row sums only if a gradient is needed.
func (q *Tensor) cudnnForward(k, v *Tensor, a AttentionArgs, keep bool) []*Tensor {
	c := q.tape.Begin("_cudnn_attention_forward", q, k, v, a.Mask)
	seed, offset := c.Bind(c.t.Alloc(I64)), c.Bind(c.t.Alloc(I64))
	y, lse := c.Bind(q.likeWithHeadSize(v.Size(-1))), (*Tensor)(nil)
	if keep {
		lse = c.Bind(c.t.Alloc(F32, q.shape[0], q.shape[1], q.shape[2], 1))
	}
	c.Bind(c.t.AllocWorkspace(cudnnAttentionWorkspace))
	c.t.launchAttention(q, k, a.IsCausal, 2, []*Tensor{y, lse}, []*Tensor{q, k, v, a.Mask})
	return c.EndAll(y, lse, seed, offset)
}

// likeWithHeadSize records alloc_with_matching_layout: a new tensor with the layout of q and head size d.
func (q *Tensor) likeWithHeadSize(d int64) *Tensor {
	if d == q.shape[3] {
		return q.AllocLike(q.dtype)
	}
	shape := []int64{q.shape[0], q.shape[1], q.shape[2], d}
	like := &Tensor{tape: q.tape, dtype: q.dtype, layout: q.tape.layout(shape, q.strides)}
	order := sortDimensions(nil, q.shape, []*Tensor{like}, nil)
	slices.Reverse(order)
	return q.tape.AllocStrided(q.dtype, shape, DenseStrides(shape, order))
}

// cudnnGradients records run_cudnn_SDP_bprop. Its workspace holds the query's gradient in fp32 and one value per row;
// with grouped heads, also the gradients of key and value for each query head.
func (b *Gradients) cudnnGradients(a AttentionArgs) {
	t := b.t
	k, q, v, lse, y := b.Saved(1), b.Saved(2), b.Saved(3), b.Saved(4), b.Saved(5)
	dq, dk, dv := b.Bind(q.AllocLike(q.dtype)), b.Bind(k.AllocLike(k.dtype)), b.Bind(v.AllocLike(v.dtype))
	grad := b.Grad
	if !slices.Equal(grad.strides, y.strides) {
		like := y.AllocLike(y.dtype)
		t.LaunchCopy(like, grad)
		grad = b.Bind(like)
	}
	bytes := cudnnAttentionWorkspace + 4*q.numel + 4*lse.numel
	if k.shape[1] != q.shape[1] {
		groups := q.shape[1] / k.shape[1]
		bytes += groups * (k.Bytes() + v.Bytes())
	}
	work := b.Bind(t.AllocWorkspace(bytes))
	t.launchAttention(q, k, a.IsCausal, 5, []*Tensor{dq, dk, dv, work}, []*Tensor{grad, q, k, v, y, lse, b.Saved(0)})
	b.SetAll(dq.Retain(), dk.Retain(), dv.Retain())
}

// efficientAttention records _scaled_dot_product_efficient_attention.
func (q *Tensor) efficientAttention(k, v *Tensor, a AttentionArgs) *Tensor {
	c := q.tape.Begin("_scaled_dot_product_efficient_attention", q, k, v, a.Mask)
	seeds := c.t.efficientSeeds(c, a)
	kept := c.t.selectedResults(keptAttention, func() []*Tensor {
		return q.efficientForward(k, v, a, c.t.RequiresGrad(q, k, v))
	})
	y, lse := kept[0], kept[1]
	c.BindAll(kept)
	y.SetGradFn("ScaledDotProductEfficientAttentionBackward0", inputs{q, k, v, a.Mask},
		append(saves{a.Mask, k, q, v, lse, y}, seeds...), func(b *Gradients) { b.efficientGradients(a) })
	slices.Reverse(seeds)
	c.DropAll(seeds...)
	return c.End(y)
}

// efficientSeeds returns the random generator's offset and seed: two zeros without dropout; nil with dropout, where
// they stay on the host.
func (t *Tape) efficientSeeds(c *Call, a AttentionArgs) []*Tensor {
	if !t.rules.Attention.EfficientSeeds || a.Dropout > 0 {
		return nil
	}
	seed, offset := c.Bind(t.Zeros(I64)), c.Bind(t.Zeros(I64))
	return []*Tensor{offset, seed}
}

// efficientForward records _efficient_attention_forward. Row sums are padded to 32 queries, and only returned if a
// gradient is needed.
func (q *Tensor) efficientForward(k, v *Tensor, a AttentionArgs, keep bool) []*Tensor {
	c := q.tape.Begin("_efficient_attention_forward", q, k, v, a.Mask)
	batch, heads, length, d := q.shape[0], q.shape[1], q.shape[2], v.Size(-1)
	out := c.Bind(c.t.Alloc(q.dtype, batch, length, heads, d))
	rows := int64(0)
	if keep {
		rows = ceil.Multiple(length, 32)
	}
	lse := c.Bind(c.t.Alloc(F32, batch, heads, rows))
	if q.dtype.IsHalf() && max(d, q.shape[3]) > 128 {
		// Wide heads do not fit into registers.
		c.Bind(c.t.Alloc(F32, batch, length, heads, d))
	}
	c.t.launchAttention(q, k, a.IsCausal, 2, []*Tensor{out, lse}, []*Tensor{q, k, v, a.Mask})
	return c.EndAll(out.headsTransposed(), lse)
}

// efficientGradients records _efficient_attention_backward.
func (b *Gradients) efficientGradients(a AttentionArgs) {
	t := b.t
	mask, k, q, v, lse, y := b.Saved(0), b.Saved(1), b.Saved(2), b.Saved(3), b.Saved(4), b.Saved(5)
	grad := b.Bind(b.Grad.headsTransposed().ContiguousUntracked())
	fresh := func(x *Tensor) *Tensor { return t.Alloc(x.dtype, x.shape[0], x.shape[2], x.shape[1], x.shape[3]) }
	dq, dk, dv := b.Bind(fresh(q)), b.Bind(fresh(k)), b.Bind(fresh(v))
	var wide [2]*Tensor // gradients of key and value for each head of the query, summed at the end
	if k.shape[1] != q.shape[1] {
		for i, x := range []*Tensor{k, v} {
			wide[i] = t.Alloc(x.dtype, x.shape[0], x.shape[2], q.shape[1], x.shape[3]).Retain()
		}
	}
	var dmask *Tensor
	if b.Needs(3) {
		shape := append([]int64(nil), mask.shape...)
		last := len(shape) - 1
		shape[last] = ceil.Multiple(shape[last], 16)
		padded := t.Alloc(mask.dtype, shape...)
		dmask = b.Bind(padded.Alias(mask.shape, padded.strides, 0))
	}
	kernel := GPUProperty(t, func(gpu GPU) efficientKernel { return gpu.efficientKernel(q, v, a) })
	delta := b.Bind(kernel.delta(grad, y.headsTransposed()))
	var work *Tensor
	if bytes := kernel.workspace(q, k, v); bytes > 0 {
		work = t.Alloc(U8, bytes).Retain()
	}
	t.launchAttention(q, k, a.IsCausal, 5, []*Tensor{dq, dk, dv, dmask, work},
		[]*Tensor{grad, q, k, v, y, lse, delta, mask})
	b.Drop(delta)
	work.Release()
	for i, sum := range []*Tensor{dv, dk} {
		if x := wide[1-i]; x != nil {
			t.Launch(program.Reduction, x.numel, []*Tensor{sum}, []*Tensor{x})
			x.Release()
		}
	}
	dmask.Retain()
	b.SetAll(dq.headsTransposed().Retain(), dk.headsTransposed().Retain(), dv.headsTransposed().Retain(), dmask)
}

// efficientKernel is a backward kernel that CUTLASS instantiates, with tiles of i queries and j keys.
type efficientKernel struct {
	i, j int64
	// inRegisters reports whether the gradients of key and value stay in registers or are summed in the workspace.
	inRegisters bool
	// sumsDelta reports whether the kernel itself computes the row sums of grad * output.
	sumsDelta bool
}

// efficientKernel chooses a kernel of generate_kernels.py as dispatch_cutlassB does: the smallest sufficient head size,
// then the largest tiles that fit into shared memory.
func (gpu GPU) efficientKernel(q, v *Tensor, a AttentionArgs) efficientKernel {
	d, half, cc := max(q.Size(-1), v.Size(-1)), q.dtype.IsHalf(), gpu.Capability
	e := efficientKernel{i: 64, j: 64, sumsDelta: half}
	width := int64(1 << 16)
	for _, w := range []int64{32, 64, 128} {
		if d <= w {
			width = w
			break
		}
	}
	if half && a.Dropout == 0 && d > 64 && d <= 96 && (cc == 86 || cc == 89) {
		return efficientKernel{i: 128, j: 64, inRegisters: true, sumsDelta: true}
	}
	if width > 64 && !gpu.smallSharedMemory() && (cc >= 80 || (cc >= 70 && half)) {
		e.i = 128
	}
	e.inRegisters = half && width <= e.i
	if e.inRegisters && cc >= 80 && width > 64 {
		e.j = 128
	}
	if cc/10 == 7 && cc < 75 { // the Volta kernels leave it to PyTorch
		e.sumsDelta = e.inRegisters && half
	}
	return e
}

// delta returns the row sums of grad * y, [batch, heads, queries].
func (e efficientKernel) delta(grad, y *Tensor) *Tensor {
	t := grad.tape
	if e.sumsDelta {
		return t.Alloc(F32, grad.shape[0], grad.shape[2], grad.shape[1])
	}
	c := t.Begin("_efficient_attention_backward", grad, y)
	sum := grad.AsType(F32).Mul(y.AsType(F32)).Sum(false, -1)
	return c.End(sum.Transpose(-2, -1).ContiguousUntracked())
}

// workspace implements Params::workspace_size of kernel_backward.h, in bytes.
func (e efficientKernel) workspace(q, k, v *Tensor) int64 {
	batch, heads := q.shape[0], q.shape[1]
	sums := q.dtype.IsHalf() && !e.inRegisters
	splits := ceil.Div(k.shape[2], e.j)
	if batch*heads >= 256 && k.shape[2] <= 2*e.j {
		splits = 1
	}
	elements := int64(0)
	if sums {
		splits = max(min(splits, 200/(batch*heads)), 1)
		elements = splits * e.j * (ceil.Multiple(q.shape[3], e.i) + ceil.Multiple(v.Size(-1), e.i))
	}
	const lockBytes = 16 // lock, counter and padding before each tile
	tiles := ceil.Div(q.shape[2], e.i) * ceil.Div(q.shape[3], e.j)
	elements += tiles * (lockBytes + 4*e.i*e.j) / 4
	return batch * heads * 4 * ceil.Multiple(elements, 4)
}
