package trace

import (
	"math/bits"
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
)

// Index records x[indices]. An index is a tensor of integers, or nil for a whole dimension (:). Trailing dimensions
// need no index.
func (x *Tensor) Index(indices ...*Tensor) *Tensor {
	t := x.tape
	c := t.BeginList("index_Tensor", append(nonNilIndices(indices), x))
	places := c.expandMasks(indices)
	c.alignIndices(nonNilIndices(places))
	y := t.Alloc(x.dtype, x.advancedIndex(places).shape...)
	reads := append([]*Tensor{x.FirstElements(y.numel)}, nonNilIndices(places)...)
	t.Launch(program.Index, y.numel, []*Tensor{y}, reads)
	from, d := x.shape, x.dtype
	return c.End(y.SetGradFn("IndexBackward0", inputs{x}, indices, func(b *Gradients) {
		c := t.Begin("index_backward", b.Grad)
		zeros := t.Filled("new_zeros", d, from...)
		zeros.accumulateAt(b.kept, b.Grad, false)
		b.Set(0, c.End(zeros))
	}))
}

// alignIndices copies indices whose layouts differ after broadcasting (make_info of TensorAdvancedIndexing.cpp).
func (c *Call) alignIndices(indices []*Tensor) {
	wide := make([]*Tensor, len(indices))
	alike := true
	for k, i := range indices {
		wide[k] = c.Bind(i.Expand(broadcast(indices...)...))
		alike = alike && slices.Equal(wide[k].strides, wide[0].strides)
	}
	if alike {
		return
	}
	for k := range wide {
		c.Set(&wide[k], wide[k].ContiguousUntracked())
	}
}

// IndexPut records x.index_put(indices, values, accumulate).
func (x *Tensor) IndexPut(indices []*Tensor, values *Tensor, accumulate bool) *Tensor {
	t := x.tape
	c := t.BeginList("index_put", slices.Concat([]*Tensor{values}, nonNilIndices(indices), []*Tensor{x}))
	y := c.Bind(x.AllocLike(x.dtype))
	t.LaunchCopy(y, x)
	y.putAt(indices, values, accumulate)
	return c.End(y.SetGradFn("IndexPutBackward0", inputs{x, values}, indices, indexPutGradients(values, accumulate)))
}

// SetItem records x[indices] = values. Like Tensor.__setitem__, it removes leading dimensions of size one from values.
func (x *Tensor) SetItem(values *Tensor, indices ...*Tensor) {
	c := x.tape.BeginList("index_put_", slices.Concat([]*Tensor{values}, nonNilIndices(indices), []*Tensor{x}))
	sliced := values.shape
	for len(sliced) > 0 && sliced[0] == 1 {
		sliced = sliced[1:]
	}
	if len(sliced) < len(values.shape) {
		values = c.Bind(values.View(sliced...))
	}
	x.putAt(indices, values, false)
	x.resetGradFn("IndexPutBackward0", inputs{x, values}, indices, indexPutGradients(values, false))
	c.Finish()
}

// putAt writes values to the elements that the indices select.
func (x *Tensor) putAt(indices []*Tensor, values *Tensor, accumulate bool) {
	if accumulate {
		x.accumulateAt(indices, values, true)
		return
	}
	c := x.tape.Begin("index_put_", x, values)
	if values.numel > 1 { // one value is filled in by masked_fill
		indices = c.expandMasks(indices)
	}
	x.tape.Launch(program.Index, values.numel, []*Tensor{x.FirstElements(values.numel)},
		append([]*Tensor{values}, nonNilIndices(indices)...))
	c.Finish()
}

func indexPutGradients(values *Tensor, accumulate bool) func(b *Gradients) {
	shape, d := values.shape, values.dtype
	return inputGradients(
		inputGradient{0, func(b *Gradients) *Tensor {
			if accumulate {
				return b.Grad
			}
			return b.Grad.IndexPut(b.kept, b.t.Zeros(d, shape...), false)
		}},
		inputGradient{1, func(b *Gradients) *Tensor { return b.Grad.Index(b.kept...) }},
	)
}

