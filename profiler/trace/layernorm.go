package trace

import "github.com/vprof/vprof/internal/ceil"

// LayerNorm records torch.nn.functional.layer_norm over the last dims dimensions;
// weight and bias may be nil. Autocast runs it in fp32.
func (x *Tensor) LayerNorm(dims int, weight, bias *Tensor) *Tensor {
	c := x.tape.Begin("layer_norm", x, weight, bias)
	c.CastToFP32(&x, &weight, &bias)
	out := x.nativeLayerNorm("layer_norm_cuda", dims, weight, bias)
	c.BindAll(out)
	return c.End(out[0])
}

// NativeLayerNorm records torch.native_layer_norm: the result, and the mean and deviation of each row.
func (x *Tensor) NativeLayerNorm(dims int, weight, bias *Tensor) []*Tensor {
	return x.nativeLayerNorm("native_layer_norm", dims, weight, bias)
}

func (x *Tensor) nativeLayerNorm(op string, dims int, weight, bias *Tensor) []*Tensor {
	c := x.tape.Begin(op, x, weight, bias)
	acc, rows := x.dtype.accumulate(), x.normRows(dims)
	in := c.Bind(x.ContiguousUntracked())
	y := c.Bind(c.t.Alloc(x.dtype, x.shape...))
	mean, rstd := c.Bind(c.t.Alloc(acc, rows...)), c.Bind(c.t.Alloc(acc, rows...))
	c.t.launchNormOf(y.byRow(mean.numel), y, normFLOPs, in, weight, bias)
	y.SetGradFn("NativeLayerNormBackward0", inputs{x, weight, bias}, saves{x, mean, rstd, weight, bias},
		func(b *Gradients) { b.SetAll(layerNormBackward(b, b.Saved(0), b.kept[1:3], b.kept[3:])...) })
	return c.EndAll(y, mean, rstd)
}

// normRows returns the shape of the rows' statistics if the last dims dimensions are normalized.
func (x *Tensor) normRows(dims int) []int64 {
	rows := append([]int64(nil), x.shape...)
	for i := len(rows) - dims; i < len(rows); i++ {
		rows[i] = 1
	}
	return rows
}

// layerNormBackward records layer_norm_backward_cuda and the backward of rms_norm. The node's inputs are x and then
// params. The caller owns the results.
func layerNormBackward(b *Gradients, x *Tensor, stats, params []*Tensor) []*Tensor {
	t, g := b.t, b.Grad
	c := t.Begin("native_layer_norm_backward", g)
	out := make([]*Tensor, 1+len(params))
	in := c.Bind(x.ContiguousUntracked())
	if b.Needs(0) {
		out[0] = t.Alloc(x.dtype, x.shape...).Retain()
	}
	for i, p := range params {
		if b.Needs(i + 1) {
			out[i+1] = t.Alloc(p.dtype, p.shape...).Retain()
		}
	}
	c.EndStatement()
	g = g.ContiguousUntracked()
	if out[0] != nil {
		t.launchNormOf(in.byRow(stats[0].numel), out[0], normBackwardFLOPs, g, in, stats[0], params[0])
	}
	t.parameterSums(out[1:], g, in, stats[0].numel)
	c.Finish()
	return out
}

// parameterSums records LaunchGammaBetaBackwardCUDAKernel for rows rows of x. With very many short rows, it allocates
// partial sums of 32 rows, and their sum replaces the allocated gradients.
func (t *Tape) parameterSums(grads []*Tensor, g, x *Tensor, rows int64) {
	const (
		warp        = 32
		manyRows    = 64 * 1024
		rowsPerPart = 32
		maxGrid     = manyRows / 2
	)
	columns := x.numel / max(rows, 1)
	if rows <= manyRows || GPUProperty(t, func(gpu GPU) bool { return columns/warp >= int64(gpu.SMs)/2 }) {
		for _, p := range grads {
			if p != nil {
				t.launchNorm(p, normParameterFLOPs*rows, g, x)
			}
		}
		return
	}
	parts := min(maxGrid/ceil.Div(columns, warp), ceil.Div(rows, rowsPerPart))
	c := t.Begin("GammaBetaBackward")
	partial := make([]*Tensor, len(grads))
	for i, p := range grads {
		if p != nil {
			partial[i] = c.Bind(t.Alloc(p.dtype, parts, p.numel))
			t.launchNorm(partial[i], normParameterFLOPs*rows/parts, g, x)
		}
	}
	for i, p := range grads {
		if p != nil {
			grads[i] = partial[i].SumUncast("sum_dim_IntList", []int{0}, false).Retain()
			p.Release()
			c.EndStatement()
		}
	}
	c.Finish()
}

// RMSNorm records torch.nn.functional.rms_norm over the last dims dimensions; weight may be nil. If input and weight
// have different types, as under autocast, or in channels_last, it consists of smaller operators in fp32.
func (x *Tensor) RMSNorm(dims int, weight *Tensor) *Tensor {
	c := x.tape.Begin("rms_norm", x, weight)
	if x.tape.rules.Operators.RMSNormInFP32 {
		c.CastToFP32(&x, &weight)
	}
	if x.SuggestsChannelsLast() || (weight != nil && weight.dtype != x.dtype) {
		return c.End(x.composedRMSNorm(dims, weight))
	}
	return c.End(x.fusedRMSNorm(dims, weight))
}

