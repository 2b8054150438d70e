package trace

import "github.com/vprof/vprof/internal/ceil"

// LayerNorm records torch.nn.functional.layer_norm over the last dims dimensions;
// weight and bias may be nil. Autocast runs it in fp32.
func (x *Tensor) LayerNorm(dims int, weight, bias *Tensor) *Tensor {
	c := x.tape.begin("layer_norm", x, weight, bias)
	c.full(&x, &weight, &bias)
	out := x.nativeLayerNorm("layer_norm_cuda", dims, weight, bias)
	c.letAll(out)
	return c.end(out[0])
}

// NativeLayerNorm records torch.native_layer_norm: the result and the statistics of
// the rows.
func (x *Tensor) NativeLayerNorm(dims int, weight, bias *Tensor) []*Tensor {
	return x.nativeLayerNorm("native_layer_norm", dims, weight, bias)
}

func (x *Tensor) nativeLayerNorm(op string, dims int, weight, bias *Tensor) []*Tensor {
	c := x.tape.begin(op, x, weight, bias)
	acc, rows := x.dtype.accumulate(), x.normRows(dims)
	in := c.let(x.contiguousUntracked())
	y := c.let(c.t.empty(x.dtype, x.shape...))
	mean, rstd := c.let(c.t.empty(acc, rows...)), c.let(c.t.empty(acc, rows...))
	c.t.launchNormOf(y.byRow(mean.numel), y, normFLOPs, in, weight, bias)
	y.derived("NativeLayerNormBackward0", inputs{x, weight, bias}, saves{x, mean, rstd, weight, bias},
		func(b *backward) {
			b.giveAll(layerNormBackward(b, b.saved(0), b.kept[1:3], b.kept[3:])...)
		})
	return c.endAll(y, mean, rstd)
}

// normRows returns the shape of the statistics when the last dims dimensions are
// normalized.
func (x *Tensor) normRows(dims int) []int64 {
	rows := append([]int64(nil), x.shape...)
	for i := len(rows) - dims; i < len(rows); i++ {
		rows[i] = 1
	}
	return rows
}

// layerNormBackward records layer_norm_backward_cuda, and that of rms_norm: inputs
// of the node are x and then params. All results come with a reference.
func layerNormBackward(b *backward, x *Tensor, stats, params []*Tensor) []*Tensor {
	t, g := b.t, b.grad
	c := t.begin("native_layer_norm_backward", g)
	out := make([]*Tensor, 1+len(params))
	in := c.let(x.contiguousUntracked())
	if b.needs(0) {
		out[0] = t.empty(x.dtype, x.shape...).retain()
	}
	for i, p := range params {
		if b.needs(i + 1) {
			out[i+1] = t.empty(p.dtype, p.shape...).retain()
		}
	}
	c.statement()
	g = g.contiguousUntracked()
	if out[0] != nil {
		t.launchNormOf(in.byRow(stats[0].numel), out[0], normBackwardFLOPs, g, in, stats[0], params[0])
	}
	t.parameterSums(out[1:], g, in, stats[0].numel)
	c.finish()
	return out
}

// parameterSums records LaunchGammaBetaBackwardCUDAKernel for rows rows of x. With very many
// short rows, partial sums of 32 rows go to memory, and their sum replaces the allocated
// gradients.
func (t *Tape) parameterSums(grads []*Tensor, g, x *Tensor, rows int64) {
	const (
		warp        = 32
		manyRows    = 64 * 1024
		rowsPerPart = 32
		maxGrid     = manyRows / 2
	)
	columns := x.numel / max(rows, 1)
	if rows <= manyRows || onGPU(t, func(b GPU) bool { return columns/warp >= int64(b.SMs)/2 }) {
		for _, p := range grads {
			if p != nil {
				t.launchNorm(p, normParameterFLOPs*rows, g, x)
			}
		}
		return
	}
	parts := min(maxGrid/ceil.Div(columns, warp), ceil.Div(rows, rowsPerPart))
	c := t.begin("GammaBetaBackward")
	partial := make([]*Tensor, len(grads))
	for i, p := range grads {
		if p != nil {
			partial[i] = c.let(t.empty(p.dtype, parts, p.numel))
			t.launchNorm(partial[i], normParameterFLOPs*rows/parts, g, x)
		}
	}
	for i, p := range grads {
		if p != nil {
			grads[i] = partial[i].sum("sum_dim_IntList", []int{0}, false).retain()
			p.release()
			c.statement()
		}
	}
	c.finish()
}

// RMSNorm records torch.nn.functional.rms_norm over the last dims dimensions; weight
// may be nil. Where the types of input and weight differ, as under autocast, or
// in channels_last it is composed of smaller operators in fp32.
func (x *Tensor) RMSNorm(dims int, weight *Tensor) *Tensor {
	c := x.tape.begin("rms_norm", x, weight)
	if x.tape.rules.Operators.RMSNormInFP32 {
		c.full(&x, &weight)
	}
	if x.suggestChannelsLast() || (weight != nil && weight.dtype != x.dtype) {
		return c.end(x.composedRMSNorm(dims, weight))
	}
	return c.end(x.fusedRMSNorm(dims, weight))
}

