package trace

// InstanceNorm is torch.nn.functional.instance_norm of [N, C, ...]: a batch norm
// over one sample of N*C channels. Weight and bias may be nil. Running
// statistics are not modeled: training layers have none by default.
func (x *Tensor) InstanceNorm(s BatchNormState) *Tensor {
	c := x.tape.begin("instance_norm", x, s.Weight, s.Bias)
	n := x.shape[0]
	shape := append([]int64{1, n * x.shape[1]}, x.shape[2:]...)
	mean, variance := s.Mean, s.Var
	for _, p := range []**Tensor{&s.Weight, &s.Bias, &s.Mean, &s.Var} {
		if *p != nil {
			*p = c.let((*p).repeatVector(n))
		}
	}
	in := c.let(x.contiguous().View(shape...))
	y := c.let(in.BatchNorm(s))
	for _, running := range []*Tensor{mean, variance} {
		if running != nil && s.Training { // the mean over the samples is copied back
			c.drop(c.let(x.tape.empty(running.dtype, running.shape...)))
		}
	}
	return c.end(y.View(x.shape...))
}

// repeatVector is repeat(n) of a vector.
func (x *Tensor) repeatVector(n int64) *Tensor {
	c := x.tape.begin("repeat", x)
	y := c.let(c.t.empty(x.dtype, n*x.numel))
	c.t.launchCopy(y, x)
	size := x.numel
	return c.end(y.derived("RepeatBackward0", inputs{x}, nil, func(b *backward) {
		b.give(0, b.grad.reshape([]int64{n, size}).sum("sum_dim_IntList", []int{0}, false))
	}))
}
