package trace

import "github.com/vprof/vprof/profiler/program"

// NanSum records x.nansum(dims, keepdim): the sum of all elements that are not NaN.
func (x *Tensor) NanSum(keep bool, dims ...int) *Tensor {
	c := x.tape.Begin("nansum", x)
	y := x.sumAs("nansum", sumType(x.dtype), dims, keep)
	return c.End(y.SetGradFn("NansumBackward0", inputs{x}, saves{x}, func(b *Gradients) {
		x := b.Saved(0)
		g := b.Grad.AsType(x.dtype).expandGradient(x.shape, dims, keep)
		b.Set(0, g.Mul(x.IsNaN().CompareScalar("logical_not")))
	}))
}

// NanMean records x.nanmean(dims, keepdim): nansum divided by the number of elements that are not NaN.
func (x *Tensor) NanMean(keep bool, dims ...int) *Tensor {
	c := x.tape.Begin("nanmean", x)
	count := c.Bind(x.IsNaN().CompareScalar("logical_not").Sum(keep, dims...))
	return c.End(x.NanSum(keep, dims...).Div(count))
}

// ProdAll records x.prod(), the product of all elements.
func (x *Tensor) ProdAll() *Tensor {
	c := x.tape.Begin("prod", x)
	d := sumType(c.fullResult(x.dtype))
	y := x.reduce(reduction{op: "prod", out: d, accSize: d.accumulate().Size(), convert: true}, nil, false)
	return c.End(y.SetGradFn("ProdBackward0", inputs{x}, saves{x, y}, func(b *Gradients) {
		x := b.Saved(0)
		b.Set(0, prodAllGrad(b.Grad.AsType(x.dtype), x, b.Saved(1)))
	}))
}

// prodAllGrad records prod_backward of an input without zeros. It counts the zeros first.
func prodAllGrad(grad, input, result *Tensor) *Tensor {
	c := grad.tape.Begin("prod_backward", grad, input, result)
	zeros := c.Bind(input.CompareScalar("eq"))
	count := c.Bind(c.t.Alloc(I32))
	c.t.Launch(program.Reduction, zeros.numel, []*Tensor{count}, []*Tensor{zeros})
	c.DropAll(count, zeros)
	slope := result.Div(input)
	return c.End(grad.Mul(slope))
}

// Median records x.median() of all elements, which sorts them. All elements equal to the median share the gradient.
func (x *Tensor) Median() *Tensor {
	c := x.tape.Begin("median", x)
	c.t.NoGrad(func() {
		flat := c.Bind(x.Reshape(-1))
		sorted, indices := flat.Sort(0)
		c.Bind(sorted)
		if indices.refs == 0 {
			indices.releaseResources()
		}
	})
	y := c.Bind(c.t.Alloc(x.dtype))
	c.t.Launch(program.Index, 1, []*Tensor{y}, []*Tensor{x.FirstElements(1)})
	return c.End(y.SetGradFn("MedianBackward0", inputs{x}, saves{x, y},
		func(b *Gradients) { b.Set(0, evenlyDividedGrad(b.Grad, b.Saved(0), b.Saved(1))) }))
}

// Trapezoid records torch.trapezoid(x, dx=dx, dim=d).
func (x *Tensor) Trapezoid(d int) *Tensor {
	c := x.tape.Begin("trapezoid", x)
	ends := x.Select(d, 0).Add(x.Select(d, -1)).MulScalar() // operands on the right come first
	return c.End(x.Sum(false, d).Sub(ends).MulScalar())
}

// Trace records x.trace(): the sum of a matrix's diagonal.
func (x *Tensor) Trace() *Tensor {
	t := x.tape
	c := t.Begin("trace", x)
	var y *Tensor
	t.NoGrad(func() { y = c.Bind(x.Diagonal(0, 0, 1).Sum(false)) })
	shape := x.shape
	return c.End(y.SetGradFn("TraceBackward0", inputs{x}, nil, func(b *Gradients) {
		c := t.Begin("trace_backward", b.Grad)
		g := c.Bind(t.Zeros(b.Grad.dtype, shape[0]*shape[1]))
		places := c.Bind(t.Arange((shape[0]*shape[1] + shape[1]) / (shape[1] + 1)))
		t.Launch(program.Index, places.numel, []*Tensor{g.FirstElements(places.numel)}, []*Tensor{places, b.Grad})
		b.Set(0, c.End(g.View(shape...)))
	}))
}

// Histogram records torch.histc(x, bins), which has no gradient. The bins span the range of x.
func (x *Tensor) Histogram(bins int64) *Tensor {
	c := x.tape.Begin("histc", x)
	y := c.Bind(c.t.Zeros(x.dtype, bins))
	in := c.Bind(x.ContiguousUntracked())
	c.t.Launch(program.Reduction, x.numel, []*Tensor{y}, []*Tensor{in})
	return c.End(y)
}

// BinCount records torch.bincount(x, weights, bins) for elements below bins; weights may be nil. It reads the minimum
// and maximum of x first, and has no gradient.
func (x *Tensor) BinCount(weights *Tensor, bins int64) *Tensor {
	c := x.tape.Begin("bincount", x)
	c.Bind(x.Min())
	c.Bind(x.Max())
	d, in := I64, []*Tensor{x}
	if weights != nil {
		d, in = weights.dtype, append(in, weights)
	}
	y := c.t.Zeros(d, bins)
	c.t.Launch(program.Reduction, x.numel, []*Tensor{y}, in)
	return c.End(y)
}

// Mode records x.mode(d, keepdim): the most frequent values and their indices.
func (x *Tensor) Mode(keep bool, d int) (values, indices *Tensor) {
	c := x.tape.Begin("mode", x)
	shape, _ := x.reducedShape([]int{d}, keep)
	values, indices = c.Bind(c.t.Alloc(x.dtype, shape...)), c.Bind(c.t.Alloc(I64, shape...))
	c.t.NoGrad(func() {
		in := c.Bind(x.Transpose(d, -1).ContiguousUntracked())
		c.t.Launch(program.Index, x.numel, []*Tensor{values, indices}, []*Tensor{in})
	})
	x.setSelectionNode("ModeBackward0", values, indices)
	return c.EndPair(values, indices)
}

// LogCumSumExp records x.logcumsumexp(d).
func (x *Tensor) LogCumSumExp(d int) *Tensor {
	c := x.tape.Begin("logcumsumexp", x)
	y := c.Bind(x.scan("logcumsumexp", x.dtype, d))
	return c.End(y.SetGradFn("LogcumsumexpBackward0", inputs{x}, saves{x, y},
		func(b *Gradients) { b.Set(0, logCumSumExpGrad(b.Grad, b.Saved(0), b.Saved(1), d)) }))
}

// logCumSumExpGrad records logcumsumexp_backward of real numbers.
func logCumSumExpGrad(grad, self, result *Tensor, d int) *Tensor {
	c := grad.tape.Begin("logcumsumexp_backward", grad, self, result)
	low := c.Bind(c.t.Alloc(grad.dtype))
	logs := c.Bind(grad.mapWithoutGrad("abs", 1).mapWithoutGrad("log", transcendentalFLOPs))
	positive := c.Bind(Where(grad.CompareScalar("gt"), logs, low))
	negative := c.Bind(Where(grad.CompareScalar("lt"), logs, low))
	part := func(g *Tensor) *Tensor {
		return c.Bind(g.Sub(result).Flip(d).scan("logcumsumexp", g.dtype, d).Flip(d).Add(self).Exp())
	}
	gained := part(positive)
	lost := part(negative)
	return c.End(gained.Sub(lost))
}
