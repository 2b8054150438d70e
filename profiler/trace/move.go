package trace

import (
	"github.com/vprof/vprof/internal/lists"
	"slices"
)

// Operators that put elements elsewhere, or there more than once.

// copied records a kernel that fills y from x, and the operator's gradient.
func (x *Tensor) copied(node string, y *Tensor, back func(grad *Tensor) *Tensor) *Tensor {
	x.tape.launchCopy(y, x)
	y.derived(node, inputs{x}, nil, func(b *backward) { b.give(0, back(b.grad)) })
	return y
}

// Flip records x.flip(dims).
func (x *Tensor) Flip(dims ...int) *Tensor {
	c := x.tape.begin("flip", x)
	y := x.emptyLike(x.dtype)
	return c.end(x.copied("FlipBackward0", y, func(g *Tensor) *Tensor { return g.Flip(dims...) }))
}

// Roll records x.roll(shifts, dims) for as many shifts as dims are given, at least
// one: each dimension is rolled by itself.
func (x *Tensor) Roll(dims ...int) *Tensor {
	c := x.tape.begin("roll", x)
	y := x.roll(len(dims))
	return c.end(y.derived("RollBackward0", inputs{x}, nil, func(b *backward) { b.give(0, b.grad.roll(len(dims))) }))
}

// roll records roll_cuda of the first dimension, then roll of the others.
func (x *Tensor) roll(dims int) *Tensor {
	c := x.tape.begin("roll_cuda", x)
	if dims > 1 {
		first := c.let(x.roll(1))
		return c.end(first.roll(dims - 1))
	}
	in := c.let(x.contiguous())
	y := c.let(c.t.empty(x.dtype, x.shape...))
	c.t.launchCopy(y, in)
	return c.end(y)
}

// Tril records x.tril().
func (x *Tensor) Tril() *Tensor { return x.triangle("tril", "TrilBackward0") }

// Triu records x.triu().
func (x *Tensor) Triu() *Tensor { return x.triangle("triu", "TriuBackward0") }

func (x *Tensor) triangle(op, node string) *Tensor {
	c := x.tape.begin(op, x)
	y := c.t.empty(x.dtype, x.shape...)
	return c.end(x.copied(node, y, func(g *Tensor) *Tensor { return g.triangle(op, node) }))
}

// Repeat records x.repeat(times): the whole tensor, so many times along each
// dimension; more times than dimensions add leading ones.
func (x *Tensor) Repeat(times ...int64) *Tensor {
	c := x.tape.begin("repeat", x)
	lead := len(times) - len(x.shape)
	shape := slices.Clone(times)
	for d, s := range x.shape {
		shape[lead+d] *= s
	}
	y := c.t.empty(x.dtype, shape...)
	from := x.shape
	return c.end(x.copied("RepeatBackward0", y, func(g *Tensor) *Tensor { return g.repeatBackward(times, from) }))
}

// repeatBackward sums the gradient of all repetitions.
func (g *Tensor) repeatBackward(times, from []int64) *Tensor {
	c := g.tape.begin("repeat_backward", g)
	y := c.let(g)
	lead := len(times) - len(from)
	for range lead {
		c.set(&y, y.sum("sum_dim_IntList", []int{0}, false))
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
		c.set(&y, y.reshape(split))
		c.set(&y, y.sum("sum_dim_IntList", dims, false))
	}
	return c.end(y)
}

// Tile records x.tile(times): repeat, with fewer times than dimensions filled up
// with ones in front.
func (x *Tensor) Tile(times ...int64) *Tensor {
	c := x.tape.begin("tile", x)
	for len(times) < len(x.shape) {
		times = append([]int64{1}, times...)
	}
	return c.end(x.Repeat(times...))
}

// RepeatInterleave records x.repeat_interleave(n, d): each element along dimension
// d, n times in a row.
func (x *Tensor) RepeatInterleave(n int64, d int) *Tensor {
	c := x.tape.begin("repeat_interleave_self_int", x)
	d = x.dim(d)
	wide := c.let(x.Unsqueeze(d + 1))
	shape := lists.With(wide.shape, d+1, n)
	c.set(&wide, wide.Expand(shape...))
	return c.end(wide.CloneContiguous().Flatten(d, d+1))
}
