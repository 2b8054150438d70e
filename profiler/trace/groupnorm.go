package trace

// GroupNorm is torch.nn.functional.group_norm of [N, C, ...]; weight and bias
// may be nil. Autocast runs it in fp32.
func (x *Tensor) GroupNorm(groups int64, weight, bias *Tensor) *Tensor {
	c := x.tape.begin("group_norm", x, weight, bias)
	c.full(&x, &weight, &bias)
	in := c.let(x.contiguous())
	y, mean, rstd := in.NativeGroupNorm(groups, weight, bias)
	c.letAll([]*Tensor{y, mean, rstd}) // a tuple
	return c.end(y)
}

// NativeGroupNorm is native_group_norm with its CUDA kernel: the result, and the
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
		k.done()
	}
	c.t.launchNormOf(x.byRow(n*groups), y, normFLOPs, x, weight, bias)
	y.derived("NativeGroupNormBackward0", inputs{x, weight, bias}, saves{x, mean, rstd, weight},
		func(b *backward) { b.giveAll(groupNormBackward(b, groups)...) })
	c.endAll(y, mean, rstd)
	return y, mean, rstd
}

// groupNormBackward is native_group_norm_backward with its CUDA kernel; results
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
	k.done()
	c.done()
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
	k.done()
}
