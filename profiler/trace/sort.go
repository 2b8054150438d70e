package trace

import (
	"math/bits"
	"slices"

	"github.com/vprof/vprof/internal/lists"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
)

// smallSort is the length up to which rows are sorted in place, by one block each (should_use_small_sort).
const smallSort = 4096

// Sort records x.sort(d): the sorted values and their indices in x.
func (x *Tensor) Sort(d int) (values, indices *Tensor) {
	c := x.tape.Begin("sort", x)
	d = x.Dim(d)
	values = c.Bind(x.AllocLike(x.dtype))
	indices = c.Bind(x.AllocLike(I64))
	if x.shape[d] <= smallSort {
		c.Bind(c.t.Arange(x.shape[d]))
		c.t.LaunchSort(values, indices, x)
	} else {
		x.stableSort(d, values, indices)
	}
	x.setSelectionNode("SortBackward0", values, indices)
	return c.EndPair(values, indices)
}

// ArgSort records x.argsort(d).
func (x *Tensor) ArgSort(d int) *Tensor {
	c := x.tape.Begin("argsort", x)
	_, indices := x.Sort(d)
	return c.End(indices)
}

// LaunchSort records a kernel that sorts the rows of x.
func (t *Tape) LaunchSort(values, indices, x *Tensor) {
	depth := int64(bits.Len64(uint64(x.numel)))
	t.Launch(program.Index, depth*x.numel, []*Tensor{values, indices}, []*Tensor{x})
}

// setSelectionNode sets the autograd node of an operator whose results are values of x and their indices.
func (x *Tensor) setSelectionNode(node string, values, indices *Tensor) {
	whole := x.shape
	values.SetGradFn(node, inputs{x}, saves{indices}, func(b *Gradients) {
		b.Set(0, b.Grad.scatterIntoZeros("value_selecting_reduction_backward", "zeros", whole, b.Saved(0)))
	})
}

// stableSort records sort_cuda_kernel for long rows. It makes rows contiguous and sorts in one of three ways
// (launch_stable_sort_kernel).
func (x *Tensor) stableSort(d int, values, indices *Tensor) {
	c := x.tape.Begin("launch_stable_sort_kernel")
	n := x.shape[d]
	rows := x.numel / max(n, 1)
	if !x.isDense() || x.strides[d] != 1 {
		order := append(slices.Delete(lists.Ascending(len(x.shape)), d, d+1), d)
		strides := DenseStrides(x.shape, order)
		x = c.Bind(c.t.AllocStrided(x.dtype, x.shape, strides))
		values = c.Bind(c.t.AllocStrided(x.dtype, x.shape, strides))
		indices = c.Bind(c.t.AllocStrided(I64, x.shape, strides))
	}
	switch {
	case rows == 1 || n >= 1_000_000:
		positions := c.Bind(c.t.Alloc(I64, n))
		for range rows {
			c.t.RadixSort(values, indices, x.FirstElements(n), positions, int(8*x.dtype.Size()))
		}
	case rows < 128:
		x.sortAtOnce(rows, values, indices)
	default:
		positions := c.Bind(c.t.Alloc(I64, x.numel))
		storage := cubBlob(x.Bytes(), positions.Bytes())
		c.t.scratchFor(storage, x.numel, []*Tensor{values, indices}, []*Tensor{x, positions})
	}
	c.Finish()
}

// sortAtOnce sorts all rows together, by value and then by row (segmented_sort_pairs_by_full_sort). It moves pairs of
// row and position along with the values, and gathers the values again at the end.
func (x *Tensor) sortAtOnce(rows int64, values, indices *Tensor) {
	t := x.tape
	c := t.Begin("segmented_sort_pairs_by_full_sort")
	pairs := c.Bind(t.Alloc(I64, x.numel))
	sorted := c.Bind(t.Alloc(I64, x.numel))
	func() {
		c := t.Begin(t.native)
		keys := c.Bind(t.Alloc(x.dtype, x.numel))
		t.RadixSort(keys, sorted, x, pairs, int(8*x.dtype.Size()))
		c.Finish()
	}()
	t.RadixSort(pairs, nil, sorted, nil, max(1, bits.Len64(uint64(rows-1))))
	t.Launch(program.Index, x.numel, []*Tensor{values, indices}, []*Tensor{x, pairs})
	c.Finish()
}

// TopK records x.topk(k, d).
func (x *Tensor) TopK(k int64, d int) (values, indices *Tensor) {
	c := x.tape.Begin("topk", x)
	d = x.Dim(d)
	shape := lists.Replace(x.shape, d, k)
	values = c.Bind(c.t.Alloc(x.dtype, shape...))
	indices = c.Bind(c.t.Alloc(I64, shape...))
	in := c.Bind(x.ContiguousUntracked())
	n := x.shape[d]
	if rows := x.numel / max(n, 1); topKOverBlocks(rows, n) {
		in.topKOverBlocks(rows, n, values, indices)
	} else {
		c.t.LaunchSort(values, indices, in)
	}
	x.setSelectionNode("TopkBackward0", values, indices)
	return c.EndPair(values, indices)
}

// topKOverBlocks reports whether several blocks search the largest elements of a row (should_use_multi_block of
// TensorTopK.cu, whose limits PyTorch's developers measured).
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

// topKOverBlocks records mbtopk::launch: it counts for each block the elements with each value of a digit, digit by
// digit, finds the k-th value of each row, and gathers the elements.
func (x *Tensor) topKOverBlocks(rows, n int64, values, indices *Tensor) {
	// Constants of mbtopk. Its kernel needs 40 registers per thread; a multiprocessor has 65,536.
	const threads, digits = 256, 256
	const blocksPerSM = 65536 / (40 * threads)
	c := x.tape.Begin("mbtopk")
	items := GPUProperty(c.t, func(gpu GPU) int64 { return ceil.Div(rows*n, int64(gpu.SMs)*blocksPerSM*threads) })
	items = max(4, min(items, 64))
	blocks := rows * ceil.Div(n, items*threads)
	kth := c.Bind(c.t.Alloc(x.dtype, rows))
	c.Bind(c.t.Alloc(I32, 2, rows)) // ranks looked for
	c.Bind(c.t.Alloc(topKKey(x.dtype), 2, rows))
	c.Bind(c.t.Alloc(F16, blocks, digits)) // counts of 16 bits
	sums := c.Bind(c.t.Alloc(I32, rows, digits))
	within := c.Bind(c.t.Alloc(I32, blocks))
	equal := c.Bind(c.t.Alloc(I32, blocks))
	c.t.Launch(program.Reduction, x.numel*x.dtype.Size(), []*Tensor{sums, kth}, []*Tensor{x})
	c.t.inclusiveSumByKey(within)
	c.t.inclusiveSumByKey(equal)
	c.t.Launch(program.Index, x.numel, []*Tensor{values, indices}, []*Tensor{x, within, equal})
	c.Finish()
}

// topKKey returns the unsigned integer type by which topk compares values of type d.
func topKKey(d DType) DType {
	if d.Size() == 8 {
		return I64
	}
	return I32
}
