package trace

import (
	"math/bits"
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Index records x[indices]: tensors of integers, nil where a dimension is taken
// whole. Trailing dimensions need no entry.
func (x *Tensor) Index(indices ...*Tensor) *Tensor {
	t := x.tape
	c := t.beginList("index_Tensor", append(indicesGiven(indices), x))
	places := c.expandMasks(indices)
	c.alignIndices(indicesGiven(places))
	y := t.empty(x.dtype, x.picks(places).shape...)
	t.launch(program.Index, y.numel, []*Tensor{y}, append([]*Tensor{x.touched(y.numel)}, indicesGiven(places)...))
	from, d := x.shape, x.dtype
	return c.end(y.derived("IndexBackward0", inputs{x}, indices, func(b *backward) {
		c := t.begin("index_backward", b.grad)
		zeros := t.Filled("new_zeros", d, from...)
		zeros.accumulateAt(b.kept, b.grad, false)
		b.give(0, c.end(zeros))
	}))
}

// alignIndices copies several indices that, broadcast together, are not laid
// out alike (make_info of TensorAdvancedIndexing.cpp).
func (c *call) alignIndices(indices []*Tensor) {
	wide := make([]*Tensor, len(indices))
	alike := true
	for k, i := range indices {
		wide[k] = c.let(i.Expand(broadcast(indices...)...))
		alike = alike && slices.Equal(wide[k].strides, wide[0].strides)
	}
	if alike {
		return
	}
	for k := range wide {
		c.set(&wide[k], wide[k].contiguousUntracked())
	}
}

// IndexPut records x.index_put(indices, values), or with accumulate a sum.
func (x *Tensor) IndexPut(indices []*Tensor, values *Tensor, accumulate bool) *Tensor {
	t := x.tape
	c := t.beginList("index_put", slices.Concat([]*Tensor{values}, indicesGiven(indices), []*Tensor{x}))
	y := c.let(x.emptyLike(x.dtype))
	t.launchCopy(y, x)
	y.putAt(indices, values, accumulate)
	return c.end(y.derived("IndexPutBackward0", inputs{x, values}, indices, indexPutGradients(values, accumulate)))
}

// SetItem records x[indices] = values. Like Tensor.__setitem__ it drops the leading
// dimensions of size one from values.
func (x *Tensor) SetItem(values *Tensor, indices ...*Tensor) {
	c := x.tape.beginList("index_put_", slices.Concat([]*Tensor{values}, indicesGiven(indices), []*Tensor{x}))
	sliced := values.shape
	for len(sliced) > 0 && sliced[0] == 1 {
		sliced = sliced[1:]
	}
	if len(sliced) < len(values.shape) {
		values = c.let(values.View(sliced...))
	}
	x.putAt(indices, values, false)
	x.rederived("IndexPutBackward0", inputs{x, values}, indices, indexPutGradients(values, false))
	c.finish()
}

// putAt writes values to the places that the indices pick.
func (x *Tensor) putAt(indices []*Tensor, values *Tensor, accumulate bool) {
	if accumulate {
		x.accumulateAt(indices, values, true)
		return
	}
	c := x.tape.begin("index_put_", x, values)
	if values.numel > 1 { // one value is filled in by masked_fill
		indices = c.expandMasks(indices)
	}
	x.tape.launch(program.Index, values.numel, []*Tensor{x.touched(values.numel)},
		append([]*Tensor{values}, indicesGiven(indices)...))
	c.finish()
}

// indexPutGradients returns the derivative of index_put.
func indexPutGradients(values *Tensor, accumulate bool) func(b *backward) {
	shape, d := values.shape, values.dtype
	return each(
		partial{0, func(b *backward) *Tensor {
			if accumulate {
				return b.grad
			}
			return b.grad.IndexPut(b.kept, b.t.Zeros(d, shape...), false)
		}},
		partial{1, func(b *backward) *Tensor { return b.grad.Index(b.kept...) }},
	)
}

// indicesGiven returns the indices of dimensions that are not taken whole.
func indicesGiven(indices []*Tensor) []*Tensor {
	var out []*Tensor
	for _, i := range indices {
		if i != nil {
			out = append(out, i)
		}
	}
	return out
}

// picks is the geometry of an indexing operator: the shape of the result, and the number
// of elements at each position of the indices.
type picks struct {
	shape []int64
	slice int64
}

// picks works out AdvancedIndex: the indices are broadcast together; their
// shape takes the place of the dimensions they pick from, or the front if
// those are not neighbors.
func (x *Tensor) picks(indices []*Tensor) picks {
	all := indicesGiven(indices)
	var rest []int64
	for d, s := range x.shape {
		if d >= len(indices) || indices[d] == nil {
			rest = append(rest, s)
		}
	}
	at := 0
	if adjacent(indices) {
		at = slices.IndexFunc(indices, func(i *Tensor) bool { return i != nil })
	}
	shape := slices.Concat(rest[:at], broadcast(all...), rest[at:])
	return picks{shape: shape, slice: numel(rest[at:])}
}

// accumulateAt records index_put_with_sort_kernel: x[indices] += values, in order.
// It sorts the positions written to, whose range is checked unless autograd calls.
func (x *Tensor) accumulateAt(indices []*Tensor, values *Tensor, check bool) {
	c := x.tape.begin("_index_put_impl_", x, values)
	indices = c.expandMasks(indices)
	linear := c.let(x.linearIndex(indices, check))
	if shape := x.picks(indices).shape; values.numel < numel(shape) {
		values = c.let(values.Expand(shape...).contiguousUntracked())
	} else {
		c.let(values.contiguousUntracked())
	}
	if !adjacent(indices) { // the dimensions picked from go to the front of a copy
		c.let(c.t.empty(x.dtype, x.shape...))
	}
	n := linear.numel
	c.t.native = "index_put_with_sort_kernel"
	sorted := c.let(c.t.empty(I64, n))
	order := c.let(c.t.empty(I64, n))
	positions := c.let(c.t.Arange(n))
	c.t.radixSort(sorted, order, linear, positions, bits.Len64(uint64((x.extent-1)/x.picks(indices).slice)))
	c.t.launch(program.Index, values.numel, []*Tensor{x.touched(values.numel)}, []*Tensor{sorted, order, values})
	c.finish()
}

// adjacent reports whether the dimensions that are picked from are neighbors.
func adjacent(indices []*Tensor) bool {
	first, last := -1, -1
	for d, i := range indices {
		if i != nil {
			last = d
			if first < 0 {
				first = d
			}
		}
	}
	return last-first+1 == len(indicesGiven(indices))
}

// linearIndex records computeLinearIndex: one number for every position that the
// indices pick.
func (x *Tensor) linearIndex(indices []*Tensor, check bool) *Tensor {
	c := x.tape.begin("computeLinearIndex")
	var linear *Tensor
	shape := broadcast(indicesGiven(indices)...)
	for _, i := range indices {
		if i == nil {
			continue
		}
		if check {
			i.checkRange()
		}
		i = i.Expand(shape...)
		wrapped := c.t.map1("remainder", I64, 1, i)
		scaled := c.t.map1("mul", I64, 1, wrapped)
		if linear == nil {
			linear = c.let(scaled)
			continue
		}
		part := c.let(scaled)
		c.t.launchElementwise(linear, 1, linear, part)
		c.drop(part)
	}
	return c.end(linear)
}

// checkRange looks whether the indices x are within a dimension: the largest and
// the smallest are compared with it on the host.
func (x *Tensor) checkRange() {
	c := x.tape.begin("wrapIndices", x)
	for range 2 {
		extreme := c.let(c.t.empty(x.dtype))
		c.t.launch(program.Reduction, x.numel, []*Tensor{extreme}, []*Tensor{x})
		c.drop(c.let(c.t.empty(Bool)))
		c.drop(extreme)
	}
	c.finish()
}

// IndexPutInPlace records x.index_put_(indices, values).
func (x *Tensor) IndexPutInPlace(indices []*Tensor, values *Tensor, accumulate bool) *Tensor {
	c := x.tape.beginList("index_put_", slices.Concat([]*Tensor{values}, indicesGiven(indices), []*Tensor{x}))
	x.putAt(indices, values, accumulate)
	return c.end(x.rederived("IndexPutBackward0", inputs{x, values}, indices, indexPutGradients(values, accumulate)))
}

// Search records torch.searchsorted and bucketize: for each element of x a place in
// sorted boundaries.
func (x *Tensor) Search(boundaries *Tensor, out DType) *Tensor {
	c := x.tape.begin("searchsorted", x, boundaries)
	y := c.let(c.t.empty(out, x.shape...))
	c.t.launch(program.Index, x.numel*16, []*Tensor{y}, []*Tensor{c.let(x.contiguousUntracked()), boundaries})
	return c.end(y)
}

// ScatterSum records x.scatter_reduce(d, index, src, "sum"); without x itself its
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

// InterleavedPlaces records torch.repeat_interleave(x) of counts x: as many places as
// they add up to.
func (x *Tensor) InterleavedPlaces(size int64) *Tensor {
	c := x.tape.begin("repeat_interleave_Tensor", x)
	total := c.let(x.scan("cumsum", I64, 0))
	y := c.let(c.t.empty(x.dtype, size))
	c.t.launch(program.Index, size, []*Tensor{y}, []*Tensor{x, total})
	return c.end(y)
}

// RepeatInterleaveBy records x.repeat_interleave(counts, d).
func (x *Tensor) RepeatInterleaveBy(counts *Tensor, d int, size int64) *Tensor {
	c := x.tape.begin("repeat_interleave_self_Tensor", x, counts)
	return c.end(x.IndexSelect(d, counts.InterleavedPlaces(size)))
}

// PickDim returns an operator that picks one value along a dimension, such as
// x.median(d): the values and where they were.
func (x *Tensor) PickDim(keep bool, d int) (values, indices *Tensor) {
	c := x.tape.begin("median_dim", x)
	shape, _ := x.reducedShape([]int{d}, keep)
	values, indices = c.let(c.t.empty(x.dtype, shape...)), c.let(c.t.empty(I64, shape...))
	c.t.launch(program.Index, x.numel, []*Tensor{values, indices}, []*Tensor{x})
	x.selects("MedianBackward1", values, indices)
	return c.endPair(values, indices)
}

// CumMax records x.cummax(d) and x.cummin(d): the values and where they were.
func (x *Tensor) CumMax() (values, indices *Tensor) {
	c := x.tape.begin("cummax", x)
	values, indices = c.let(c.t.empty(x.dtype, x.shape...)), c.let(c.t.empty(I64, x.shape...))
	c.t.launch(program.Reduction, x.numel, []*Tensor{values, indices}, []*Tensor{x})
	x.selects("CummaxBackward0", values, indices)
	return c.endPair(values, indices)
}

// IndexReduce records x.index_reduce(d, index, source, how) for "mean", "amax" and "amin"; without x
// itself its rows are not counted.
func (x *Tensor) IndexReduce(how string, d int, index, source *Tensor, withSelf bool) *Tensor {
	t := x.tape
	c := t.begin("index_reduce", x, index, source)
	y := c.let(x.like())
	t.launchCopy(y, x)
	if how == "mean" {
		y.indexCounts(index, source)
	}
	t.launch(program.Index, source.numel, []*Tensor{y.touched(source.numel)}, []*Tensor{index, source})
	return c.end(y.derived("IndexReduceBackward0", inputs{x, source}, saves{x, index, source, y}, func(b *backward) {
		c := t.begin("index_reduce_backward", b.grad)
		x, index, source, y := b.saved(0), b.saved(1), b.saved(2), b.saved(3)
		var gx, gs *Tensor
		if how == "mean" {
			gx, gs = indexMeanGrads(b.grad, index, source, d)
		} else {
			gx, gs = indexExtremeGrads(b.grad, x, index, source, y, d)
		}
		c.letAll([]*Tensor{gx, gs})
		if !withSelf {
			c.set(&gx, gx.maskedRows(index))
		}
		c.endPair(gx, gs)
		b.givePair(gx, gs)
	}))
}

// indexCounts records the divisors of means.
func (x *Tensor) indexCounts(index, source *Tensor) {
	c := x.tape.begin("index_reduce", x)
	counts := c.let(x.like())
	ones := c.let(source.like())
	c.t.launch(program.Index, source.numel, []*Tensor{counts}, []*Tensor{index, ones})
	c.drop(ones)
	c.drop(c.let(counts.compareScalar("eq")))
	c.finish()
}

// maskedRows records grad.index_fill(dim, index, 0).
func (x *Tensor) maskedRows(index *Tensor) *Tensor {
	c := x.tape.begin("index_fill", x, index)
	y := x.like()
	c.t.launchCopy(y, x)
	return c.end(y)
}

// indexMeanGrads returns the part of index_reduce_backward for means.
func indexMeanGrads(grad, index, source *Tensor, d int) (gx, gs *Tensor) {
	c := grad.tape.begin("index_reduce_backward", grad)
	n := c.let(grad.OnesLike())
	c.set(&n, n.IndexAdd(d, index, source.OnesLike()))
	n.MaskedFillInPlace(n.compareScalar("eq_Scalar"))
	c.statement()
	gx = c.let(grad.Div(n))
	picked := grad.IndexSelect(d, index)
	gs = c.let(picked.Div(n.IndexSelect(d, index)))
	return c.endPair(gx, gs)
}

// indexExtremeGrads records the backward of maxima and minima, where equal elements share a
// gradient.
func indexExtremeGrads(grad, x, index, source, result *Tensor, d int) (gx, gs *Tensor) {
	c := grad.tape.begin("index_reduce_backward", grad)
	value := c.let(result.IndexSelect(d, index))
	own := c.let(x.compare("eq", result).to(x.dtype))
	from := c.let(source.compare("eq", value).to(source.dtype))
	n := c.let(own.IndexAdd(d, index, from))
	share := c.let(grad.Div(n))
	gx = c.let(own.Mul(share))
	gs = c.let(from.Mul(share.IndexSelect(d, index)))
	return c.endPair(gx, gs)
}