// composedRMSNorm records rms_norm_composite.
func (x *Tensor) composedRMSNorm(dims int, weight *Tensor) *Tensor {
	c := x.tape.begin("rms_norm_composite", x, weight)
	over := make([]int, dims)
	for i := range over {
		over[i] = len(x.shape) - 1 - i
	}
	in := c.let(x.to(x.dtype.accumulate()))
	scale := c.let(in.Pow(2).Mean(true, over...).AddScalarInPlace().Rsqrt())
	y := c.let(in.Mul(scale))
	if weight != nil {
		c.set(&y, y.Mul(weight))
	}
	c.drop(in)
	return c.end(y.to(x.dtype))
}

// fusedRMSNorm records _fused_rms_norm.
func (x *Tensor) fusedRMSNorm(dims int, weight *Tensor) *Tensor {
	c := x.tape.begin("_fused_rms_norm_cuda", x, weight)
	in := c.let(x.contiguousUntracked())
	y := c.let(c.t.empty(x.dtype, x.shape...))
	rstd := c.let(c.t.empty(x.dtype.accumulate(), x.normRows(dims)...))
	c.t.launchNormOf(y.byRow(rstd.numel), y, rmsNormFLOPs, in, weight)
	return c.end(y.derived("FusedRmsNormBackward0", inputs{x, weight}, saves{x, rstd, weight}, func(b *backward) {
		b.giveAll(layerNormBackward(b, b.saved(0), []*Tensor{b.saved(1)}, []*Tensor{b.saved(2)})...)
	}))
}

// GroupNorm records torch.nn.functional.group_norm of [N, C, ...]; weight and bias
// may be nil. Autocast runs it in fp32.
func (x *Tensor) GroupNorm(groups int64, weight, bias *Tensor) *Tensor {
	c := x.tape.begin("group_norm", x, weight, bias)
	c.full(&x, &weight, &bias)
	in := c.let(x.contiguous())
	y, mean, rstd := in.NativeGroupNorm(groups, weight, bias)
	c.letAll([]*Tensor{y, mean, rstd}) // a tuple
	return c.end(y)
}

// NativeGroupNorm records native_group_norm with its CUDA kernel: the result, and the
// means and reciprocal deviations of the groups, whose gradients are not followed.
func (x *Tensor) NativeGroupNorm(groups int64, weight, bias *Tensor) (y, mean, rstd *Tensor) {
	c := x.tape.begin("native_group_norm", x, weight, bias)
	n, channels, acc := x.shape[0], x.shape[1], x.dtype.accumulate()
	stats := x.dtype
	if weight != nil && weight.dtype != x.dtype {
		stats = acc
	}
	y = c.let(c.t.empty(x.dtype, x.shape...))
	mean, rstd = c.let(c.t.empty(stats, n, groups)), c.let(c.t.empty(stats, n, groups))
	if c.t.rules.Operators.GroupNormWidens && stats != acc {
		c.let(c.t.empty(acc, n, groups))
		c.let(c.t.empty(acc, n, groups))
	}
	if x.numel > n*channels && (weight != nil || bias != nil) {
		// The scale and shift of each channel of each sample.
		k := c.t.begin("GroupNormKernelImplInternal")
		k.let(c.t.empty(acc, n, channels))
		k.let(c.t.empty(acc, n, channels))
		k.finish()
	}
	c.t.launchNormOf(x.byRow(n*groups), y, normFLOPs, x, weight, bias)
	y.derived("NativeGroupNormBackward0", inputs{x, weight, bias}, saves{x, mean, rstd, weight},
		func(b *backward) { b.giveAll(groupNormBackward(b, groups)...) })
	c.endAll(y, mean, rstd)
	return y, mean, rstd
}

// groupNormBackward records native_group_norm_backward with its CUDA kernel; results
// come with a reference.
func groupNormBackward(b *backward, groups int64) []*Tensor {
	t, x, weight := b.t, b.saved(0), b.saved(3)
	g := b.grad.contiguousUntracked()
	c := t.begin("native_group_norm_backward", g)
	n, channels, acc := x.shape[0], x.shape[1], x.dtype.accumulate()
	out := make([]*Tensor, 3)
	if b.needs(0) {
		out[0] = t.empty(x.dtype, x.shape...).retain()
		t.launchNormOf(x.byRow(n*groups), out[0], normBackwardFLOPs, g, x)
	}
	for i := 1; i <= 2; i++ {
		if b.needs(i) {
			out[i] = t.empty(b.input(i).dtype, channels).retain()
			t.launchNorm(out[i], groupNormParameterFLOPs*n, g, x)
		}
	}
	k := t.begin("GroupNormBackwardKernelImplInternal")
	images := x.numel > n*channels
	if images {
		k.let(t.empty(acc, n, channels))
		k.let(t.empty(acc, n, channels))
	}
	if b.needs(0) {
		k.groupNormInput(n, channels, groups, acc, images && weight != nil)
	}
	k.finish()
	c.finish()
	return out
}

// groupNormInput allocates and frees the three coefficients of the gradient of
// the input; the first, if there is one, is declared first but sized last, by
// an iterator.
func (c *call) groupNormInput(n, channels, groups int64, acc DType, first bool) {
	t := c.t
	k := t.begin("GroupNormBackwardKernelImplInternal")
	second := k.let(t.empty(acc, n, groups))
	third := k.let(t.empty(acc, n, groups))
	if first {
		k.let(t.empty(acc, n, channels))
	}
	k.dropLocals(third, second)
	k.finish()
}
