package trace

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
)

// viewOf records an operator that returns a view of x; back computes the gradient of x from the view's. The view holds
// its base even if autograd is off (ViewInfo::base_). Its storage then has two references, so gradients that arrive as
// views are not accumulated in place.
func (x *Tensor) viewOf(op, node string, shape, strides []int64, offset int64, back func(b *Gradients)) *Tensor {
	return x.viewAs(op, node, x.tape.layout(shape, strides), offset, back)
}

// viewAs records viewOf for a layout. A C++ caller needs no entry on the stack of running calls: the call allocates
// nothing, and the caller holds the argument.
func (x *Tensor) viewAs(op, node string, l *layout, offset int64, back func(b *Gradients)) *Tensor {
	t := x.tape
	if !t.python {
		y := x.trackedAlias(node, l, offset, back)
		y.setBase(x)
		return y
	}
	c := t.Begin(op, x)
	y := x.trackedAlias(node, l, offset, back)
	y.setBase(x)
	return c.End(y)
}

// trackedAlias returns a tensor on the storage of x with an autograd node.
func (x *Tensor) trackedAlias(node string, l *layout, offset int64, back func(b *Gradients)) *Tensor {
	y := x.tape.newHeader(x.store, x.dtype, l, offset)
	y.SetGradFn(node, inputs{x}, nil, back)
	return y
}

func (y *Tensor) setBase(x *Tensor) {
	y.view, y.version = x.base().Retain(), x.store.version
}

func (x *Tensor) base() *Tensor {
	if x.view != nil {
		return x.view
	}
	return x
}

// View records x.view(shape); one size may be -1.
func (x *Tensor) View(shape ...int64) *Tensor {
	l := x.viewLayout(inferShape(shape, x.numel))
	if l == nil {
		panic("trace: view of a tensor whose strides do not allow it; use Reshape")
	}
	return x.viewAs("view", "ViewBackward0", l, x.offset, reshapeBackward).ofViewKind(isReshape)
}

// Viewable reports whether View(shape) is possible without a copy.
func (x *Tensor) Viewable(shape ...int64) bool {
	return x.viewLayout(inferShape(shape, x.numel)) != nil
}

// viewLayout returns the layout of a view of x with the given shape; nil if the strides of x allow no view.
func (x *Tensor) viewLayout(shape []int64) *layout {
	l := x.layout
	if l.reshaped != nil && slices.Equal(l.reshaped.shape, shape) {
		return l.reshaped
	}
	var buf [8]int64
	strides, ok := ViewStrides(buf[:0], l.shape, l.strides, shape)
	if !ok {
		return nil
	}
	l.reshaped = x.tape.layout(shape, strides)
	return l.reshaped
}

// Reshape records x.reshape(shape): a view if the strides allow it, otherwise a copy.
func (x *Tensor) Reshape(shape ...int64) *Tensor {
	c := x.tape.Begin("reshape", x)
	return c.End(x.AsShape(inferShape(shape, x.numel)))
}

// AsShape records x.reshape(shape) as called from C++.
func (x *Tensor) AsShape(shape []int64) *Tensor {
	if l := x.viewLayout(shape); l != nil {
		return x.viewAs("reshape", "ViewBackward0", l, x.offset, reshapeBackward).ofViewKind(isReshape)
	}
	// _unsafe_view of a clone
	c := x.tape.Begin("reshape", x)
	copied := c.Bind(x.CloneContiguous())
	return c.End(copied.unsafeView(shape))
}

// Flatten records x.flatten(from, to), which merges the dimensions from..to.
func (x *Tensor) Flatten(from, to int) *Tensor {
	c := x.tape.Begin("flatten_using_ints", x)
	from, to = x.Dim(from), x.Dim(to)
	shape := slices.Replace(slices.Clone(x.shape), from, to+1, Numel(x.shape[from:to+1]))
	return c.End(x.AsShape(shape))
}

func reshapeBackward(b *Gradients) { b.Set(0, b.Grad.AsShape(b.input(0).shape)) }

// unsafeView records _unsafe_view, whose result is no view for autograd. The strides of x must allow it.
func (x *Tensor) unsafeView(shape []int64) *Tensor {
	l := x.viewLayout(shape)
	if l == nil {
		panic("trace: _unsafe_view of a tensor whose strides do not allow it")
	}
	return x.trackedAlias("UnsafeViewBackward0", l, x.offset, reshapeBackward).ofViewKind(isReshape)
}

// inferShape replaces a size of -1 by the size that makes total elements.
func inferShape(shape []int64, total int64) []int64 {
	known, hole := int64(1), -1
	for i, s := range shape {
		if s == -1 {
			hole = i
		} else {
			known *= s
		}
	}
	if hole < 0 {
		return shape
	}
	if known == 0 {
		return lists.Replace(shape, hole, 0)
	}
	return lists.Replace(shape, hole, total/known)
}

// ViewStrides implements at::detail::computeStride: it returns the strides of a view of the given shape, and whether
// such a view exists. The strides are appended to dst, which is empty.
func ViewStrides(dst, old, oldStrides, shape []int64) ([]int64, bool) {
	strides := dst
	for range shape {
		strides = append(strides, 1)
	}
	if len(old) == 0 {
		return strides, true
	}
	d := len(shape) - 1
	if Numel(old) == 0 { // its strides do not matter
		for d--; d >= 0; d-- {
			strides[d] = strides[d+1] * max(shape[d+1], 1)
		}
		return strides, true
	}
	base := oldStrides[len(old)-1]
	chunk, viewed := int64(1), int64(1)
	for i := len(old) - 1; i >= 0; i-- {
		chunk *= old[i]
		if i > 0 && (old[i-1] == 1 || oldStrides[i-1] == chunk*base) {
			continue
		}
		for d >= 0 && (viewed < chunk || shape[d] == 1) {
			strides[d] = viewed * base
			viewed *= shape[d]
			d--
		}
		if viewed != chunk {
			return nil, false
		}
		if i > 0 {
			base, chunk, viewed = oldStrides[i-1], 1, 1
		}
	}
	return strides, d < 0
}

