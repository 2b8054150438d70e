package trace

import (
	"cmp"
	"slices"
)

// layout is a shape with strides and the properties that follow from them. A recording has few layouts and stores each
// once, so equal layouts have the same pointer.
type layout struct {
	geometry
	numel int64
	// extent is the number of elements from the first to the last in the storage.
	extent int64
	// dense reports whether the elements are contiguous in some order of dimensions; rowMajor and channelsLast report
	// the same for one order. Dimensions of size one are ignored.
	dense, rowMajor, channelsLast bool
	// mapped is the layout of the result of a pointwise operator on tensors with this layout; nil until used.
	mapped *layout
	// transposed is the layout of a matrix's transpose, reshaped the layout of the last view with another shape; nil
	// until used.
	transposed, reshaped *layout
}

// geometry is a shape with strides, as of a view.
type geometry struct{ shape, strides []int64 }

// expiredLayout is the layout of freed tensors. Its shape and strides do not match, so using it panics.
var expiredLayout = &layout{geometry: geometry{shape: []int64{-1}}}

// layouts is the table of a recording's layouts: a hash table with open addressing.
type layouts struct {
	table []*layout // a power of two, at most half full
	count int
}

// find returns the layout with a shape and strides. It adds a missing one.
func (s *layouts) find(shape, strides []int64) *layout {
	if 2*s.count >= len(s.table) {
		s.grow()
	}
	at := s.place(shape, strides)
	if s.table[at] == nil {
		s.table[at] = newLayout(shape, strides)
		s.count++
	}
	return s.table[at]
}

// place returns the index of the layout in the table, or the index at which to insert it.
func (s *layouts) place(shape, strides []int64) uint64 {
	const mix = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	h := uint64(len(shape))
	for i := range shape {
		h = (h ^ uint64(shape[i])) * mix
		h = (h ^ h>>29 ^ uint64(strides[i])) * mix
	}
	mask := uint64(len(s.table) - 1)
	at := h >> 32 & mask
	for {
		l := s.table[at]
		if l == nil || slices.Equal(l.shape, shape) && slices.Equal(l.strides, strides) {
			return at
		}
		at = (at + 1) & mask
	}
}

// manyLayouts is the number of layouts from which on the next recording starts with an empty table.
const manyLayouts = 4096

func (s *layouts) empty() {
	if s.count > manyLayouts {
		*s = layouts{}
	}
}

func (s *layouts) grow() {
	old := s.table
	s.table = make([]*layout, max(256, 2*len(old)))
	for _, l := range old {
		if l != nil {
			s.table[s.place(l.shape, l.strides)] = l
		}
	}
}

func newLayout(shape, strides []int64) *layout {
	n := len(shape)
	both := make([]int64, 2*n)
	copy(both, shape)
	copy(both[n:], strides[:n])
	l := &layout{geometry: geometry{both[:n:n], both[n:]}}
	l.numel, l.extent = Numel(l.shape), l.geometry.extent()
	l.rowMajor = denseAs(l.shape, l.strides, nil)
	l.channelsLast = (n == 4 || n == 5) && denseAs(l.shape, l.strides, channelsLastOrders[n])
	l.dense = l.rowMajor || l.isPermuted()
	return l
}

func (l *layout) sameShape(m *layout) bool { return l == m || slices.Equal(l.shape, m.shape) }

// mostElements is the largest number of elements of a tensor: more than any device can hold, and small enough that sums
// over all tensors of a step do not overflow.
const mostElements = 1 << 46

// Numel returns the number of elements of a shape, but not much more than [mostElements].
func Numel(shape []int64) int64 {
	n := int64(1)
	for _, s := range shape {
		switch {
		case s == 0:
			return 0
		case n > mostElements/s:
			n = mostElements + 1
		default:
			n *= s
		}
	}
	return n
}

// channelsLastOrders are the channels_last orders of dimensions, slowest first, for four and five dimensions.
var channelsLastOrders = [...][]int{4: {0, 2, 3, 1}, 5: {0, 2, 3, 4, 1}}

// contiguousStrides appends the strides of a dense row-major tensor to dst.
func contiguousStrides(dst, shape []int64) []int64 { return denseStrides(dst, shape, nil) }

// channelsLastStrides appends the strides of a channels-last tensor to dst.
func channelsLastStrides(dst, shape []int64) []int64 {
	return denseStrides(dst, shape, channelsLastOrders[len(shape)])
}

// DenseStrides returns the strides of a dense tensor with the dimensions in the given order, slowest first.
func DenseStrides(shape []int64, order []int) []int64 { return denseStrides(nil, shape, order) }

// denseStrides appends the result of [DenseStrides] to dst; a nil order is row-major.
func denseStrides(dst, shape []int64, order []int) []int64 {
	at := len(dst)
	dst = append(dst, shape...)
	step := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		d := i
		if order != nil {
			d = order[i]
		}
		dst[at+d] = step
		step *= max(shape[d], 1)
	}
	return dst
}

// IsContiguous returns Tensor.is_contiguous().
func (x *Tensor) IsContiguous() bool { return x.rowMajor }

// isChannelsLast returns Tensor.is_contiguous(memory_format=channels_last or _3d).
func (x *Tensor) isChannelsLast() bool { return x.channelsLast }

// denseAs reports whether the strides are a dense tensor's, with dimensions in the given order, slowest first; nil is
// row-major.
func denseAs(shape, strides []int64, order []int) bool {
	step := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		d := i
		if order != nil {
			d = order[i]
		}
		if shape[d] == 0 {
			return true
		}
		if shape[d] != 1 {
			if strides[d] != step {
				return false
			}
			step *= shape[d]
		}
	}
	return true
}

// isDense implements is_non_overlapping_and_dense.
func (x *Tensor) isDense() bool { return x.dense }

// isPermuted reports whether g is contiguous except for the order of dimensions.
func (g geometry) isPermuted() bool {
	var dims []int
	for d, s := range g.shape {
		if s > 1 {
			dims = append(dims, d)
		}
	}
	slices.SortStableFunc(dims, func(a, b int) int { return cmp.Compare(g.strides[a], g.strides[b]) })
	step := int64(1)
	for _, d := range dims {
		if g.strides[d] != step {
			return false
		}
		step *= g.shape[d]
	}
	return true
}

// SuggestsChannelsLast implements suggest_memory_format() == channels_last: the strides must imply the format, not only
// be compatible with it (is_channels_last_strides_2d and _3d of c10/core/MemoryFormat.h).
func (x *Tensor) SuggestsChannelsLast() bool {
	n := len(x.shape)
	if n != 4 && n != 5 || x.strides[1] == 0 {
		return false
	}
	least := int64(0)
	for _, d := range slices.Backward(channelsLastOrders[n]) {
		if x.shape[d] == 0 || x.strides[d] < least || d == 0 && least == x.strides[1] {
			return false
		}
		least = x.strides[d]
		if x.shape[d] > 1 {
			least *= x.shape[d]
		}
	}
	return true
}
