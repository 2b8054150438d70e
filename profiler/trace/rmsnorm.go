package trace

// RMSNorm is torch.nn.functional.rms_norm over the last dims dimensions; weight
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

// composedRMSNorm is rms_norm_composite.
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

// fusedRMSNorm is _fused_rms_norm.
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
