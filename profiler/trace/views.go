package trace

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
)

// AsStrided records x.as_strided(shape, strides, offset).
func (x *Tensor) AsStrided(shape, strides []int64, offset int64) *Tensor {
	return x.asStrided(geometry{shape, strides}, offset)
}

// SqueezeAll records x.squeeze(), or x.squeeze(dims): it removes all dimensions of size one, or those among dims.
func (x *Tensor) SqueezeAll(dims ...int) *Tensor {
	drop := make([]bool, len(x.shape))
	for d := range drop {
		drop[d] = len(dims) == 0 && x.shape[d] == 1
	}
	for _, d := range dims {
		drop[x.Dim(d)] = x.Size(d) == 1
	}
	var shape, strides []int64
	for d, gone := range drop {
		if !gone {
			shape, strides = append(shape, x.shape[d]), append(strides, x.strides[d])
		}
	}
	return x.viewOf("squeeze", "SqueezeBackward0", shape, strides, x.offset, func(b *Gradients) {
		b.Set(0, b.Grad.AsShape(b.input(0).shape))
	})
}

// Diagonal records x.diagonal(offset, a, b). The diagonal becomes the last dimension.
func (x *Tensor) Diagonal(offset int64, a, b int) *Tensor {
	a, b = x.Dim(a), x.Dim(b)
	whole := x.shape
	rows, columns := whole[a], whole[b]
	at := x.offset
	if offset >= 0 {
		columns -= offset
		at += offset * x.strides[b]
	} else {
		rows += offset
		at -= offset * x.strides[a]
	}
	var shape, strides []int64
	for d := range whole {
		if d != a && d != b {
			shape, strides = append(shape, whole[d]), append(strides, x.strides[d])
		}
	}
	shape = append(shape, max(min(rows, columns), 0))
	strides = append(strides, x.strides[a]+x.strides[b])
	return x.viewOf("diagonal", "DiagonalBackward0", shape, strides, at, func(bw *Gradients) {
		bw.Set(0, bw.Grad.copyIntoZeros("diagonal_backward", whole))
	})
}

// DiagEmbed records torch.diag_embed(x, offset): zeros with the rows of x on the diagonals.
func (x *Tensor) DiagEmbed(offset int64) *Tensor {
	c := x.tape.Begin("diag_embed", x)
	n := x.Size(-1) + max(offset, -offset)
	z := c.t.Zeros(x.dtype, slices.Concat(x.shape[:len(x.shape)-1], []int64{n, n})...)
	return c.End(x.recordCopy("DiagEmbedBackward0", c.Bind(z), func(g *Tensor) *Tensor {
		return g.Diagonal(offset, -2, -1)
	}))
}

// MoveDims records x.movedim(from, to) for several dimensions.
func (x *Tensor) MoveDims(from, to []int) *Tensor {
	c := x.tape.Begin("movedim_intlist", x)
	n := len(x.shape)
	order, taken := make([]int, n), make([]bool, n)
	for d := range order {
		order[d] = -1
	}
	for i := range from {
		order[x.Dim(to[i])] = x.Dim(from[i])
		taken[x.Dim(from[i])] = true
	}
	next := 0
	for d := range order {
		if order[d] >= 0 {
			continue
		}
		for taken[next] {
			next++
		}
		order[d] = next
		next++
	}
	return c.End(x.Permute(order...))
}

// ViewType records x.view(dtype): the same bytes as elements of another type.
func (x *Tensor) ViewType(d DType) *Tensor {
	shape := slices.Clone(x.shape)
	if last := len(shape) - 1; last >= 0 {
		shape[last] = shape[last] * x.dtype.Size() / d.Size()
	}
	c := x.tape.Begin("view_dtype", x)
	y := x.tape.newHeader(x.store, d, x.tape.contiguous(shape), x.offset*x.dtype.Size()/d.Size())
	y.setBase(x)
	return c.End(y)
}

// Rot90 records torch.rot90(x, k, (a, b)).
func (x *Tensor) Rot90(k int64, a, b int) *Tensor {
	c := x.tape.Begin("rot90", x)
	switch ((k % 4) + 4) % 4 {
	case 1:
		return c.End(x.Flip(b).Transpose(a, b))
	case 2:
		return c.End(x.Flip(a, b))
	case 3:
		return c.End(x.Flip(a).Transpose(a, b))
	default:
		return c.End(x.CloneContiguous())
	}
}

// Meshgrid records torch.meshgrid(xs, indexing="ij"); "xy" swaps the first two.
func Meshgrid(xy bool, xs ...*Tensor) []*Tensor {
	c := xs[0].tape.BeginList("meshgrid", xs)
	if xy && len(xs) >= 2 {
		xs = slices.Clone(xs)
		xs[0], xs[1] = xs[1], xs[0]
	}
	shape := lists.Map(xs, func(x *Tensor) int64 { return x.numel })
	outs := make([]*Tensor, len(xs))
	for i, x := range xs {
		at := slices.Repeat([]int64{1}, len(xs))
		at[i] = x.numel
		outs[i] = x.View(at...).Expand(shape...)
	}
	if xy && len(xs) >= 2 {
		outs[0], outs[1] = outs[1], outs[0]
	}
	return c.EndAll(outs...)
}