// Permute records x.permute(dims).
func (x *Tensor) Permute(dims ...int) *Tensor {
	shape, strides := make([]int64, len(dims)), make([]int64, len(dims))
	inverse := make([]int, len(dims))
	for i, d := range dims {
		d = x.Dim(d)
		shape[i], strides[i] = x.shape[d], x.strides[d]
		inverse[d] = i
	}
	return x.viewOf("permute", "PermuteBackward0", shape, strides, x.offset, func(b *Gradients) {
		b.Set(0, b.Grad.Permute(inverse...))
	})
}

// MoveDim records x.movedim(from, to): dimension from moves to position to, and the others keep their order.
func (x *Tensor) MoveDim(from, to int) *Tensor {
	c := x.tape.Begin("movedim_int", x)
	from, to = x.Dim(from), x.Dim(to)
	order := make([]int, 0, len(x.shape))
	for d := range x.shape {
		if d != from {
			order = append(order, d)
		}
	}
	return c.End(x.Permute(slices.Insert(order, to, from)...))
}

// Transpose records x.transpose(a, b).
func (x *Tensor) Transpose(a, b int) *Tensor {
	a, b = x.Dim(a), x.Dim(b)
	var s, z [8]int64
	shape, strides := append(s[:0], x.shape...), append(z[:0], x.strides...)
	shape[a], shape[b] = shape[b], shape[a]
	strides[a], strides[b] = strides[b], strides[a]
	return x.viewOf("transpose", "TransposeBackward0", shape, strides, x.offset, func(bw *Gradients) {
		bw.Set(0, bw.Grad.Transpose(a, b))
	})
}

// T records x.t() of a matrix.
func (x *Tensor) T() *Tensor {
	return x.viewAs("t", "TBackward0", x.matrixT(), x.offset, func(b *Gradients) {
		b.Set(0, b.Grad.T())
	}).ofViewKind(isMatrixT)
}

func (x *Tensor) matrixT() *layout {
	if x.transposed == nil {
		x.transposed = x.tape.layout([]int64{x.shape[1], x.shape[0]}, []int64{x.strides[1], x.strides[0]})
	}
	return x.transposed
}

// ofViewKind sets the flag by which [Node.viewBackward] computes the gradient of the view x.
func (x *Tensor) ofViewKind(kind nodeFlags) *Tensor {
	if x.node != nil {
		x.node.flags |= kind
	}
	return x
}

// Unsqueeze records x.unsqueeze(d).
func (x *Tensor) Unsqueeze(d int) *Tensor {
	n := len(x.shape)
	if d < 0 {
		d += n + 1
	}
	stride := int64(1)
	if d < n {
		stride = x.shape[d] * x.strides[d]
	}
	shape := slices.Insert(slices.Clone(x.shape), d, 1)
	strides := slices.Insert(slices.Clone(x.strides), d, stride)
	return x.viewOf("unsqueeze", "UnsqueezeBackward0", shape, strides, x.offset, func(b *Gradients) {
		b.Set(0, b.Grad.Squeeze(d))
	})
}

// Squeeze records x.squeeze(d).
func (x *Tensor) Squeeze(d int) *Tensor {
	d = x.Dim(d)
	if x.shape[d] != 1 {
		return x.viewOf("squeeze", "SqueezeBackward1", x.shape, x.strides, x.offset, func(b *Gradients) {
			b.Set(0, b.Grad)
		})
	}
	return x.viewOf("squeeze", "SqueezeBackward1", lists.RemoveAt(x.shape, d), lists.RemoveAt(x.strides, d), x.offset,
		func(b *Gradients) { b.Set(0, b.Grad.Unsqueeze(d)) })
}

// Expand records x.expand(shape); -1 keeps a size.
func (x *Tensor) Expand(shape ...int64) *Tensor {
	lead := len(shape) - len(x.shape)
	to, strides := make([]int64, len(shape)), make([]int64, len(shape))
	for i, s := range shape {
		k := i - lead
		switch {
		case k < 0:
			to[i], strides[i] = s, 0
		case s == -1 || s == x.shape[k]:
			to[i], strides[i] = x.shape[k], x.strides[k]
		default:
			to[i], strides[i] = s, 0
		}
	}
	return x.viewOf("expand", "ExpandBackward0", to, strides, x.offset, func(b *Gradients) {
		b.Set(0, b.Grad.sumTo(b.input(0).shape))
	})
}

// UseParts replaces the tensors in parts by views of the flat leaf x, as FullyShardedDataParallel does before the
// forward pass of a unit. Backward concatenates their gradients to the gradient of x.
func (x *Tensor) UseParts(parts []*Tensor) {
	dtype := x.dtype
	flat := func(g *Tensor) *Tensor { return g.AsShape([]int64{g.numel}) }
	x.tape.SetGradFn(parts, "SplitWithSizesBackward0", inputs{x}, nil, func(b *Gradients) {
		b.Set(0, b.concatGradients(func(xs []*Tensor) *Tensor { return Cat(0, lists.Map(xs, flat)...) }, dtype))
	})
}

// PartAs returns a view into a flat tensor as type d, with the layout of y. The offset counts elements of x.
func (x *Tensor) PartAs(d DType, offset int64, y *Tensor) *Tensor {
	return x.tape.newHeader(x.store, d, y.layout, (x.offset+offset)*x.dtype.Size()/d.Size())
}
