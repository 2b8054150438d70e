package trace

import (
	"github.com/vprof/vprof/internal/lists"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
)

// Slice records x[..., from:to, ...] along dimension d. As in Python, negative positions count from the end, and
// positions beyond an end are clamped.
func (x *Tensor) Slice(d int, from, to int64) *Tensor {
	// Tensor.__getitem__ skips a slice that selects everything.
	if n := x.Size(d); position(from, n) == 0 && position(to, n) == n {
		return x.viewOf("alias", "AliasBackward0", x.shape, x.strides, x.offset, func(b *Gradients) {
			b.Set(0, b.Grad)
		})
	}
	return x.SliceStep(d, from, to, 1)
}

// Narrow records x.narrow(d, from, size).
func (x *Tensor) Narrow(d int, from, size int64) *Tensor { return x.SliceStep(d, from, from+size, 1) }

// SliceStep records x[..., from:to:step, ...] along dimension d; step is positive.
func (x *Tensor) SliceStep(d int, from, to, step int64) *Tensor {
	d = x.Dim(d)
	whole := x.shape
	from, to = position(from, whole[d]), position(to, whole[d])
	shape := lists.Replace(whole, d, ceil.Div(max(to-from, 0), step))
	strides := lists.Replace(x.strides, d, x.strides[d]*step)
	return x.viewOf("slice", "SliceBackward0", shape, strides, x.offset+from*x.strides[d], func(b *Gradients) {
		b.Set(0, b.Grad.copyIntoZeros("slice_backward", whole))
	})
}

// position returns the first or last position of a slice of n elements, clamped to [0, n].
func position(i, n int64) int64 {
	if i < 0 {
		i += n
	}
	return min(max(i, 0), n)
}

// Select records x[..., i, ...] along dimension d; negative i counts from the end.
func (x *Tensor) Select(d int, i int64) *Tensor {
	d = x.Dim(d)
	whole := x.shape
	if i < 0 {
		i += whole[d]
	}
	shape, strides := lists.RemoveAt(whole, d), lists.RemoveAt(x.strides, d)
	return x.viewOf("select", "SelectBackward0", shape, strides, x.offset+i*x.strides[d],
		func(b *Gradients) { b.Set(0, b.Grad.copyIntoZeros("select_backward", whole)) })
}

// copyIntoZeros records the backward of a view that selects some elements: zeros of the shape whole, with g copied in.
func (g *Tensor) copyIntoZeros(op string, whole []int64) *Tensor {
	c := g.tape.Begin(op, g)
	z := c.Bind(c.t.Zeros(g.dtype, whole...))
	c.t.LaunchCopy(z.FirstElements(g.numel), g)
	return c.End(z)
}

// Split records x.split(size, d): pieces of the given size; the last one may be smaller.
func (x *Tensor) Split(size int64, d int) []*Tensor {
	total := x.Size(d)
	sizes := make([]int64, 0, ceil.Div(total, size))
	for at := int64(0); at < total; at += size {
		sizes = append(sizes, min(size, total-at))
	}
	return x.split("split_Tensor", "SplitBackward0", sizes, d)
}

// SplitSizes records x.split(sizes, d).
func (x *Tensor) SplitSizes(sizes []int64, d int) []*Tensor {
	return x.split("split_with_sizes", "SplitWithSizesBackward0", sizes, d)
}

// Chunk records x.chunk(n, d): at most n pieces of equal size; the last one may be smaller.
func (x *Tensor) Chunk(n int64, d int) []*Tensor {
	c := x.tape.Begin("chunk", x)
	return c.EndAll(x.Split(max(ceil.Div(x.Size(d), n), 1), d)...)
}

func (x *Tensor) split(op, node string, sizes []int64, d int) []*Tensor {
	c := x.tape.Begin(op, x)
	d = x.Dim(d)
	outs := make([]*Tensor, len(sizes))
	at := x.offset
	for i, size := range sizes {
		outs[i] = x.Alias(lists.Replace(x.shape, d, size), x.strides, at)
		outs[i].setBase(x)
		at += size * x.strides[d]
	}
	dtype := x.dtype
	c.t.SetGradFn(outs, node, inputs{x}, nil,
		func(b *Gradients) {
			b.Set(0, b.concatGradients(func(xs []*Tensor) *Tensor { return Cat(d, xs...) }, dtype))
		})
	return c.EndAll(outs...)
}

// Unbind records x.unbind(d): one view per index of dimension d, without that dimension.
func (x *Tensor) Unbind(d int) []*Tensor {
	c := x.tape.Begin("unbind_int", x)
	d = x.Dim(d)
	outs := make([]*Tensor, x.shape[d])
	for i := range outs {
		outs[i] = x.Alias(lists.RemoveAt(x.shape, d), lists.RemoveAt(x.strides, d), x.offset+int64(i)*x.strides[d])
		outs[i].setBase(x)
	}
	dtype := x.dtype
	c.t.SetGradFn(outs, "UnbindBackward0", inputs{x}, nil,
		func(b *Gradients) {
			b.Set(0, b.concatGradients(func(xs []*Tensor) *Tensor { return Stack(d, xs...) }, dtype))
		})
	return c.EndAll(outs...)
}

// concatGradients concatenates the gradients of all outputs, with zeros in place of missing ones.
func (b *Gradients) concatGradients(join func([]*Tensor) *Tensor, d DType) *Tensor {
	c := b.t.Begin("join")
	c.t.native = b.node.name
	all := make([]*Tensor, len(b.Grads))
	for i, g := range b.Grads {
		if g == nil {
			g = b.t.Zeros(d, b.node.output(int32(i)).shape...)
		}
		all[i] = g
	}
	c.BindAll(all)
	return c.End(join(all))
}

// Unfold records x.unfold(d, size, step): windows along dimension d. A new last dimension holds a window.
func (x *Tensor) Unfold(d int, size, step int64) *Tensor {
	d = x.Dim(d)
	whole := x.shape
	shape := append(lists.Replace(whole, d, (whole[d]-size)/step+1), size)
	strides := append(lists.Replace(x.strides, d, x.strides[d]*step), x.strides[d])
	return x.viewOf("unfold", "UnfoldBackward0", shape, strides, x.offset, func(b *Gradients) {
		b.Set(0, b.Grad.unfoldBackward(whole, d))
	})
}

// unfoldBackward records unfold_backward, which sums overlapping windows. Its kernel reads positions from a tensor.
func (g *Tensor) unfoldBackward(whole []int64, d int) *Tensor {
	c := g.tape.Begin("unfold_backward", g)
	x := c.Bind(c.t.Zeros(g.dtype, whole...))
	at := c.Bind(c.t.Arange(whole[d]))
	c.t.Launch(program.Index, g.numel, []*Tensor{x}, []*Tensor{g, at})
	return c.End(x)
}

// Diff records x.diff(dim=d): differences of neighbors.
func (x *Tensor) Diff(d int) *Tensor {
	c := x.tape.Begin("diff", x)
	n := x.Size(d)
	first := x.Narrow(d, 0, n-1)
	return c.End(x.Narrow(d, 1, n-1).Sub(first))
}