func nonNilIndices(indices []*Tensor) []*Tensor {
	out := lists.Filter(indices, func(i *Tensor) bool { return i != nil })
	return out
}

// indexedShape describes an indexing operation: the result's shape, and the number of elements per position of the
// indices.
type indexedShape struct {
	shape []int64
	slice int64
}

// advancedIndex implements AdvancedIndex. The indices are broadcast together. Their shape replaces the indexed
// dimensions or, if these are not adjacent, comes first.
func (x *Tensor) advancedIndex(indices []*Tensor) indexedShape {
	all := nonNilIndices(indices)
	var rest []int64
	for d, s := range x.shape {
		if d >= len(indices) || indices[d] == nil {
			rest = append(rest, s)
		}
	}
	at := 0
	if areAdjacent(indices) {
		at = slices.IndexFunc(indices, func(i *Tensor) bool { return i != nil })
	}
	shape := slices.Concat(rest[:at], broadcast(all...), rest[at:])
	return indexedShape{shape: shape, slice: Numel(rest[at:])}
}

// accumulateAt records index_put_with_sort_kernel: x[indices] += values, in order. It sorts the indices, and checks
// their range unless autograd calls it.
func (x *Tensor) accumulateAt(indices []*Tensor, values *Tensor, check bool) {
	c := x.tape.Begin("_index_put_impl_", x, values)
	indices = c.expandMasks(indices)
	linear := c.Bind(x.linearIndex(indices, check))
	if shape := x.advancedIndex(indices).shape; values.numel < Numel(shape) {
		values = c.Bind(values.Expand(shape...).ContiguousUntracked())
	} else {
		c.Bind(values.ContiguousUntracked())
	}
	if !areAdjacent(indices) { // the dimensions picked from go to the front of a copy
		c.Bind(c.t.Alloc(x.dtype, x.shape...))
	}
	n := linear.numel
	c.t.native = "index_put_with_sort_kernel"
	sorted := c.Bind(c.t.Alloc(I64, n))
	order := c.Bind(c.t.Alloc(I64, n))
	positions := c.Bind(c.t.Arange(n))
	c.t.RadixSort(sorted, order, linear, positions, bits.Len64(uint64((x.extent-1)/x.advancedIndex(indices).slice)))
	c.t.Launch(program.Index, values.numel, []*Tensor{x.FirstElements(values.numel)}, []*Tensor{sorted, order, values})
	c.Finish()
}

func areAdjacent(indices []*Tensor) bool {
	first, last := -1, -1
	for d, i := range indices {
		if i != nil {
			last = d
			if first < 0 {
				first = d
			}
		}
	}
	return last-first+1 == len(nonNilIndices(indices))
}

// linearIndex records computeLinearIndex: one linear offset for every position of the indices.
func (x *Tensor) linearIndex(indices []*Tensor, check bool) *Tensor {
	c := x.tape.Begin("computeLinearIndex")
	var linear *Tensor
	shape := broadcast(nonNilIndices(indices)...)
	for _, i := range indices {
		if i == nil {
			continue
		}
		if check {
			i.checkRange()
		}
		i = i.Expand(shape...)
		wrapped := c.t.Map("remainder", I64, 1, i)
		scaled := c.t.Map("mul", I64, 1, wrapped)
		if linear == nil {
			linear = c.Bind(scaled)
			continue
		}
		part := c.Bind(scaled)
		c.t.LaunchElementwise(linear, 1, linear, part)
		c.Drop(part)
	}
	return c.End(linear)
}

