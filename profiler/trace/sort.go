package trace

import (
	"github.com/vprof/vprof/internal/lists"
	"math/bits"
	"slices"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
)

// Rows up to this length are sorted in place, by one block each
// (should_use_small_sort).
const smallSort = 4096

// Sort records x.sort(d): the values in order and where they came from.
func (x *Tensor) Sort(d int) (values, indices *Tensor) {
	c := x.tape.begin("sort", x)
	d = x.dim(d)
	values = c.let(x.emptyLike(x.dtype))
	indices = c.let(x.emptyLike(I64))
	if x.shape[d] <= smallSort {
		c.let(c.t.Arange(x.shape[d]))
		c.t.launchSort(values, indices, x)
	} else {
		x.stableSort(d, values, indices)
	}
	x.selects("SortBackward0", values, indices)
	return c.endPair(values, indices)
}

// ArgSort records x.argsort(d).
func (x *Tensor) ArgSort(d int) *Tensor {
	c := x.tape.begin("argsort", x)
	_, indices := x.Sort(d)
	return c.end(indices)
}

func (t *Tape) launchSort(values, indices, x *Tensor) {
	depth := int64(bits.Len64(uint64(x.numel)))
	t.launch(program.Index, depth*x.numel, []*Tensor{values, indices}, []*Tensor{x})
}

// selects records the node of an operator that picks values of x at indices.
func (x *Tensor) selects(node string, values, indices *Tensor) {
	whole := x.shape
	values.derived(node, inputs{x}, saves{indices}, func(b *backward) {
		b.give(0, b.grad.putInto("value_selecting_reduction_backward", "zeros", whole, b.saved(0)))
	})
}

// stableSort records sort_cuda_kernel for long rows: it makes them contiguous and sorts in one of
// three ways (launch_stable_sort_kernel).
func (x *Tensor) stableSort(d int, values, indices *Tensor) {
	c := x.tape.begin("launch_stable_sort_kernel")
	n := x.shape[d]
	rows := x.numel / max(n, 1)
	if !x.isDense() || x.strides[d] != 1 {
		order := append(slices.Delete(ascending(len(x.shape)), d, d+1), d)
		strides := denseAlong(x.shape, order)
		x = c.let(c.t.emptyStrided(x.dtype, x.shape, strides))
		values = c.let(c.t.emptyStrided(x.dtype, x.shape, strides))
		indices = c.let(c.t.emptyStrided(I64, x.shape, strides))
	}
	switch {
	case rows == 1 || n >= 1_000_000:
		positions := c.let(c.t.empty(I64, n))
		for range rows {
			c.t.radixSort(values, indices, x.touched(n), positions, int(8*x.dtype.Size()))
		}
	case rows < 128:
		x.sortAtOnce(rows, values, indices)
	default:
		positions := c.let(c.t.empty(I64, x.numel))
		storage := cubBlob(x.Bytes(), positions.Bytes())
		c.t.scratchFor(storage, x.numel, []*Tensor{values, indices}, []*Tensor{x, positions})
	}
	c.finish()
}

// sortAtOnce sorts all rows together by value and then by row
// (segmented_sort_pairs_by_full_sort): pairs of a row and a position travel
// with the values, and the values are read again in the end.
func (x *Tensor) sortAtOnce(rows int64, values, indices *Tensor) {
	t := x.tape
	c := t.begin("segmented_sort_pairs_by_full_sort")
	pairs := c.let(t.empty(I64, x.numel))
	sorted := c.let(t.empty(I64, x.numel))
	func() {
		c := t.begin(t.native)
		keys := c.let(t.empty(x.dtype, x.numel))
		t.radixSort(keys, sorted, x, pairs, int(8*x.dtype.Size()))
		c.finish()
	}()
	t.radixSort(pairs, nil, sorted, nil, max(1, bits.Len64(uint64(rows-1))))
	t.launch(program.Index, x.numel, []*Tensor{values, indices}, []*Tensor{x, pairs})
	c.finish()
}

func ascending(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// denseAlong returns the strides of a dense tensor with the dimensions in the given
// order, slowest first.
func denseAlong(shape []int64, order []int) []int64 {
	strides := make([]int64, len(shape))
	step := int64(1)
	for _, d := range slices.Backward(order) {
		strides[d] = step
		step *= max(shape[d], 1)
	}
	return strides
}

// TopK records x.topk(k, d).
func (x *Tensor) TopK(k int64, d int) (values, indices *Tensor) {
	c := x.tape.begin("topk", x)
	d = x.dim(d)
	shape := lists.With(x.shape, d, k)
	values = c.let(c.t.empty(x.dtype, shape...))
	indices = c.let(c.t.empty(I64, shape...))
	in := c.let(x.contiguousUntracked())
	n := x.shape[d]
	if rows := x.numel / max(n, 1); topKOverBlocks(rows, n) {
		in.topKOverBlocks(rows, n, values, indices)
	} else {
		c.t.launchSort(values, indices, in)
	}
	x.selects("TopkBackward0", values, indices)
	return c.endPair(values, indices)
}

// topKOverBlocks reports whether several blocks look for the largest elements
// of one row (should_use_multi_block of TensorTopK.cu, from measurements).
func topKOverBlocks(rows, n int64) bool {
	switch {
	case rows <= 20:
		return n >= 20000
	case rows <= 40:
		return n >= 10000
	case rows <= 80:
		return n >= 8000
	case rows < 200:
		return n >= 5000
	case rows < 800:
		return n >= 3000
	case rows <= 4000:
		return n >= 800
	default:
		return n >= 400
	}
}

// topKOverBlocks records mbtopk::launch: digit by digit it counts how the elements
// of each block fall, finds the k-th value of each row, and gathers.
func (x *Tensor) topKOverBlocks(rows, n int64, values, indices *Tensor) {
	// Constants of mbtopk; a block of its kernel needs 40 registers a thread,
	// of the 65,536 that every multiprocessor has.
	const threads, digits = 256, 256
	const blocksPerSM = 65536 / (40 * threads)
	c := x.tape.begin("mbtopk")
	items := onGPU(c.t, func(b GPU) int64 { return ceil.Div(rows*n, int64(b.SMs)*blocksPerSM*threads) })
	items = max(4, min(items, 64))
	blocks := rows * ceil.Div(n, items*threads)
	kth := c.let(c.t.empty(x.dtype, rows))
	c.let(c.t.empty(I32, 2, rows)) // ranks looked for
	c.let(c.t.empty(topKKey(x.dtype), 2, rows))
	c.let(c.t.empty(F16, blocks, digits)) // counts of 16 bits
	sums := c.let(c.t.empty(I32, rows, digits))
	within := c.let(c.t.empty(I32, blocks))
	equal := c.let(c.t.empty(I32, blocks))
	c.t.launch(program.Reduction, x.numel*x.dtype.Size(), []*Tensor{sums, kth}, []*Tensor{x})
	c.t.inclusiveSumByKey(within)
	c.t.inclusiveSumByKey(equal)
	c.t.launch(program.Index, x.numel, []*Tensor{values, indices}, []*Tensor{x, within, equal})
	c.finish()
}

// topKKey returns the unsigned integer that topk compares values of type d as.
func topKKey(d DType) DType {
	if d.Size() == 8 {
		return I64
	}
	return I32
}
