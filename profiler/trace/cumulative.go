package trace

import "github.com/vprof/vprof/profiler/program"

// CumSum records x.cumsum(dim). Autocast runs it in fp32.
func (x *Tensor) CumSum(dim int) *Tensor {
	c := x.tape.begin("cumsum", x)
	return c.end(x.CumSumTo(sumType(c.fullResult(x.dtype)), dim))
}

// CumSumTo records x.cumsum(dim, dtype=d).
func (x *Tensor) CumSumTo(d DType, dim int) *Tensor {
	c := x.tape.begin("cumsum", x)
	y := x.scan("cumsum", d, dim)
	from := x.dtype
	return c.end(y.derived("CumsumBackward0", inputs{x}, nil, func(b *backward) {
		g := b.grad.to(from)
		if g.numel > 1 && g.Size(dim) > 1 {
			g = g.reversedCumSum(dim)
		}
		b.give(0, g)
	}))
}

// CumProd records x.cumprod(dim). Autocast runs it in fp32.
func (x *Tensor) CumProd(dim int) *Tensor {
	c := x.tape.begin("cumprod", x)
	return c.end(x.CumProdTo(sumType(c.fullResult(x.dtype)), dim))
}

// CumProdTo records x.cumprod(dim, dtype=d).
func (x *Tensor) CumProdTo(d DType, dim int) *Tensor {
	c := x.tape.begin("cumprod", x)
	y := x.scan("cumprod", d, dim)
	return c.end(y.derived("CumprodBackward0", inputs{x}, saves{x, y}, func(b *backward) {
		x := b.saved(0)
		g := b.grad.to(x.dtype)
		if x.numel > 1 && x.Size(dim) > 1 {
			g = cumProdGrad(g, x, b.saved(1), dim)
		}
		b.give(0, g)
	}))
}

// scan returns the kernel of both: row-major, over a converted copy if the result
// has another type. CUB scans a tensor that has one dimension only.
func (x *Tensor) scan(op string, d DType, dim int) *Tensor {
	c := x.tape.begin(op, x)
	y := c.t.empty(d, x.shape...)
	in := x.to(d).contiguousUntracked()
	if x.numel > 0 && x.numel == x.Size(dim) {
		c.t.native = "scan_dim"
		c.t.scan(in, y)
		return c.end(y)
	}
	c.t.launch(program.Reduction, x.numel, []*Tensor{y}, []*Tensor{in})
	return c.end(y)
}

// Prod records x.prod(dim, keepdim). Autocast runs it in fp32.
func (x *Tensor) Prod(keep bool, dim int) *Tensor {
	c := x.tape.begin("prod_dim_int", x)
	d := sumType(c.fullResult(x.dtype))
	y := x.reduce(reduction{op: "prod_dim_int", out: d, accSize: d.accumulate().Size(), convert: true},
		[]int{dim}, keep)
	return c.end(y.derived("ProdBackward1", inputs{x}, saves{x, y},
		func(b *backward) { b.give(0, prodGrad(b.grad.to(b.saved(0).dtype), b.saved(0), b.saved(1), keep, dim)) }))
}

// prodGrad records prod_backward of an input without zeros.
func prodGrad(grad, input, result *Tensor, keep bool, dim int) *Tensor {
	c := grad.tape.begin("prod_backward", grad, input, result)
	if !keep {
		grad, result = c.let(grad.Unsqueeze(dim)), c.let(result.Unsqueeze(dim))
	}
	zeros := c.let(input.compareScalar("eq"))
	counts := c.let(zeros.Sum(true, dim))
	counts.Sum(false)
	c.statement()
	slope := result.Div(input)
	return c.end(grad.Mul(slope))
}

// reversedCumSum sums from the end: x.flip(dim).cumsum(dim).flip(dim).
func (x *Tensor) reversedCumSum(dim int) *Tensor {
	c := x.tape.begin("reversed_cumsum", x)
	return c.end(x.Flip(dim).scan("cumsum", x.dtype, dim).Flip(dim))
}

// cumProdGrad records cumprod_backward of an input without zeros.
func cumProdGrad(grad, input, output *Tensor, dim int) *Tensor {
	c := grad.tape.begin("cumprod_backward", grad, input, output)
	w := c.let(output.Mul(grad))
	zero := c.let(input.compareScalar("eq"))
	zero.Any(false)
	c.statement()
	return c.end(w.reversedCumSum(dim).Div(input))
}
