package trace

import "slices"

// rebase makes n the node of x after an in-place operator (rebase_history). If x is a view, its base has changed. The
// base's node is then a CopySlices node, which runs n for the part that the view shows.
func (x *Tensor) rebase(n *Node) {
	x.store.version++
	n.addOutput(x)
	if x.view == nil {
		x.setNode(n, 0)
		return
	}
	x.view.setNode(x.copySlices(n), 0)
	x.refresh()
}

// copySlices makes the CopySlices node of x's base after the operator of n has changed the view x.
func (x *Tensor) copySlices(n *Node) *Node {
	base := x.view
	next := n.next()
	cs := base.tape.newNode("CopySlices", len(next))
	cs.link(0, base)
	for i := 1; i < len(next); i++ {
		if e := next[i]; e.node != nil {
			e.node.retain()
			cs.next()[i] = e
		}
	}
	n.retain()
	cs.growable().inner = n
	cs.addOutput(base)
	whole, part, offset := base.geometry, x.geometry, x.offset-base.offset
	cs.apply = func(b *Gradients) { b.copySlices(whole, part, offset) }
	return cs
}

// copySlices records CopySlices::apply. The base's gradient is a copy of the incoming one, whose part for the view goes
// through the inner node.
func (b *Gradients) copySlices(whole, part geometry, offset int64) {
	t := b.t
	result := b.Bind(t.AllocStrided(b.Grad.dtype, whole.shape, whole.strides))
	t.LaunchCopy(result, b.Grad)
	slice := b.Bind(result.asStrided(part, offset))
	res := b.runInner(slice.CloneContiguous())
	for i, g := range res {
		switch {
		case g == nil || !b.Needs(i):
		case i == 0:
			t.LaunchCopy(slice, g)
			b.Out[0] = result.Retain()
		default:
			b.Out[i] = g.Retain()
		}
	}
	releaseAll(res)
}

// runInner runs the node inside CopySlices. The caller owns the results.
func (b *Gradients) runInner(grad *Tensor) []*Tensor {
	n := b.node.more.inner
	in := n.start([]*Tensor{grad.Retain()})
	n.apply(in)
	in.Finish()
	res := slices.Clone(in.Out)
	grad.Release()
	b.EndStatement()
	for i, x := range in.kept {
		if n.saved(i).pack != nil && x != nil {
			x.Release()
		}
	}
	return res
}

// refresh makes a new node for a view after its base or another view of the base was changed in place.
func (x *Tensor) refresh() {
	base := x.view
	x.version = x.store.version
	if x.node == nil && !base.requiresGrad {
		return
	}
	n := x.tape.newNode("AsStridedBackward0", 1)
	n.link(0, base)
	n.addOutput(x)
	whole, part, offset := base.geometry, x.geometry, x.offset-base.offset
	n.apply = func(b *Gradients) { b.Set(0, b.Grad.asStridedBackward(whole, part, offset)) }
	x.setNode(n, 0)
}

// CopyInPlace records x.copy_(y), and x[...] = y for a view x.
func (x *Tensor) CopyInPlace(y *Tensor) *Tensor {
	c := x.tape.Begin("copy_", x, y)
	c.t.LaunchCopy(x, y)
	from := y.dtype
	return c.End(x.resetGradFn("CopyBackwards", inputs{x, y}, nil, inputGradients(
		inputGradient{0, func(b *Gradients) *Tensor { return b.Grad.ZerosLike() }},
		inputGradient{1, func(b *Gradients) *Tensor { return b.Grad.AsType(from) }},
	)))
}
