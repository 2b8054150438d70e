package trace

import "github.com/vprof/vprof/profiler/program"

// NanSum records x.nansum(dims, keepdim): the sum without NaNs.
func (x *Tensor) NanSum(keep bool, dims ...int) *Tensor {
	c := x.tape.begin("nansum", x)
	y := x.sumAs("nansum", sumType(x.dtype), dims, keep)
	return c.end(y.derived("NansumBackward0", inputs{x}, saves{x}, func(b *backward) {
		x := b.saved(0)
		g := b.grad.to(x.dtype).spread(x.shape, dims, keep)
		b.give(0, g.Mul(x.IsNaN().compareScalar("logical_not")))
	}))
}

// NanMean records x.nanmean(dims, keepdim): nansum over how many are numbers.
func (x *Tensor) NanMean(keep bool, dims ...int) *Tensor {
	c := x.tape.begin("nanmean", x)
	count := c.let(x.IsNaN().compareScalar("logical_not").Sum(keep, dims...))
	return c.end(x.NanSum(keep, dims...).Div(count))
}

// ProdAll records x.prod(): of all elements.
func (x *Tensor) ProdAll() *Tensor {
	c := x.tape.begin("prod", x)
	d := sumType(c.fullResult(x.dtype))
	y := x.reduce(reduction{op: "prod", out: d, accSize: d.accumulate().Size(), convert: true}, nil, false)
	return c.end(y.derived("ProdBackward0", inputs{x}, saves{x, y}, func(b *backward) {
		x := b.saved(0)
		b.give(0, prodAllGrad(b.grad.to(x.dtype), x, b.saved(1)))
	}))
}

// prodAllGrad records prod_backward of an input without zeros, which it looks for.
func prodAllGrad(grad, input, result *Tensor) *Tensor {
	c := grad.tape.begin("prod_backward", grad, input, result)
	zeros := c.let(input.compareScalar("eq"))
	count := c.let(c.t.empty(I32))
	c.t.launch(program.Reduction, zeros.numel, []*Tensor{count}, []*Tensor{zeros})
	c.dropLocals(count, zeros)
	slope := result.Div(input)
	return c.end(grad.Mul(slope))
}

// Median records x.median() of all elements, which it sorts. The gradient is shared among all
// that are equal to it.
func (x *Tensor) Median() *Tensor {
	c := x.tape.begin("median", x)
	c.t.NoGrad(func() {
		flat := c.let(x.Reshape(-1))
		sorted, indices := flat.Sort(0)
		c.let(sorted)
		if indices.refs == 0 {
			indices.die()
		}
	})
	y := c.let(c.t.empty(x.dtype))
	c.t.launch(program.Index, 1, []*Tensor{y}, []*Tensor{x.touched(1)})
	return c.end(y.derived("MedianBackward0", inputs{x}, saves{x, y},
		func(b *backward) { b.give(0, evenGrad(b.grad, b.saved(0), b.saved(1))) }))
}

// Trapezoid records torch.trapezoid(x, dx=dx, dim=d).
func (x *Tensor) Trapezoid(d int) *Tensor {
	c := x.tape.begin("trapezoid", x)
	ends := x.Select(d, 0).Add(x.Select(d, -1)).MulScalar() // operands on the right come first
	return c.end(x.Sum(false, d).Sub(ends).MulScalar())
}

// Trace records x.trace(): the sum of a matrix's diagonal.
func (x *Tensor) Trace() *Tensor {
	t := x.tape
	c := t.begin("trace", x)
	var y *Tensor
	t.NoGrad(func() { y = c.let(x.Diagonal(0, 0, 1).Sum(false)) })
	shape := x.shape
	return c.end(y.derived("TraceBackward0", inputs{x}, nil, func(b *backward) {
		c := t.begin("trace_backward", b.grad)
		g := c.let(t.Zeros(b.grad.dtype, shape[0]*shape[1]))
		places := c.let(t.Arange((shape[0]*shape[1] + shape[1]) / (shape[1] + 1)))
		t.launch(program.Index, places.numel, []*Tensor{g.touched(places.numel)}, []*Tensor{places, b.grad})
		b.give(0, c.end(g.View(shape...)))
	}))
}

// Histogram records torch.histc(x, bins), which has no gradient. The range is the data's.
func (x *Tensor) Histogram(bins int64) *Tensor {
	c := x.tape.begin("histc", x)
	y := c.let(c.t.Zeros(x.dtype, bins))
	in := c.let(x.contiguousUntracked())
	c.t.launch(program.Reduction, x.numel, []*Tensor{y}, []*Tensor{in})
	return c.end(y)
}

// BinCount records torch.bincount(x, weights or nil, bins) of numbers below bins, which has no gradient. It reads
// the smallest and the largest first.
func (x *Tensor) BinCount(weights *Tensor, bins int64) *Tensor {
	c := x.tape.begin("bincount", x)
	c.let(x.Min())
	c.let(x.Max())
	d, in := I64, []*Tensor{x}
	if weights != nil {
		d, in = weights.dtype, append(in, weights)
	}
	y := c.t.Zeros(d, bins)
	c.t.launch(program.Reduction, x.numel, []*Tensor{y}, in)
	return c.end(y)
}

// Mode records x.mode(d, keepdim): the values that are most often there, and their places.
func (x *Tensor) Mode(keep bool, d int) (values, indices *Tensor) {
	c := x.tape.begin("mode", x)
	shape, _ := x.reducedShape([]int{d}, keep)
	values, indices = c.let(c.t.empty(x.dtype, shape...)), c.let(c.t.empty(I64, shape...))
	c.t.NoGrad(func() {
		in := c.let(x.Transpose(d, -1).contiguousUntracked())
		c.t.launch(program.Index, x.numel, []*Tensor{values, indices}, []*Tensor{in})
	})
	x.selects("ModeBackward0", values, indices)
	return c.endPair(values, indices)
}

// LogCumSumExp records x.logcumsumexp(d).
func (x *Tensor) LogCumSumExp(d int) *Tensor {
	c := x.tape.begin("logcumsumexp", x)
	y := c.let(x.scan("logcumsumexp", x.dtype, d))
	return c.end(y.derived("LogcumsumexpBackward0", inputs{x}, saves{x, y},
		func(b *backward) { b.give(0, logCumSumExpGrad(b.grad, b.saved(0), b.saved(1), d)) }))
}

// logCumSumExpGrad records logcumsumexp_backward of real numbers.
func logCumSumExpGrad(grad, self, result *Tensor, d int) *Tensor {
	c := grad.tape.begin("logcumsumexp_backward", grad, self, result)
	low := c.let(c.t.empty(grad.dtype))
	logs := c.let(grad.plain("abs", 1).plain("log", transcendentalFLOPs))
	positive := c.let(Where(grad.compareScalar("gt"), logs, low))
	negative := c.let(Where(grad.compareScalar("lt"), logs, low))
	part := func(g *Tensor) *Tensor {
		return c.let(g.Sub(result).Flip(d).scan("logcumsumexp", g.dtype, d).Flip(d).Add(self).Exp())
	}
	gained := part(positive)
	lost := part(negative)
	return c.end(gained.Sub(lost))
}
