package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// IndexPutInPlace is x.index_put_(indices, values).
func (x *Tensor) IndexPutInPlace(indices []*Tensor, values *Tensor, accumulate bool) *Tensor {
	c := x.tape.beginList("index_put_", slices.Concat([]*Tensor{values}, given(indices), []*Tensor{x}))
	x.putAt(indices, values, accumulate)
	if n := x.indexPutNode(indices, values, accumulate); n != nil {
		x.rebase(n)
	}
	return c.end(x)
}

// IndexFill is x.index_fill(d, index, number).
func (x *Tensor) IndexFill(index *Tensor) *Tensor {
	t := x.tape
	c := t.begin("index_fill_int_Scalar", x, index)
	y := x.emptyLike(x.dtype)
	t.launchCopy(y, x)
	t.launch(program.Index, index.numel, []*Tensor{y.touched(index.numel)}, []*Tensor{index})
	return c.end(y.derived("IndexFillBackward0", inputs{x}, saves{index},
		func(b *backward) { b.give(0, b.grad.IndexFill(b.saved(0))) }))
}

// IndexFillInPlace is x.index_fill_(d, index, number).
func (x *Tensor) IndexFillInPlace(index *Tensor) *Tensor {
	t := x.tape
	c := t.begin("index_fill__int_Scalar", x, index)
	t.launch(program.Index, index.numel, []*Tensor{x.touched(index.numel)}, []*Tensor{index})
	if n := t.record("IndexFillBackward0", x); n != nil {
		n.save(index)
		n.apply = func(b *backward) { b.give(0, b.grad.IndexFill(b.saved(0))) }
		x.rebase(n)
	}
	return c.end(x)
}

// IndexCopy is x.index_copy(d, index, source).
func (x *Tensor) IndexCopy(d int, index, source *Tensor) *Tensor {
	t := x.tape
	c := t.begin("index_copy", x, index, source)
	y := t.empty(x.dtype, x.shape...)
	t.launchCopy(y, x)
	t.launch(program.Index, source.numel, []*Tensor{y.touched(source.numel)}, []*Tensor{index, source})
	return c.end(y.derived("IndexCopyBackward0", inputs{x, source}, saves{index, when(source.requiresGrad, source)},
		indexCopyBackward(d)))
}

// IndexCopyInPlace is x.index_copy_(d, index, source).
func (x *Tensor) IndexCopyInPlace(d int, index, source *Tensor) *Tensor {
	t := x.tape
	c := t.begin("index_copy_", x, index, source)
	t.launch(program.Index, source.numel, []*Tensor{x.touched(source.numel)}, []*Tensor{index, source})
	if n := t.record("IndexCopyBackward0", x, source); n != nil {
		n.save(index)
		n.keep(source, n.needs(1))
		n.apply = indexCopyBackward(d)
		x.rebase(n)
	}
	return c.end(x)
}

func indexCopyBackward(d int) func(*backward) {
	return func(b *backward) {
		if b.needs(0) {
			b.give(0, b.grad.IndexFill(b.saved(0)))
		}
		if b.needs(1) {
			b.give(1, b.grad.IndexSelect(d, b.saved(0)))
		}
	}
}

// IndexAddInPlace is x.index_add_(d, index, source).
func (x *Tensor) IndexAddInPlace(d int, index, source *Tensor) *Tensor {
	t := x.tape
	c := t.begin("index_add_", x, index, source)
	t.launch(program.Index, source.numel, []*Tensor{x.touched(source.numel)}, []*Tensor{index, source})
	if n := t.record("IndexAddBackward0", x, source); n != nil {
		n.keep(index, n.needs(1))
		n.keep(source, n.needs(1))
		n.apply = func(b *backward) {
			if b.needs(0) {
				b.give(0, b.grad)
			}
			if b.needs(1) {
				b.give(1, b.grad.IndexSelect(d, b.saved(0)))
			}
		}
		x.rebase(n)
	}
	return c.end(x)
}

// ScatterValue is x.scatter(d, index, number).
func (x *Tensor) ScatterValue(index *Tensor) *Tensor {
	c := x.tape.begin("scatter_value", x, index)
	y := x.scattered("scatter_value", index)
	return c.end(y.derived("ScatterBackward1", inputs{x}, saves{index},
		func(b *backward) { b.give(0, b.grad.scattered("scatter_value", b.saved(0))) }))
}

// ScatterFromInPlace is x.scatter_(d, index, src).
func (x *Tensor) ScatterFromInPlace(index, src *Tensor) *Tensor {
	t := x.tape
	c := t.begin("scatter__src", x, index, src)
	t.launch(program.Index, index.numel, []*Tensor{x.touched(index.numel)}, []*Tensor{index, src})
	if n := t.record("ScatterBackward0", x, src); n != nil {
		n.save(index)
		n.apply = func(b *backward) {
			if b.needs(0) {
				b.give(0, b.grad.scattered("scatter_value", b.saved(0)))
			}
			if b.needs(1) {
				b.give(1, b.grad.Gather(b.saved(0)))
			}
		}
		x.rebase(n)
	}
	return c.end(x)
}