// TensorSplit records x.tensor_split(indices, d): views along dimension d. The first one begins at zero, the others at
// starts; [Sections] returns the starts of equal sections.
func (x *Tensor) TensorSplit(starts []int64, d int) []*Tensor {
	c := x.tape.Begin("tensor_split", x)
	outs := make([]*Tensor, 0, len(starts)+1)
	from := int64(0)
	for _, to := range append(slices.Clone(starts), x.Size(d)) {
		outs = append(outs, x.SliceStep(d, from, to, 1))
		from = to
	}
	return c.EndAll(outs...)
}

// Sections returns the starts of all sections but the first that x.tensor_split(n) makes. If n does not divide the
// size, the first sections are longer by one.
func Sections(size, n int64) []int64 {
	var starts []int64
	at := int64(0)
	for i := range n - 1 {
		at += size / n
		if i < size%n {
			at++
		}
		starts = append(starts, at)
	}
	return starts
}

// SelectScatter records torch.select_scatter(x, src, d, i): a copy of x in which src replaces slice i.
func (x *Tensor) SelectScatter(src *Tensor, d int, i int64) *Tensor {
	return x.scatterInto("select_scatter", "SelectScatterBackward0", src, func(y *Tensor) *Tensor {
		return y.Select(d, i)
	})
}

// SliceScatter records torch.slice_scatter(x, src, d, from, to, step).
func (x *Tensor) SliceScatter(src *Tensor, d int, from, to, step int64) *Tensor {
	return x.scatterInto("slice_scatter", "SliceScatterBackward0", src, func(y *Tensor) *Tensor {
		return y.SliceStep(d, from, to, step)
	})
}

// DiagonalScatter records torch.diagonal_scatter(x, src, offset, a, b).
func (x *Tensor) DiagonalScatter(src *Tensor, offset int64, a, b int) *Tensor {
	return x.scatterInto("diagonal_scatter", "DiagonalScatterBackward0", src, func(y *Tensor) *Tensor {
		return y.Diagonal(offset, a, b)
	})
}

// scatterInto records a copy of x in which src replaces a view. The gradient of x is the incoming gradient with zeros
// in the view; the gradient of src is the view of the incoming gradient.
func (x *Tensor) scatterInto(op, node string, src *Tensor, view func(*Tensor) *Tensor) *Tensor {
	t := x.tape
	c := t.Begin(op, x, src)
	y := c.Bind(t.elementwise(x.dtype, x))
	t.LaunchCopy(y, x)
	t.LaunchCopy(y.FirstElements(src.numel), src)
	shape, d := src.shape, src.dtype
	return c.End(y.SetGradFn(node, inputs{x, src}, nil, inputGradients(
		inputGradient{1, func(b *Gradients) *Tensor { return view(b.Grad) }},
		inputGradient{0, func(b *Gradients) *Tensor {
			return b.Grad.scatterInto(op, node, t.Zeros(d, shape...), view)
		}},
	)))
}

// Offset returns the offset of x in its storage, in elements.
func (x *Tensor) Offset() int64 { return x.offset }

// BroadcastAll records torch.broadcast_tensors(xs).
func BroadcastAll(xs ...*Tensor) []*Tensor {
	c := xs[0].tape.BeginList("broadcast_tensors", xs)
	shape := broadcast(xs...)
	outs := lists.Map(xs, func(x *Tensor) *Tensor { return x.Expand(shape...) })
	return c.EndAll(outs...)
}

// ChannelShuffle records torch.channel_shuffle(x, groups), which copies x.
func (x *Tensor) ChannelShuffle(groups int64) *Tensor {
	c := x.tape.Begin("channel_shuffle", x)
	n, channels := x.shape[0], x.shape[1]
	y := x.View(slices.Concat([]int64{n, groups, channels / groups}, x.shape[2:])...).Transpose(1, 2).AsContiguous()
	return c.End(y.View(x.shape...))
}

// ToCopy records a copy of x as type d, even if x has that type.
func (x *Tensor) ToCopy(d DType) *Tensor {
	if x.dtype != d {
		return x.To(d)
	}
	return x.Clone()
}

// FlatRepeatInterleave records x.repeat_interleave(n) without a dimension, which flattens x.
func (x *Tensor) FlatRepeatInterleave(n int64) *Tensor {
	c := x.tape.Begin("repeat_interleave_self_int", x)
	flat := c.Bind(x.AsShape([]int64{x.numel}))
	return c.End(flat.RepeatInterleave(n, 0))
}

// TriangleInPlace records x.tril_(); x.triu_() allocates the same.
func (x *Tensor) TriangleInPlace() *Tensor {
	c := x.tape.Begin("tril_", x)
	c.t.LaunchElementwise(x, 1, x)
	return c.End(x.resetGradFn("TrilBackward0", inputs{x}, nil, func(b *Gradients) { b.Set(0, b.Grad.Tril()) }))
}
