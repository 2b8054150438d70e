package trace

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
)

// broadcast returns the common shape of xs under broadcasting.
func broadcast(xs ...*Tensor) []int64 {
	if len(xs) == 1 {
		return xs[0].shape
	}
	same := true
	n := 0
	for _, x := range xs {
		n = max(n, len(x.shape))
		same = same && slices.Equal(x.shape, xs[0].shape)
	}
	if same {
		return xs[0].shape
	}
	shape := make([]int64, n)
	for d := range shape {
		shape[d] = 1
		for _, x := range xs {
			if k := d - (n - len(x.shape)); k >= 0 && x.shape[k] != 1 {
				shape[d] = x.shape[k]
			}
		}
	}
	return shape
}

// elementwise allocates the result of a pointwise operator in the broadcast shape and TensorIterator's layout.
func (t *Tape) elementwise(d DType, xs ...*Tensor) *Tensor {
	l := xs[0].layout
	for _, x := range xs {
		if x.layout != l {
			return t.newTensor(d, t.mapped(xs))
		}
	}
	if l.mapped == nil {
		l.mapped = t.mapped(xs)
	}
	return t.newTensor(d, l.mapped)
}

// mapped returns the layout of the result of a pointwise operator on xs.
func (t *Tape) mapped(xs []*Tensor) *layout {
	shape := broadcast(xs...)
	var buf [8]int64
	return t.layout(shape, outputStrides(buf[:0], shape, xs))
}

// outputStrides returns the layout that TensorIterator gives an output: the inputs' if they agree, else dimensions
// ordered by the inputs' strides.
func outputStrides(dst, shape []int64, xs []*Tensor) []int64 {
	same, contiguous, last, dense := true, true, true, true
	for _, x := range xs {
		same = same && slices.Equal(x.shape, shape)
		contiguous = contiguous && x.IsContiguous()
	}
	if same && contiguous {
		return contiguousStrides(dst, shape)
	}
	if same {
		for _, x := range xs {
			last = last && x.isChannelsLast()
			dense = dense && x.isDense() && slices.Equal(x.strides, xs[0].strides)
		}
		if last {
			return channelsLastStrides(dst, shape)
		}
		if dense {
			return append(dst, xs[0].strides...)
		}
	}
	var buf [8]int
	perm := sortDimensions(buf[:0], shape, xs, nil)
	slices.Reverse(perm)
	return denseStrides(dst, shape, perm)
}

// sortDimensions implements TensorIterator's reorder_dimensions. It appends the dimensions of shape to the empty dst,
// fastest first, ordered by the strides of the operands. For a reduction, the dimensions in reduced come first.
func sortDimensions(dst []int, shape []int64, xs []*Tensor, reduced []bool) []int {
	n := len(shape)
	perm := dst
	for i := range n {
		perm = append(perm, n-1-i)
	}
	stride := func(x *Tensor, d int) int64 {
		k := d - (n - len(x.shape))
		if k < 0 || (x.shape[k] == 1 && shape[d] != 1) {
			return 0
		}
		return x.strides[k] * x.dtype.Size()
	}
	compare := func(a, b int) int {
		if reduced != nil && reduced[a] != reduced[b] {
			if reduced[b] {
				return 1
			}
			return -1
		}
		for _, x := range xs {
			s, r := stride(x, a), stride(x, b)
			switch {
			case s == 0 || r == 0:
				continue
			case s < r:
				return -1
			case s > r:
				return 1
			case shape[a] > shape[b]:
				return 1
			}
		}
		return 0
	}
	for i := 1; i < n; i++ {
		at := i
		for j := i - 1; j >= 0; j-- {
			switch c := compare(perm[j], perm[at]); {
			case c > 0:
				perm[j], perm[at] = perm[at], perm[j]
				at = j
				continue
			case c < 0:
			default:
				continue
			}
			break
		}
	}
	return perm
}

// WrapDims converts dimensions counted from the end to non-negative ones; no dimensions means all.
func WrapDims(n int, dims []int) []int {
	if len(dims) == 0 {
		return lists.Ascending(n)
	}
	out := slices.Clone(dims)
	for i, d := range out {
		if d < 0 {
			out[i] = d + n
		}
	}
	return out
}
