package trace

import (
	"slices"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
)

// The fused attention kernels. Shapes are [batch, heads, length, head size]
// (BHSD); flash and memory-efficient kernels work on [batch, length, heads,
// head size] (BSHD) views.

// headsTransposed views BHSD as BSHD and back, below autograd.
func (x *Tensor) headsTransposed() *Tensor {
	shape := []int64{x.shape[0], x.shape[2], x.shape[1], x.shape[3]}
	strides := []int64{x.strides[0], x.strides[2], x.strides[1], x.strides[3]}
	return x.alias(shape, strides, x.offset)
}

// flashAttention records _scaled_dot_product_flash_attention.
func (q *Tensor) flashAttention(k, v *Tensor, a AttentionArgs) *Tensor {
	c := q.tape.begin("_scaled_dot_product_flash_attention", q, k, v)
	kept := c.t.selected(keptAttention, func() []*Tensor { return q.flashForward(k, v, a) })
	y, lse, rng, unused := kept[0], kept[1], kept[2], kept[3]
	c.letAll(kept)
	return c.end(y.derived("ScaledDotProductFlashAttentionBackward0", inputs{q, k, v},
		saves{k, q, v, lse, y, rng, unused},
		func(b *backward) {
			d := b.flashGradients(b.saved(1), b.saved(0), b.saved(2), b.saved(4), b.saved(3), b.grad, a.IsCausal)
			b.giveAll(d[0].retain(), d[1].retain(), d[2].retain())
		}))
}

// flashForward records mha_fwd of flash_api.cpp.
func (q *Tensor) flashForward(k, v *Tensor, a AttentionArgs) []*Tensor {
	c := q.tape.begin("_flash_attention_forward", q, k, v)
	batch, heads, length, d := q.shape[0], q.shape[1], q.shape[2], q.shape[3]
	out := c.let(q.headsTransposed().emptyLike(q.dtype))
	lse := c.let(c.t.empty(F32, batch, heads, length))
	if a.Dropout == 0 {
		mBlocks := batch * heads * ceil.Div(length, 64)
		splits := onGPU(c.t, func(b GPU) int64 {
			return flashSplits(mBlocks, 2*int64(b.SMs), ceil.Div(k.shape[2], flashBlockN(d)))
		})
		if splits > 1 {
			lseParts := c.t.empty(F32, splits, batch, heads, length)
			outParts := c.t.empty(F32, splits, batch, heads, length, flashHeadSize(d))
			c.letAll([]*Tensor{lseParts, outParts})
		}
	}
	rng := c.let(c.t.empty(I64, 2)) // uint64: seed and offset
	unused := c.let(c.t.empty(I64))
	if a.Dropout > 0 {
		c.set(&rng, c.t.empty(I64, 2))
	}
	c.t.launchAttention(q, k, a.IsCausal, 2, []*Tensor{out, lse}, []*Tensor{q, k, v})
	return c.endAll(out.headsTransposed(), lse, rng, unused)
}

// FlashAttentionForward records aten::_scaled_dot_product_flash_attention where autograd does not look: the
// result, its log-sum-exp [batch, heads, length] in fp32, and two tensors for random numbers.
func (q *Tensor) FlashAttentionForward(k, v *Tensor, causal bool) []*Tensor {
	return q.flashForward(k, v, AttentionArgs{IsCausal: causal})
}

