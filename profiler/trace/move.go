package trace

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
)

// Operators that move or repeat elements.

// recordCopy records a kernel that fills y with elements of x, and sets the operator's node.
func (x *Tensor) recordCopy(node string, y *Tensor, back func(grad *Tensor) *Tensor) *Tensor {
	x.tape.LaunchCopy(y, x)
	y.SetGradFn(node, inputs{x}, nil, func(b *Gradients) { b.Set(0, back(b.Grad)) })
	return y
}

// Flip records x.flip(dims).
func (x *Tensor) Flip(dims ...int) *Tensor {
	c := x.tape.Begin("flip", x)
	y := x.AllocLike(x.dtype)
	return c.End(x.recordCopy("FlipBackward0", y, func(g *Tensor) *Tensor { return g.Flip(dims...) }))
}

// Roll records x.roll(shifts, dims). Each dimension is rolled separately.
func (x *Tensor) Roll(dims ...int) *Tensor {
	c := x.tape.Begin("roll", x)
	y := x.roll(len(dims))
	return c.End(y.SetGradFn("RollBackward0", inputs{x}, nil, func(b *Gradients) { b.Set(0, b.Grad.roll(len(dims))) }))
}

// roll records roll_cuda of the first dimension, then of the others.
func (x *Tensor) roll(dims int) *Tensor {
	c := x.tape.Begin("roll_cuda", x)
	if dims > 1 {
		first := c.Bind(x.roll(1))
		return c.End(first.roll(dims - 1))
	}
	in := c.Bind(x.AsContiguous())
	y := c.Bind(c.t.Alloc(x.dtype, x.shape...))
	c.t.LaunchCopy(y, in)
	return c.End(y)
}

// Tril records x.tril().
func (x *Tensor) Tril() *Tensor { return x.triangularPart("tril", "TrilBackward0") }

// Triu records x.triu().
func (x *Tensor) Triu() *Tensor { return x.triangularPart("triu", "TriuBackward0") }

func (x *Tensor) triangularPart(op, node string) *Tensor {
	c := x.tape.Begin(op, x)
	y := c.t.Alloc(x.dtype, x.shape...)
	return c.End(x.recordCopy(node, y, func(g *Tensor) *Tensor { return g.triangularPart(op, node) }))
}

// Repeat records x.repeat(times). More times than dimensions add leading dimensions.
func (x *Tensor) Repeat(times ...int64) *Tensor {
	c := x.tape.Begin("repeat", x)
	lead := len(times) - len(x.shape)
	shape := slices.Clone(times)
	for d, s := range x.shape {
		shape[lead+d] *= s
	}
	y := c.t.Alloc(x.dtype, shape...)
	from := x.shape
	return c.End(x.recordCopy("RepeatBackward0", y, func(g *Tensor) *Tensor { return g.repeatBackward(times, from) }))
}

// repeatBackward records the sum of the gradient over all repetitions.
func (g *Tensor) repeatBackward(times, from []int64) *Tensor {
	c := g.tape.Begin("repeat_backward", g)
	y := c.Bind(g)
	lead := len(times) - len(from)
	for range lead {
		c.Set(&y, y.SumUncast("sum_dim_IntList", []int{0}, false))
	}
	var split []int64
	var dims []int
	for d, s := range from {
		if n := times[lead+d]; n != 1 {
			dims = append(dims, len(split))
			split = append(split, n)
		}
		split = append(split, s)
	}
	if len(dims) > 0 {
		c.Set(&y, y.AsShape(split))
		c.Set(&y, y.SumUncast("sum_dim_IntList", dims, false))
	}
	return c.End(y)
}

// Tile records x.tile(times): repeat, with leading ones if there are fewer times than dimensions.
func (x *Tensor) Tile(times ...int64) *Tensor {
	c := x.tape.Begin("tile", x)
	for len(times) < len(x.shape) {
		times = append([]int64{1}, times...)
	}
	return c.End(x.Repeat(times...))
}

// RepeatInterleave records x.repeat_interleave(n, d), which repeats each element along dimension d n times.
func (x *Tensor) RepeatInterleave(n int64, d int) *Tensor {
	c := x.tape.Begin("repeat_interleave_self_int", x)
	d = x.Dim(d)
	wide := c.Bind(x.Unsqueeze(d + 1))
	shape := lists.Replace(wide.shape, d+1, n)
	c.Set(&wide, wide.Expand(shape...))
	return c.End(wide.CloneContiguous().Flatten(d, d+1))
}
