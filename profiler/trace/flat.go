package trace

import "github.com/vprof/vprof/internal/lists"

// UseParts makes parts views of the flat leaf x again, as FullyShardedDataParallel does before the forward pass of a
// unit: backward joins their gradients into one of x.
func (x *Tensor) UseParts(parts []*Tensor) {
	dtype := x.dtype
	flat := func(g *Tensor) *Tensor { return g.AsShape([]int64{g.numel}) }
	x.tape.Derive(parts, "SplitWithSizesBackward0", inputs{x}, nil, func(b *Gradients) {
		b.Give(0, b.joined(func(xs []*Tensor) *Tensor { return Cat(0, lists.Map(xs, flat)...) }, dtype))
	})
}

// PartAs returns a view of a flat tensor's memory in a type, from an offset in elements of x on, laid out as another
// tensor is.
func (x *Tensor) PartAs(d DType, offset int64, y *Tensor) *Tensor {
	return x.tape.header(x.store, d, y.layout, (x.offset+offset)*x.dtype.Size()/d.Size())
}

// OnGradients registers f to run in backward once the gradients of all xs that require gradients exist
// (register_multi_grad_hook). The hooks hold the AccumulateGrad nodes of leaves: until the returned function removes
// the hooks, leaves among xs live, with their gradients.
func (t *Tape) OnGradients(xs []*Tensor, f func()) (remove func()) {
	var leaves []*Tensor
	missing := 0
	for _, x := range xs {
		if x == nil || !x.requiresGrad {
			continue
		}
		if x.isLeaf() {
			leaves = append(leaves, x.Retain())
		}
		missing++
		x.OnGradient(func() {
			if missing--; missing == 0 {
				f()
			}
		})
	}
	return func() {
		missing = 0
		releaseAll(leaves)
	}
}