// ScatterAddInPlace is x.scatter_add_(d, index, src).
func (x *Tensor) ScatterAddInPlace(index, src *Tensor) *Tensor {
	t := x.tape
	c := t.begin("scatter_add_", x, index, src)
	t.launch(program.Index, index.numel, []*Tensor{x.touched(index.numel)}, []*Tensor{index, src})
	if n := t.record("ScatterAddBackward0", x, src); n != nil {
		n.keep(index, n.needs(1))
		n.apply = func(b *backward) {
			if b.needs(0) {
				b.give(0, b.grad)
			}
			if b.needs(1) {
				b.give(1, b.grad.Gather(b.saved(0)))
			}
		}
		x.rebase(n)
	}
	return c.end(x)
}

// Take is x.take(index): elements by their number in row-major order.
func (x *Tensor) Take(index *Tensor) *Tensor {
	t := x.tape
	c := t.begin("take", x, index)
	y := t.empty(x.dtype, index.shape...)
	t.launch(program.Index, y.numel, []*Tensor{y}, []*Tensor{x.touched(y.numel), index})
	return c.end(y.derived("TakeBackward0", inputs{x}, saves{index, x}, func(b *backward) {
		c := t.begin("take_backward", b.grad)
		g := c.let(b.saved(1).ZerosLike())
		t.launch(program.Index, b.grad.numel, []*Tensor{g.touched(b.grad.numel)}, []*Tensor{b.saved(0), b.grad})
		b.give(0, c.end(g))
	}))
}

// Search is torch.searchsorted and bucketize: for each element of x a place in
// sorted boundaries.
func (x *Tensor) Search(boundaries *Tensor, out DType) *Tensor {
	t := x.tape
	c := t.begin("searchsorted", x, boundaries)
	y := c.let(t.empty(out, x.shape...))
	t.launch(program.Index, x.numel*16, []*Tensor{y}, []*Tensor{c.let(x.contiguousUntracked()), boundaries})
	return c.end(y)
}

// ScatterSum is x.scatter_reduce(d, index, src, "sum"); without x itself its
// places are not counted.
func (x *Tensor) ScatterSum(index, src *Tensor, withSelf bool) *Tensor {
	c := x.tape.begin("scatter_reduce_two", x, index, src)
	y := x.scattered("scatter_reduce_two", index, src)
	return c.end(y.derived("ScatterReduceBackward0", inputs{x, src}, saves{index, x, src, y}, func(b *backward) {
		index := b.saved(0)
		if b.needs(1) {
			b.out[1] = b.grad.Gather(index).retain()
		}
		if b.needs(0) {
			g := b.grad
			if !withSelf {
				g = g.scattered("scatter_value", index)
			}
			b.out[0] = g.retain()
		}
		b.statement()
	}))
}

// InterleavedPlaces is torch.repeat_interleave(x) of counts x: as many places as
// they add up to.
func (x *Tensor) InterleavedPlaces(size int64) *Tensor {
	t := x.tape
	c := t.begin("repeat_interleave_Tensor", x)
	total := c.let(x.scan("cumsum", I64, 0))
	y := c.let(t.empty(x.dtype, size))
	t.launch(program.Index, size, []*Tensor{y}, []*Tensor{x, total})
	return c.end(y)
}

// RepeatInterleaveBy is x.repeat_interleave(counts, d).
func (x *Tensor) RepeatInterleaveBy(counts *Tensor, d int, size int64) *Tensor {
	c := x.tape.begin("repeat_interleave_self_Tensor", x, counts)
	return c.end(x.IndexSelect(d, counts.InterleavedPlaces(size)))
}

// PickDim is an operator that picks one value along a dimension, such as
// x.median(d): the values and where they were.
func (x *Tensor) PickDim(keep bool, d int) (values, indices *Tensor) {
	t := x.tape
	c := t.begin("median_dim", x)
	shape, _ := x.reducedShape([]int{d}, keep)
	values, indices = c.let(t.empty(x.dtype, shape...)), c.let(t.empty(I64, shape...))
	t.launch(program.Index, x.numel, []*Tensor{values, indices}, []*Tensor{x})
	x.selects("MedianBackward1", values, indices)
	return c.endPair(values, indices)
}

// CumMax is x.cummax(d) and x.cummin(d): the values and where they were.
func (x *Tensor) CumMax() (values, indices *Tensor) {
	t := x.tape
	c := t.begin("cummax", x)
	values, indices = c.let(t.empty(x.dtype, x.shape...)), c.let(t.empty(I64, x.shape...))
	t.launch(program.Reduction, x.numel, []*Tensor{values, indices}, []*Tensor{x})
	x.selects("CummaxBackward0", values, indices)
	return c.endPair(values, indices)
}