// checkRange records the check that indices x are within a dimension: the host compares their maximum and minimum.
func (x *Tensor) checkRange() {
	c := x.tape.Begin("wrapIndices", x)
	for range 2 {
		extreme := c.Bind(c.t.Alloc(x.dtype))
		c.t.Launch(program.Reduction, x.numel, []*Tensor{extreme}, []*Tensor{x})
		c.Drop(c.Bind(c.t.Alloc(Bool)))
		c.Drop(extreme)
	}
	c.Finish()
}

// IndexPutInPlace records x.index_put_(indices, values).
func (x *Tensor) IndexPutInPlace(indices []*Tensor, values *Tensor, accumulate bool) *Tensor {
	c := x.tape.BeginList("index_put_", slices.Concat([]*Tensor{values}, nonNilIndices(indices), []*Tensor{x}))
	x.putAt(indices, values, accumulate)
	return c.End(x.resetGradFn("IndexPutBackward0", inputs{x, values}, indices, indexPutGradients(values, accumulate)))
}

// SearchSorted records torch.searchsorted and torch.bucketize: the position of each element of x in sorted boundaries.
func (x *Tensor) SearchSorted(boundaries *Tensor, out DType) *Tensor {
	c := x.tape.Begin("searchsorted", x, boundaries)
	y := c.Bind(c.t.Alloc(out, x.shape...))
	c.t.Launch(program.Index, x.numel*16, []*Tensor{y}, []*Tensor{c.Bind(x.ContiguousUntracked()), boundaries})
	return c.End(y)
}

// ScatterSum records x.scatter_reduce(d, index, src, "sum"). withSelf is include_self.
func (x *Tensor) ScatterSum(index, src *Tensor, withSelf bool) *Tensor {
	c := x.tape.Begin("scatter_reduce_two", x, index, src)
	y := x.scatterToCopy("scatter_reduce_two", index, src)
	return c.End(y.SetGradFn("ScatterReduceBackward0", inputs{x, src}, saves{index, x, src, y}, func(b *Gradients) {
		index := b.Saved(0)
		if b.Needs(1) {
			b.Out[1] = b.Grad.Gather(index).Retain()
		}
		if b.Needs(0) {
			g := b.Grad
			if !withSelf {
				g = g.scatterToCopy("scatter_value", index)
			}
			b.Out[0] = g.Retain()
		}
		b.EndStatement()
	}))
}

// InterleavedPlaces records torch.repeat_interleave(x) for counts x whose sum is size. The result holds each
// repetition's index.
func (x *Tensor) InterleavedPlaces(size int64) *Tensor {
	c := x.tape.Begin("repeat_interleave_Tensor", x)
	total := c.Bind(x.scan("cumsum", I64, 0))
	y := c.Bind(c.t.Alloc(x.dtype, size))
	c.t.Launch(program.Index, size, []*Tensor{y}, []*Tensor{x, total})
	return c.End(y)
}

// RepeatInterleaveBy records x.repeat_interleave(counts, d).
func (x *Tensor) RepeatInterleaveBy(counts *Tensor, d int, size int64) *Tensor {
	c := x.tape.Begin("repeat_interleave_self_Tensor", x, counts)
	return c.End(x.IndexSelect(d, counts.InterleavedPlaces(size)))
}

// SelectExtreme records an operator that selects one value along a dimension and its index, such as x.median(d).
func (x *Tensor) SelectExtreme(keep bool, d int) (values, indices *Tensor) {
	c := x.tape.Begin("median_dim", x)
	shape, _ := x.reducedShape([]int{d}, keep)
	values, indices = c.Bind(c.t.Alloc(x.dtype, shape...)), c.Bind(c.t.Alloc(I64, shape...))
	c.t.Launch(program.Index, x.numel, []*Tensor{values, indices}, []*Tensor{x})
	x.setSelectionNode("MedianBackward1", values, indices)
	return c.EndPair(values, indices)
}

