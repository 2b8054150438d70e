package trace

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"

	"github.com/vprof/vprof/profiler/program"
)

// extent returns the number of elements between the first and the last element of g in the storage, both included.
func (g geometry) extent() int64 {
	last := int64(1)
	for i, s := range g.shape {
		if s == 0 {
			return 0
		}
		last += (s - 1) * g.strides[i]
	}
	return last
}

// withoutUnitDims returns g without dimensions of size one.
func (g geometry) withoutUnitDims() geometry {
	var out geometry
	for d, s := range g.shape {
		if s != 1 {
			out.shape, out.strides = append(out.shape, s), append(out.strides, g.strides[d])
		}
	}
	return out
}

// overlaps reports whether two elements may share an address (_maybe_overlapping_memory).
func (g geometry) overlaps() bool {
	order := lists.Ascending(len(g.shape))
	slices.SortFunc(order, func(a, b int) int { return int(g.strides[a] - g.strides[b]) })
	reach := int64(0)
	for _, d := range order {
		if g.strides[d] <= reach {
			return true
		}
		reach += g.strides[d] * (g.shape[d] - 1)
	}
	return false
}

// asStrided records x.as_strided(shape, strides, offset).
func (x *Tensor) asStrided(part geometry, offset int64) *Tensor {
	whole, from := x.geometry, x.offset
	return x.viewOf("as_strided", "AsStridedBackward0", part.shape, part.strides, offset,
		func(b *Gradients) { b.Set(0, b.Grad.asStridedBackward(whole, part, offset-from)) })
}

// asStridedBackward records as_strided_backward: zeros as large as the storage, to which g is copied at the view's
// positions, or added if elements of the view overlap. The offset is the distance from the first element of whole to
// the first element of part.
func (g *Tensor) asStridedBackward(whole, part geometry, offset int64) *Tensor {
	c := g.tape.Begin("as_strided_backward", g)
	grad := c.Bind(g)
	for d := len(part.shape) - 1; d >= 0; d-- {
		switch {
		case part.shape[d] == 1:
			c.Set(&grad, grad.Squeeze(d))
		case part.strides[d] == 0:
			c.Set(&grad, grad.SumUncast("sum_dim_IntList", []int{d}, false))
			part.shape, part.strides = lists.Replace(part.shape, d, 1), lists.Replace(part.strides, d, 1)
		}
	}
	scattered := part.withoutUnitDims().overlaps()
	storage := c.Bind(c.t.Filled("new_zeros", g.dtype, max(whole.extent(), offset+part.extent())))
	if !scattered {
		c.t.LaunchCopy(storage.FirstElements(grad.numel), grad)
		return c.End(storage.asStrided(whole, 0))
	}
	all := c.Bind(c.t.Arange(storage.numel))
	places := all.asStrided(part, offset).AsShape([]int64{grad.numel})
	c.t.Launch(program.Index, grad.numel, []*Tensor{storage.FirstElements(grad.numel)},
		[]*Tensor{places, grad.AsShape([]int64{grad.numel})})
	c.EndStatement()
	return c.End(storage.asStrided(whole, 0))
}