// FlashAttentionBackward records aten::_scaled_dot_product_flash_attention_backward: the gradients of query,
// key and value from the gradient of the result y and its log-sum-exp.
func (q *Tensor) FlashAttentionBackward(k, v, y, lse, grad *Tensor, causal bool) []*Tensor {
	c := q.tape.begin("_flash_attention_backward", q, k, v, grad) // autograd holds y and lse
	return c.endAll(c.flashGradients(q, k, v, y, lse, grad, causal)...)
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

// flashSplits implements num_splits_heuristic: the smallest number of splits along the
// keys that fills the multiprocessors within 85 % of the best.
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

// flashGradients records _flash_attention_backward: the gradients of query, key and value
// from the gradient of the result y. It needs gradient and result contiguous in BSHD, and sums
// the gradient of the query in fp32.
func (c *call) flashGradients(q, k, v, y, lse, grad *Tensor, causal bool) []*Tensor {
	t := c.t
	grad = c.let(grad.headsTransposed().contiguousUntracked())
	out := c.let(y.headsTransposed().contiguousUntracked())
	dq := c.let(q.headsTransposed().emptyLike(q.dtype))
	dk := c.let(k.headsTransposed().emptyLike(k.dtype))
	dv := c.let(v.headsTransposed().emptyLike(v.dtype))
	batch, heads, keys, d := q.shape[0], q.shape[1], k.shape[2], q.shape[3]
	rows := ceil.Multiple(q.shape[2], 128)
	delta := c.let(t.empty(F32, batch, heads, rows))
	sum := c.let(t.empty(F32, batch, rows, heads, flashHeadSize(d)))
	wideK, wideV := dk, dv
	if k.shape[1] != heads {
		wideK = c.let(t.empty(q.dtype, batch, keys, heads, d))
		wideV = c.let(t.empty(q.dtype, batch, keys, heads, d))
	}
	t.launchAttention(q, k, causal, 5, []*Tensor{dq, wideK, wideV, delta, sum}, []*Tensor{grad, q, k, v, out, lse})
	if wideK != dk {
		t.launchElementwise(dk, 1, dk, wideK)
		t.launchElementwise(dv, 1, dv, wideV)
		c.dropLocals(wideV, wideK)
	}
	c.dropLocals(sum, delta, out, grad)
	return []*Tensor{dq.headsTransposed(), dk.headsTransposed(), dv.headsTransposed()}
}

// cudnnAttention records _scaled_dot_product_cudnn_attention.
func (q *Tensor) cudnnAttention(k, v *Tensor, a AttentionArgs) *Tensor {
	c := q.tape.begin("_scaled_dot_product_cudnn_attention", q, k, v, a.Mask)
	kept := c.t.selected(keptAttention, func() []*Tensor { return q.cudnnForward(k, v, a, c.t.Tracks(q, k, v)) })
	y, lse, seed, offset := kept[0], kept[1], kept[2], kept[3]
	c.letAll(kept)
	return c.end(y.derived("ScaledDotProductCudnnAttentionBackward0", inputs{q, k, v},
		saves{a.Mask, k, q, v, lse, y, offset, seed},
		func(b *backward) { b.cudnnGradients(a) }))
}

// cudnnAttentionWorkspace is the workspace in bytes of cuDNN 9's fused attention kernels,
// besides their accumulators.
const cudnnAttentionWorkspace = 256

// cudnnForward records run_cudnn_SDP_fprop; the row sums are there only if a gradient is wanted.
func (q *Tensor) cudnnForward(k, v *Tensor, a AttentionArgs, keep bool) []*Tensor {
	c := q.tape.begin("_cudnn_attention_forward", q, k, v, a.Mask)
	seed, offset := c.let(c.t.empty(I64)), c.let(c.t.empty(I64))
	y, lse := c.let(q.likeWithHeadSize(v.Size(-1))), (*Tensor)(nil)
	if keep {
		lse = c.let(c.t.empty(F32, q.shape[0], q.shape[1], q.shape[2], 1))
	}
	c.let(c.t.workspace(cudnnAttentionWorkspace))
	c.t.launchAttention(q, k, a.IsCausal, 2, []*Tensor{y, lse}, []*Tensor{q, k, v, a.Mask})
	return c.endAll(y, lse, seed, offset)
}

// likeWithHeadSize records alloc_with_matching_layout: fresh, laid out as q is.
func (q *Tensor) likeWithHeadSize(d int64) *Tensor {
	if d == q.shape[3] {
		return q.emptyLike(q.dtype)
	}
	shape := []int64{q.shape[0], q.shape[1], q.shape[2], d}
	like := &Tensor{tape: q.tape, dtype: q.dtype, layout: q.tape.layout(shape, q.strides)}
	order := sortDimensions(nil, q.shape, []*Tensor{like}, nil)
	slices.Reverse(order)
	return q.tape.emptyStrided(q.dtype, shape, denseAlong(shape, order))
}

// cudnnGradients records run_cudnn_SDP_bprop. Its workspace holds the gradient of
// the query in fp32 and a value per row; with grouped heads also the gradients
// of key and value for each head of the query.
func (b *backward) cudnnGradients(a AttentionArgs) {
	t := b.t
	k, q, v, lse, y := b.saved(1), b.saved(2), b.saved(3), b.saved(4), b.saved(5)
	dq, dk, dv := b.let(q.emptyLike(q.dtype)), b.let(k.emptyLike(k.dtype)), b.let(v.emptyLike(v.dtype))
	grad := b.grad
	if !slices.Equal(grad.strides, y.strides) {
		like := y.emptyLike(y.dtype)
		t.launchCopy(like, grad)
		grad = b.let(like)
	}
	bytes := cudnnAttentionWorkspace + 4*q.numel + 4*lse.numel
	if k.shape[1] != q.shape[1] {
		groups := q.shape[1] / k.shape[1]
		bytes += groups * (k.Bytes() + v.Bytes())
	}
	work := b.let(t.workspace(bytes))
	t.launchAttention(q, k, a.IsCausal, 5, []*Tensor{dq, dk, dv, work}, []*Tensor{grad, q, k, v, y, lse, b.saved(0)})
	b.giveAll(dq.retain(), dk.retain(), dv.retain())
}

// efficientAttention records _scaled_dot_product_efficient_attention.
func (q *Tensor) efficientAttention(k, v *Tensor, a AttentionArgs) *Tensor {
	c := q.tape.begin("_scaled_dot_product_efficient_attention", q, k, v, a.Mask)
	seeds := c.t.efficientSeeds(c, a)
	kept := c.t.selected(keptAttention, func() []*Tensor { return q.efficientForward(k, v, a, c.t.Tracks(q, k, v)) })
	y, lse := kept[0], kept[1]
	c.letAll(kept)
	y.derived("ScaledDotProductEfficientAttentionBackward0", inputs{q, k, v, a.Mask},
		append(saves{a.Mask, k, q, v, lse, y}, seeds...), func(b *backward) { b.efficientGradients(a) })
	slices.Reverse(seeds)
	c.dropLocals(seeds...)
	return c.end(y)
}

// efficientSeeds returns the offset and the seed of the random generator, both zero;
// none where they stay on the host, as they do with dropout.
func (t *Tape) efficientSeeds(c *call, a AttentionArgs) []*Tensor {
	if !t.rules.Attention.EfficientSeeds || a.Dropout > 0 {
		return nil
	}
	seed, offset := c.let(t.Zeros(I64)), c.let(t.Zeros(I64))
	return []*Tensor{offset, seed}
}

// efficientForward records _efficient_attention_forward; the row sums are padded to
// 32 queries, and there only if a gradient is wanted.
func (q *Tensor) efficientForward(k, v *Tensor, a AttentionArgs, keep bool) []*Tensor {
	c := q.tape.begin("_efficient_attention_forward", q, k, v, a.Mask)
	batch, heads, length, d := q.shape[0], q.shape[1], q.shape[2], v.Size(-1)
	out := c.let(c.t.empty(q.dtype, batch, length, heads, d))
	rows := int64(0)
	if keep {
		rows = ceil.Multiple(length, 32)
	}
	lse := c.let(c.t.empty(F32, batch, heads, rows))
	if q.dtype.IsHalf() && max(d, q.shape[3]) > 128 {
		// Wide heads do not fit into registers.
		c.let(c.t.empty(F32, batch, length, heads, d))
	}
	c.t.launchAttention(q, k, a.IsCausal, 2, []*Tensor{out, lse}, []*Tensor{q, k, v, a.Mask})
	return c.endAll(out.headsTransposed(), lse)
}

// efficientGradients records _efficient_attention_backward.
func (b *backward) efficientGradients(a AttentionArgs) {
	t := b.t
	mask, k, q, v, lse, y := b.saved(0), b.saved(1), b.saved(2), b.saved(3), b.saved(4), b.saved(5)
	grad := b.let(b.grad.headsTransposed().contiguousUntracked())
	fresh := func(x *Tensor) *Tensor { return t.empty(x.dtype, x.shape[0], x.shape[2], x.shape[1], x.shape[3]) }
	dq, dk, dv := b.let(fresh(q)), b.let(fresh(k)), b.let(fresh(v))
	var wide [2]*Tensor // gradients of key and value for each head of the query, summed at the end
	if k.shape[1] != q.shape[1] {
		for i, x := range []*Tensor{k, v} {
			wide[i] = t.empty(x.dtype, x.shape[0], x.shape[2], q.shape[1], x.shape[3]).retain()
		}
	}
	var dmask *Tensor
	if b.needs(3) {
		shape := append([]int64(nil), mask.shape...)
		last := len(shape) - 1
		shape[last] = ceil.Multiple(shape[last], 16)
		padded := t.empty(mask.dtype, shape...)
		dmask = b.let(padded.alias(mask.shape, padded.strides, 0))
	}
	kernel := onGPU(t, func(b GPU) efficientKernel { return b.efficientKernel(q, v, a) })
	delta := b.let(kernel.delta(grad, y.headsTransposed()))
	var work *Tensor
	if bytes := kernel.workspace(q, k, v); bytes > 0 {
		work = t.empty(U8, bytes).retain()
	}
	t.launchAttention(q, k, a.IsCausal, 5, []*Tensor{dq, dk, dv, dmask, work},
		[]*Tensor{grad, q, k, v, y, lse, delta, mask})
	b.drop(delta)
	work.release()
	for i, sum := range []*Tensor{dv, dk} {
		if x := wide[1-i]; x != nil {
			t.launch(program.Reduction, x.numel, []*Tensor{sum}, []*Tensor{x})
			x.release()
		}
	}
	dmask.retain()
	b.giveAll(dq.headsTransposed().retain(), dk.headsTransposed().retain(), dv.headsTransposed().retain(), dmask)
}

// efficientKernel is one of the backward kernels that CUTLASS was
// instantiated for: tiles of i queries and j keys.
type efficientKernel struct {
	i, j int64
	// inRegisters: the gradients of key and value stay in registers; else
	// they are summed in the workspace.
	inRegisters bool
	// sumsDelta: the kernel computes the row sums of grad * output itself.
	sumsDelta bool
}

// efficientKernel chooses as dispatch_cutlassB does among the kernels listed
// by generate_kernels.py: the smallest head size that suffices, then the
// largest tiles that fit into shared memory.
func (b GPU) efficientKernel(q, v *Tensor, a AttentionArgs) efficientKernel {
	d, half, cc := max(q.Size(-1), v.Size(-1)), q.dtype.IsHalf(), b.Capability
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
	if width > 64 && !b.smallSharedMemory() && (cc >= 80 || (cc >= 70 && half)) {
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
		return t.empty(F32, grad.shape[0], grad.shape[2], grad.shape[1])
	}
	c := t.begin("_efficient_attention_backward", grad, y)
	sum := grad.to(F32).Mul(y.to(F32)).Sum(false, -1)
	return c.end(sum.Transpose(-2, -1).contiguousUntracked())
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
