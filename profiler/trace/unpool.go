package trace

import "github.com/vprof/vprof/profiler/program"

// MaxUnpool is max_unpool2d or 3d to the given spatial sizes: x at the places of indices,
// zeros elsewhere. Its kernels want contiguous tensors.
func (x *Tensor) MaxUnpool(indices *Tensor, sizes ...int64) *Tensor {
	t := x.tape
	c := t.begin("max_unpool", x, indices)
	shape := append(append([]int64(nil), x.shape[:len(x.shape)-len(sizes)]...), sizes...)
	in := c.let(x.contiguousUntracked())
	places := c.let(indices.contiguousUntracked())
	y := c.let(t.Zeros(x.dtype, shape...))
	t.launch(program.Index, x.numel, []*Tensor{y.touched(x.numel)}, []*Tensor{in, places})
	node := map[int]string{2: "MaxUnpool2DBackward0", 3: "MaxUnpool3DBackward0"}[len(sizes)]
	from := x.shape
	return c.end(y.derived(node, inputs{x}, saves{indices}, func(b *backward) {
		c := t.begin("max_unpool_backward", b.grad, b.saved(0))
		index := c.let(b.saved(0).View(append(append([]int64(nil), from[:len(from)-len(sizes)]...), -1)...))
		grad := c.let(b.grad.contiguousUntracked().
			View(append(append([]int64(nil), from[:len(from)-len(sizes)]...), -1)...))
		g := c.let(t.empty(b.grad.dtype, index.shape...))
		t.launch(program.Index, g.numel, []*Tensor{g}, []*Tensor{grad, index})
		b.give(0, c.end(g.View(from...)))
	}))
}

// FractionalMaxPool is fractional_max_pool2d or 3d: the maxima of windows that begin at
// random places, and where they were.
func (x *Tensor) FractionalMaxPool(samples *Tensor, sizes ...int64) (y, indices *Tensor) {
	t := x.tape
	c := t.begin("fractional_max_pool", x, samples)
	shape := append(append([]int64(nil), x.shape[:len(x.shape)-len(sizes)]...), sizes...)
	y, indices = c.let(t.empty(x.dtype, shape...)), c.let(t.empty(I64, shape...))
	in := c.let(x.contiguousUntracked())
	t.launch(program.Reduction, x.numel, []*Tensor{y, indices}, []*Tensor{in, samples})
	node := map[int]string{2: "FractionalMaxPool2DBackward0", 3: "FractionalMaxPool3DBackward0"}[len(sizes)]
	y.derived(node, inputs{x}, saves{x, indices}, func(b *backward) {
		c := t.begin("fractional_max_pool_backward", b.grad, b.saved(0), b.saved(1))
		g := c.let(t.Zeros(b.grad.dtype, b.saved(0).shape...))
		t.launch(program.Index, b.grad.numel, []*Tensor{g.touched(b.grad.numel)}, []*Tensor{b.grad, b.saved(1)})
		b.give(0, c.end(g))
	})
	return c.endPair(y, indices)
}