// CumMax records x.cummax(d) and x.cummin(d): the values and their indices.
func (x *Tensor) CumMax() (values, indices *Tensor) {
	c := x.tape.Begin("cummax", x)
	values, indices = c.Bind(c.t.Alloc(x.dtype, x.shape...)), c.Bind(c.t.Alloc(I64, x.shape...))
	c.t.Launch(program.Reduction, x.numel, []*Tensor{values, indices}, []*Tensor{x})
	x.setSelectionNode("CummaxBackward0", values, indices)
	return c.EndPair(values, indices)
}

// IndexReduce records x.index_reduce(d, index, source, how) for "mean", "amax" and "amin". withSelf is include_self.
func (x *Tensor) IndexReduce(how string, d int, index, source *Tensor, withSelf bool) *Tensor {
	t := x.tape
	c := t.Begin("index_reduce", x, index, source)
	y := c.Bind(x.like())
	t.LaunchCopy(y, x)
	if how == "mean" {
		y.indexCounts(index, source)
	}
	t.Launch(program.Index, source.numel, []*Tensor{y.FirstElements(source.numel)}, []*Tensor{index, source})
	return c.End(y.SetGradFn("IndexReduceBackward0", inputs{x, source}, saves{x, index, source, y}, func(b *Gradients) {
		c := t.Begin("index_reduce_backward", b.Grad)
		x, index, source, y := b.Saved(0), b.Saved(1), b.Saved(2), b.Saved(3)
		var gx, gs *Tensor
		if how == "mean" {
			gx, gs = indexMeanGrads(b.Grad, index, source, d)
		} else {
			gx, gs = indexExtremeGrads(b.Grad, x, index, source, y, d)
		}
		c.BindAll([]*Tensor{gx, gs})
		if !withSelf {
			c.Set(&gx, gx.maskedRows(index))
		}
		c.EndPair(gx, gs)
		b.SetPair(gx, gs)
	}))
}

// indexCounts records the number of summands of each mean.
func (x *Tensor) indexCounts(index, source *Tensor) {
	c := x.tape.Begin("index_reduce", x)
	counts := c.Bind(x.like())
	ones := c.Bind(source.like())
	c.t.Launch(program.Index, source.numel, []*Tensor{counts}, []*Tensor{index, ones})
	c.Drop(ones)
	c.Drop(c.Bind(counts.CompareScalar("eq")))
	c.Finish()
}

// maskedRows records grad.index_fill(dim, index, 0).
func (x *Tensor) maskedRows(index *Tensor) *Tensor {
	c := x.tape.Begin("index_fill", x, index)
	y := x.like()
	c.t.LaunchCopy(y, x)
	return c.End(y)
}

// indexMeanGrads records the part of index_reduce_backward for "mean".
func indexMeanGrads(grad, index, source *Tensor, d int) (gx, gs *Tensor) {
	c := grad.tape.Begin("index_reduce_backward", grad)
	n := c.Bind(grad.OnesLike())
	c.Set(&n, n.IndexAdd(d, index, source.OnesLike()))
	n.MaskedFillInPlace(n.CompareScalar("eq_Scalar"))
	c.EndStatement()
	gx = c.Bind(grad.Div(n))
	picked := grad.IndexSelect(d, index)
	gs = c.Bind(picked.Div(n.IndexSelect(d, index)))
	return c.EndPair(gx, gs)
}

// indexExtremeGrads records the part of index_reduce_backward for "amax" and "amin". Equal elements share it.
func indexExtremeGrads(grad, x, index, source, result *Tensor, d int) (gx, gs *Tensor) {
	c := grad.tape.Begin("index_reduce_backward", grad)
	value := c.Bind(result.IndexSelect(d, index))
	own := c.Bind(x.compare("eq", result).AsType(x.dtype))
	from := c.Bind(source.compare("eq", value).AsType(source.dtype))
	n := c.Bind(own.IndexAdd(d, index, from))
	share := c.Bind(grad.Div(n))
	gx = c.Bind(own.Mul(share))
	gs = c.Bind(from.Mul(share.IndexSelect(d, index)))
	return c.EndPair(gx, gs)
}
