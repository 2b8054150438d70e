package trace

import "github.com/vprof/vprof/profiler/program"

// CumSum records x.cumsum(dim). Autocast runs it in fp32.
func (x *Tensor) CumSum(dim int) *Tensor {
	c := x.tape.Begin("cumsum", x)
	return c.End(x.CumSumTo(sumType(c.fullResult(x.dtype)), dim))
}

// CumSumTo records x.cumsum(dim, dtype=d).
func (x *Tensor) CumSumTo(d DType, dim int) *Tensor {
	c := x.tape.Begin("cumsum", x)
	y := x.scan("cumsum", d, dim)
	from := x.dtype
	return c.End(y.SetGradFn("CumsumBackward0", inputs{x}, nil, func(b *Gradients) {
		g := b.Grad.AsType(from)
		if g.numel > 1 && g.Size(dim) > 1 {
			g = g.reversedCumSum(dim)
		}
		b.Set(0, g)
	}))
}

// CumProd records x.cumprod(dim). Autocast runs it in fp32.
func (x *Tensor) CumProd(dim int) *Tensor {
	c := x.tape.Begin("cumprod", x)
	return c.End(x.CumProdTo(sumType(c.fullResult(x.dtype)), dim))
}

// CumProdTo records x.cumprod(dim, dtype=d).
func (x *Tensor) CumProdTo(d DType, dim int) *Tensor {
	c := x.tape.Begin("cumprod", x)
	y := x.scan("cumprod", d, dim)
	return c.End(y.SetGradFn("CumprodBackward0", inputs{x}, saves{x, y}, func(b *Gradients) {
		x := b.Saved(0)
		g := b.Grad.AsType(x.dtype)
		if x.numel > 1 && x.Size(dim) > 1 {
			g = cumProdGrad(g, x, b.Saved(1), dim)
		}
		b.Set(0, g)
	}))
}

// scan records the kernel of a cumulative operator: row-major, on a converted copy if the result has another type. CUB
// scans a tensor with only one dimension.
func (x *Tensor) scan(op string, d DType, dim int) *Tensor {
	c := x.tape.Begin(op, x)
	y := c.t.Alloc(d, x.shape...)
	in := x.AsType(d).ContiguousUntracked()
	if x.numel > 0 && x.numel == x.Size(dim) {
		c.t.native = "scan_dim"
		c.t.scan(in, y)
		return c.End(y)
	}
	c.t.Launch(program.Reduction, x.numel, []*Tensor{y}, []*Tensor{in})
	return c.End(y)
}

// Prod records x.prod(dim, keepdim). Autocast runs it in fp32.
func (x *Tensor) Prod(keep bool, dim int) *Tensor {
	c := x.tape.Begin("prod_dim_int", x)
	d := sumType(c.fullResult(x.dtype))
	y := x.reduce(reduction{op: "prod_dim_int", out: d, accSize: d.accumulate().Size(), convert: true},
		[]int{dim}, keep)
	return c.End(y.SetGradFn("ProdBackward1", inputs{x}, saves{x, y}, func(b *Gradients) {
		b.Set(0, prodGrad(b.Grad.AsType(b.Saved(0).dtype), b.Saved(0), b.Saved(1), keep, dim))
	}))
}

// prodGrad records prod_backward of an input that contains no zeros.
func prodGrad(grad, input, result *Tensor, keep bool, dim int) *Tensor {
	c := grad.tape.Begin("prod_backward", grad, input, result)
	if !keep {
		grad, result = c.Bind(grad.Unsqueeze(dim)), c.Bind(result.Unsqueeze(dim))
	}
	zeros := c.Bind(input.CompareScalar("eq"))
	counts := c.Bind(zeros.Sum(true, dim))
	counts.Sum(false)
	c.EndStatement()
	slope := result.Div(input)
	return c.End(grad.Mul(slope))
}

// reversedCumSum records a cumulative sum from the end: x.flip(dim).cumsum(dim).flip(dim).
func (x *Tensor) reversedCumSum(dim int) *Tensor {
	c := x.tape.Begin("reversed_cumsum", x)
	return c.End(x.Flip(dim).scan("cumsum", x.dtype, dim).Flip(dim))
}

// cumProdGrad records cumprod_backward of an input that contains no zeros.
func cumProdGrad(grad, input, output *Tensor, dim int) *Tensor {
	c := grad.tape.Begin("cumprod_backward", grad, input, output)
	w := c.Bind(output.Mul(grad))
	zero := c.Bind(input.CompareScalar("eq"))
	zero.Any(false)
	c.EndStatement()
	return c.End(w.reversedCumSum(dim).Div(input))
}
