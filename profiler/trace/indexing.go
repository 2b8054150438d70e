package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// IndexPutInPlace is x.index_put_(indices, values).
func (x *Tensor) IndexPutInPlace(indices []*Tensor, values *Tensor, accumulate bool) *Tensor {
	c := x.tape.beginList("index_put_", slices.Concat([]*Tensor{values}, indicesGiven(indices), []*Tensor{x}))
	x.putAt(indices, values, accumulate)
	return c.end(x.rederived("IndexPutBackward0", inputs{x, values}, indices, indexPutGradients(values, accumulate)))
}

// Search is torch.searchsorted and bucketize: for each element of x a place in
// sorted boundaries.
func (x *Tensor) Search(boundaries *Tensor, out DType) *Tensor {
	c := x.tape.begin("searchsorted", x, boundaries)
	y := c.let(c.t.empty(out, x.shape...))
	c.t.launch(program.Index, x.numel*16, []*Tensor{y}, []*Tensor{c.let(x.contiguousUntracked()), boundaries})
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
	c := x.tape.begin("repeat_interleave_Tensor", x)
	total := c.let(x.scan("cumsum", I64, 0))
	y := c.let(c.t.empty(x.dtype, size))
	c.t.launch(program.Index, size, []*Tensor{y}, []*Tensor{x, total})
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
	c := x.tape.begin("median_dim", x)
	shape, _ := x.reducedShape([]int{d}, keep)
	values, indices = c.let(c.t.empty(x.dtype, shape...)), c.let(c.t.empty(I64, shape...))
	c.t.launch(program.Index, x.numel, []*Tensor{values, indices}, []*Tensor{x})
	x.selects("MedianBackward1", values, indices)
	return c.endPair(values, indices)
}

// CumMax is x.cummax(d) and x.cummin(d): the values and where they were.
func (x *Tensor) CumMax() (values, indices *Tensor) {
	c := x.tape.begin("cummax", x)
	values, indices = c.let(c.t.empty(x.dtype, x.shape...)), c.let(c.t.empty(I64, x.shape...))
	c.t.launch(program.Reduction, x.numel, []*Tensor{values, indices}, []*Tensor{x})
	x.selects("CummaxBackward0", values, indices)
	return c.endPair(values, indices)
}
