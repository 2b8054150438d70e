package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Gather is x.gather(d, index).
func (x *Tensor) Gather(index *Tensor) *Tensor {
	t := x.tape
	c := t.begin("gather", x, index)
	y := t.empty(x.dtype, index.shape...)
	t.launch(program.Index, y.numel, []*Tensor{y}, []*Tensor{x.touched(y.numel), index})
	return c.end(y.derived("GatherBackward0", inputs{x}, saves{index, x}, func(b *backward) {
		c := t.begin("gather_backward", b.grad)
		g := c.let(t.Filled("new_zeros", b.grad.dtype, b.saved(1).shape...))
		t.launch(program.Index, b.grad.numel, []*Tensor{g.touched(b.grad.numel)}, []*Tensor{b.saved(0), b.grad})
		b.give(0, c.end(g))
	}))
}

// scattered is a copy of x, written to at index.
func (x *Tensor) scattered(op string, index *Tensor, src ...*Tensor) *Tensor {
	t := x.tape
	c := t.begin(op, x, index)
	y := t.empty(x.dtype, x.shape...)
	t.launchCopy(y, x)
	t.launch(program.Index, index.numel, []*Tensor{y.touched(index.numel)}, append([]*Tensor{index}, src...))
	return c.end(y)
}

// Scatter is x.scatter(d, index, src).
func (x *Tensor) Scatter(index, src *Tensor) *Tensor {
	c := x.tape.begin("scatter_src", x, index, src)
	y := x.scattered("scatter_src", index, src)
	return c.end(y.derived("ScatterBackward0", inputs{x, src}, saves{index}, each(
		partial{0, func(b *backward) *Tensor { return b.grad.scattered("scatter_value", b.saved(0)) }},
		partial{1, func(b *backward) *Tensor { return b.grad.Gather(b.saved(0)) }},
	)))
}

// ScatterAdd is x.scatter_add(d, index, src).
func (x *Tensor) ScatterAdd(index, src *Tensor) *Tensor {
	c := x.tape.begin("scatter_add", x, index, src)
	y := x.scattered("scatter_add", index, src)
	return c.end(y.derived("ScatterAddBackward0", inputs{x, src}, saves{when(src.requiresGrad, index)}, each(
		partial{0, func(b *backward) *Tensor { return b.grad }},
		partial{1, func(b *backward) *Tensor { return b.grad.Gather(b.saved(0)) }},
	)))
}

// ScatterInPlace is x.scatter_(d, index, number).
func (x *Tensor) ScatterInPlace(index *Tensor) *Tensor {
	t := x.tape
	c := t.begin("scatter__value", x, index)
	t.launch(program.Index, index.numel, []*Tensor{x.touched(index.numel)}, []*Tensor{index})
	if n := t.record("ScatterBackward1", x); n != nil {
		n.save(index)
		n.apply = func(b *backward) { b.give(0, b.grad.scattered("scatter_value", b.saved(0))) }
		x.rebase(n)
	}
	return c.end(x)
}

// OneHot is torch.nn.functional.one_hot(x, classes).
func (x *Tensor) OneHot(classes int64) *Tensor {
	t := x.tape
	c := t.begin("one_hot", x)
	y := c.let(t.Zeros(x.dtype, slices.Concat(x.shape, []int64{classes})...))
	c.let(y.ScatterInPlace(x.Unsqueeze(-1)))
	return c.end(y)
}