// composedRMSNorm records rms_norm_composite.
func (x *Tensor) composedRMSNorm(dims int, weight *Tensor) *Tensor {
	c := x.tape.Begin("rms_norm_composite", x, weight)
	over := make([]int, dims)
	for i := range over {
		over[i] = len(x.shape) - 1 - i
	}
	in := c.Bind(x.AsType(x.dtype.accumulate()))
	scale := c.Bind(in.Pow(2).Mean(true, over...).AddScalarInPlace().Rsqrt())
	y := c.Bind(in.Mul(scale))
	if weight != nil {
		c.Set(&y, y.Mul(weight))
	}
	c.Drop(in)
	return c.End(y.AsType(x.dtype))
}

// fusedRMSNorm records _fused_rms_norm.
func (x *Tensor) fusedRMSNorm(dims int, weight *Tensor) *Tensor {
	c := x.tape.Begin("_fused_rms_norm_cuda", x, weight)
	in := c.Bind(x.ContiguousUntracked())
	y := c.Bind(c.t.Alloc(x.dtype, x.shape...))
	rstd := c.Bind(c.t.Alloc(x.dtype.accumulate(), x.normRows(dims)...))
	c.t.launchNormOf(y.byRow(rstd.numel), y, rmsNormFLOPs, in, weight)
	return c.End(y.SetGradFn("FusedRmsNormBackward0", inputs{x, weight}, saves{x, rstd, weight}, func(b *Gradients) {
		b.SetAll(layerNormBackward(b, b.Saved(0), []*Tensor{b.Saved(1)}, []*Tensor{b.Saved(2)})...)
	}))
}

// GroupNorm records torch.nn.functional.group_norm of [N, C, ...]; weight and bias may be nil. Autocast: fp32.
func (x *Tensor) GroupNorm(groups int64, weight, bias *Tensor) *Tensor {
	c := x.tape.Begin("group_norm", x, weight, bias)
	c.CastToFP32(&x, &weight, &bias)
	in := c.Bind(x.AsContiguous())
	y, mean, rstd := in.NativeGroupNorm(groups, weight, bias)
	c.BindAll([]*Tensor{y, mean, rstd}) // a tuple
	return c.End(y)
}

// NativeGroupNorm records native_group_norm with its CUDA kernel: the result, and mean and reciprocal deviation of each
// group, which have no gradients.
func (x *Tensor) NativeGroupNorm(groups int64, weight, bias *Tensor) (y, mean, rstd *Tensor) {
	c := x.tape.Begin("native_group_norm", x, weight, bias)
	n, channels, acc := x.shape[0], x.shape[1], x.dtype.accumulate()
	stats := x.dtype
	if weight != nil && weight.dtype != x.dtype {
		stats = acc
	}
	y = c.Bind(c.t.Alloc(x.dtype, x.shape...))
	mean, rstd = c.Bind(c.t.Alloc(stats, n, groups)), c.Bind(c.t.Alloc(stats, n, groups))
	if c.t.rules.Operators.GroupNormWidens && stats != acc {
		c.Bind(c.t.Alloc(acc, n, groups))
		c.Bind(c.t.Alloc(acc, n, groups))
	}
	if x.numel > n*channels && (weight != nil || bias != nil) {
		// These are the scale and shift of each channel of each sample.
		k := c.t.Begin("GroupNormKernelImplInternal")
		k.Bind(c.t.Alloc(acc, n, channels))
		k.Bind(c.t.Alloc(acc, n, channels))
		k.Finish()
	}
	c.t.launchNormOf(x.byRow(n*groups), y, normFLOPs, x, weight, bias)
	y.SetGradFn("NativeGroupNormBackward0", inputs{x, weight, bias}, saves{x, mean, rstd, weight},
		func(b *Gradients) { b.SetAll(groupNormBackward(b, groups)...) })
	c.EndAll(y, mean, rstd)
	return y, mean, rstd
}

// groupNormBackward records native_group_norm_backward with its CUDA kernel. The caller owns the results.
func groupNormBackward(b *Gradients, groups int64) []*Tensor {
	t, x, weight := b.t, b.Saved(0), b.Saved(3)
	g := b.Grad.ContiguousUntracked()
	c := t.Begin("native_group_norm_backward", g)
	n, channels, acc := x.shape[0], x.shape[1], x.dtype.accumulate()
	out := make([]*Tensor, 3)
	if b.Needs(0) {
		out[0] = t.Alloc(x.dtype, x.shape...).Retain()
		t.launchNormOf(x.byRow(n*groups), out[0], normBackwardFLOPs, g, x)
	}
	for i := 1; i <= 2; i++ {
		if b.Needs(i) {
			out[i] = t.Alloc(b.input(i).dtype, channels).Retain()
			t.launchNorm(out[i], groupNormParameterFLOPs*n, g, x)
		}
	}
	k := t.Begin("GroupNormBackwardKernelImplInternal")
	images := x.numel > n*channels
	if images {
		k.Bind(t.Alloc(acc, n, channels))
		k.Bind(t.Alloc(acc, n, channels))
	}
	if b.Needs(0) {
		k.groupNormInput(n, channels, groups, acc, images && weight != nil)
	}
	k.Finish()
	c.Finish()
	return out
}

// groupNormInput allocates and frees the three coefficients for the input's gradient. The first, if there is one, is
// declared first but allocated last, by an iterator.
func (c *Call) groupNormInput(n, channels, groups int64, acc DType, first bool) {
	t := c.t
	k := t.Begin("GroupNormBackwardKernelImplInternal")
	second := k.Bind(t.Alloc(acc, n, groups))
	third := k.Bind(t.Alloc(acc, n, groups))
	if first {
		k.Bind(t.Alloc(acc, n, channels))
	}
	k.DropAll(third, second)
	k.Finish()
}
