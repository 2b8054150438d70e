package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// SetTrue sets the number of true elements of the mask x, which a recording cannot compute: as many rows are selected
// by the mask.
func (x *Tensor) SetTrue(n int64) { x.store.trues = n + 1 }

// TrueIsKnown reports whether SetTrue was called for x.
func (x *Tensor) TrueIsKnown() bool { return x.store.trues > 0 }

// Trues returns the number of true elements of x, as set by SetTrue.
func (x *Tensor) Trues() int64 { return x.store.trues - 1 }

// isMask reports whether x, used as an index, is a boolean mask and not a tensor of integers.
func (x *Tensor) isMask() bool { return x != nil && (x.dtype == Bool || x.dtype == U8) }

// Nonzero records x.nonzero(), with one row of indices for each true element of x, see SetTrue.
func (x *Tensor) Nonzero() *Tensor { return x.nonzero(x.store.trues - 1) }

// nonzero records Nonzero with n true elements (nonzero_cuda_out_impl): it counts them, then writes their indices by
// columns.
func (x *Tensor) nonzero(n int64) *Tensor {
	c := x.tape.Begin("nonzero", x)
	x = c.Bind(x.ContiguousUntracked())
	count := c.Bind(c.t.Alloc(I32))
	c.t.reduceByCUB(count, x)
	y := c.Bind(c.t.Alloc(I64, int64(len(x.shape)), n))
	c.t.scanByCUB(y, x, 1280, count) // DeviceSelect, in tiles for flags and 64-bit integers
	return c.End(y.Permute(1, 0))
}

// expandMasks replaces masks in a list of indices by the indices of their true elements (expandTensors).
func (c *Call) expandMasks(indices []*Tensor) []*Tensor {
	if !slices.ContainsFunc(indices, func(i *Tensor) bool { return i.isMask() && i.TrueIsKnown() }) {
		return indices
	}
	var out []*Tensor
	for _, i := range indices {
		if !i.isMask() || !i.TrueIsKnown() {
			out = append(out, i)
			continue
		}
		places := c.Bind(i.Nonzero())
		for d := range i.shape {
			out = append(out, c.Bind(places.Select(1, int64(d))))
		}
	}
	return out
}

// MaskedSelect records x.masked_select(mask): the elements of x at which the mask is true, see SetTrue.
func (x *Tensor) MaskedSelect(mask *Tensor) *Tensor {
	c := x.tape.Begin("masked_select", x, mask)
	shape := broadcast(x, mask)
	wide, all := c.Bind(x.Expand(shape...)), c.Bind(mask.Expand(shape...))
	n := (mask.store.trues - 1) * (all.numel / max(mask.numel, 1))
	places := c.Bind(all.nonzero(n))
	y := c.t.Alloc(x.dtype, n)
	c.t.Launch(program.Index, n, []*Tensor{y}, []*Tensor{wide, places})
	return c.End(y.SetGradFn("MaskedSelectBackward0", inputs{x}, saves{x, mask}, func(b *Gradients) {
		c := b.t.Begin("masked_select_backward", b.Grad)
		x, mask := b.Saved(0), b.Saved(1)
		zeros := c.Bind(b.t.Filled("zeros", b.Grad.dtype, broadcast(x, mask)...))
		b.Set(0, c.End(zeros.MaskedScatter(mask, b.Grad).sumTo(x.shape)))
	}))
}

// Unique records torch._unique2(x) of a tensor with n distinct elements. It returns the elements, the index of each
// element of x among them, and their counts; the last two are empty unless requested (UniqueCub.cu). Elements and
// counts keep a storage for as many elements as x has.
func (x *Tensor) Unique(n int64, inverse, counts bool) []*Tensor {
	c := x.tape.Begin("_unique2", x)
	x = c.Bind(x.ContiguousUntracked())
	if x.dtype == Bool { // true elements are counted, and nothing is sorted
		count := c.Bind(c.t.Alloc(I32))
		c.t.reduceByCUB(count, x)
		values, times, size := c.Bind(c.t.Alloc(Bool, 2)), c.Bind(c.t.Alloc(I64, 2)), []int64{0}
		if inverse {
			size = x.shape
		}
		return c.EndAll(c.Bind(values.Narrow(0, 0, n)), c.Bind(c.t.Alloc(I64, size...)), c.Bind(times.Narrow(0, 0, n)))
	}
	keyBits := int(8 * x.dtype.Size())
	sorted := c.Bind(c.t.Alloc(x.dtype, x.shape...))
	var places *Tensor
	if inverse {
		from := c.Bind(c.t.Arange(x.numel))
		order := c.Bind(c.t.Alloc(I64, x.numel))
		c.t.RadixSort(sorted, order, x, from, keyBits)
		c.Drop(from)
		places = c.Bind(c.t.Alloc(I64, x.shape...))
		sums := c.Bind(c.t.Alloc(I64, x.numel))
		c.t.scanByCUB(sums, places, 3840)
		c.Drop(sums)
	} else {
		c.t.RadixSort(sorted, nil, x, nil, keyBits)
		places = c.Bind(c.t.Alloc(I64, 0))
	}
	values := c.Bind(c.t.Alloc(x.dtype, x.numel))
	length := c.Bind(c.t.Alloc(I64))
	if !counts {
		tile := int64(1280) // DeviceSelect's before Hopper, where tiles are larger
		if x.dtype.Size() < 8 {
			tile *= 2
		}
		c.t.scanByCUB(values, sorted, tile)
		return c.EndAll(c.Bind(values.Narrow(0, 0, n)), places, c.Bind(c.t.Alloc(I64, 0)))
	}
	times := c.Bind(c.t.Alloc(I64, x.numel))
	c.t.scanByCUB(times, sorted, 768, length)
	return c.EndAll(c.Bind(values.Narrow(0, 0, n)), places, c.Bind(times.Narrow(0, 0, n)))
}
