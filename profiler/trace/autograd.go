package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// autograd is the part of a tape that builds the autograd graph and runs backward.
type autograd struct {
	noGrad bool
	seq    int64      // the number of the last node
	visit  int32      // the number of the last call of backward
	task   *graphTask // the running call of backward
	thread int        // 0 the main thread, 1 the autograd device thread
	// hooked holds the hooks of nodes: functions that are called when the node runs.
	hooked map[*Node][]func()
	hooks  savedHooks
	// kept are the operators whose results checkpointed regions keep; selection has the running region's kept results.
	kept      []KeptOperator
	selection *selectiveCheckpoint

	// freeLists holds the lists of released nodes, for reuse.
	freeLists []*nodeLists
	backwards []*Gradients
}

// NoGrad runs f as under torch.no_grad().
func (t *Tape) NoGrad(f func()) { withValue(&t.autograd.noGrad, true, f) }

// EnableGrad runs f with autograd on, as under torch.enable_grad().
func (t *Tape) EnableGrad(f func()) { withValue(&t.autograd.noGrad, false, f) }

// RequiresGrad reports whether autograd records an operator on xs: grad mode is on and a tensor requires grad.
func (t *Tape) RequiresGrad(xs ...*Tensor) bool {
	if t.autograd.noGrad {
		return false
	}
	return slices.ContainsFunc(xs, func(x *Tensor) bool { return x != nil && x.requiresGrad })
}

// record creates the autograd node of an operator on inputs; nil if autograd does not record it. Inputs may be nil.
func (t *Tape) record(name string, inputs ...*Tensor) *Node {
	if !t.RequiresGrad(inputs...) {
		return nil
	}
	n := t.newNode(name, len(inputs))
	for i, x := range inputs {
		n.link(i, x)
	}
	return n
}

// link connects gradient i of n to the node that created x.
func (n *Node) link(i int, x *Tensor) {
	if x == nil || !x.requiresGrad {
		return
	}
	e := x.gradEdge()
	e.node.retain()
	n.next()[i] = e
}

// gradEdge returns the node that receives a gradient of x.
func (x *Tensor) gradEdge() edge {
	if x.view != nil && x.version != x.store.version {
		x.refresh()
	}
	if x.tape.ranks.pipeline.boundary != nil {
		x.tape.followAcross(x)
	}
	if x.node != nil {
		return edge{x.node, x.out}
	}
	if x.accum == nil {
		n := x.tape.newNode("AccumulateGrad", 0)
		x.tape.autograd.seq--
		n.seq = lastSeq
		n.leaf, n.flags = x, isLeafNode
		n.addOutput(x)
		x.accum = n
	}
	return edge{x.accum, 0}
}

// GradientEdge returns the gradient edge of x (torch.autograd.graph.get_gradient_edge) as a flat tensor without memory.
// The caller owns it.
func (x *Tensor) GradientEdge() *Tensor {
	e, y := x.gradEdge(), x.tape.Unallocated(x.dtype, x.Numel())
	e.node.retain()
	y.node, y.out, y.requiresGrad = e.node, e.input, true
	return y.Retain()
}

// dropSaved releases the i-th saved tensor before the node ends.
func (b *Gradients) dropSaved(i int) {
	n, x := b.node, b.kept[i]
	if x == nil {
		return
	}
	b.kept[i] = nil
	if n.inputs != manyInputs {
		n.kept[i].Release()
		n.kept[i] = nil
		return
	}
	if s := &n.more.saved[i]; s.pack == nil {
		s.x.Release()
		*s = saved{}
		return
	}
	x.Release()
}

// needs reports whether input i of n needs a gradient.
func (n *Node) needs(i int) bool { return n.next()[i].node != nil }

// save saves xs for backward. A nil tensor takes up a position, too, since saved tensors are found by their position.
func (n *Node) save(xs ...*Tensor) {
	for _, x := range xs {
		if x == nil {
			n.addSaved(saved{})
		} else {
			n.addSaved(n.t.autograd.hooks.pack(n.t, x))
		}
	}
}

// holdForBackward returns a reference to x's storage that a node owns.
func holdForBackward(x *Tensor) *Tensor {
	y := x.tape.newBareHeader(x.store, x.dtype, x.layout, x.offset)
	y.requiresGrad = x.requiresGrad
	if x.class() == program.Temporaries {
		x.classify(program.Activations)
	}
	return y.Retain()
}

// setOutputs makes n the node of outs, so that their gradients flow to it. If n is nil, outs have no autograd history.
func (n *Node) setOutputs(outs ...*Tensor) {
	if n == nil {
		return
	}
	for i, x := range outs {
		n.addOutput(x)
		if x != nil && x.dtype.differentiable() {
			x.setNode(n, int32(i))
		}
	}
}

func (x *Tensor) setNode(n *Node, out int32) {
	if x.dead {
		return // thrown away when a recomputation stopped
	}
	n.retain()
	old := x.node
	x.node, x.out, x.requiresGrad = n, out, true
	old.release()
}

// retain adds a reference to a node. The first reference to an AccumulateGrad node also holds the leaf.
func (n *Node) retain() {
	if n.refs == 0 && n.flags&isLeafNode != 0 {
		n.leaf.Retain()
	}
	n.refs++
}

// release removes a reference to a node. The last one also releases the nodes behind it in the order of deleteNode:
// with a stack, the last edge of a node first.
func (n *Node) release() {
	if n == nil {
		return
	}
	n.refs--
	if n.refs > 0 {
		return
	}
	t := n.t
	stack := n.collectReleased(t, nil)
	for len(stack) > 0 {
		last := len(stack) - 1
		m := stack[last]
		stack = m.collectReleased(t, stack[:last])
	}
}

// collectReleased destroys a node without references, and pushes the nodes to which only it referred.
func (n *Node) collectReleased(t *Tape, stack []*Node) []*Node {
	if n.flags&isLeafNode != 0 {
		n.leaf.Release()
		return stack
	}
	if n.flags&isSpent == 0 {
		n.releaseSaved()
	}
	if n.flags&isHooked != 0 { // which never ran, and another node may get the memory of this one
		delete(t.autograd.hooked, n)
	}
	next := n.next()
	for i, e := range next {
		if e.node == nil {
			continue
		}
		next[i] = edge{}
		e.node.refs--
		if e.node.refs == 0 {
			stack = append(stack, e.node)
		}
	}
	n.end(t)
	return stack
}

// releaseSaved releases the node's saved tensors, once.
func (n *Node) releaseSaved() {
	n.apply, n.flags = nil, n.flags|isSpent
	n.forget()
}

// Gradients is the state of a node's backward call: the gradients of the node's outputs, the saved tensors, and the
// gradients of its inputs, which the call computes.
type Gradients struct {
	*Call
	node *Node
	// Grad is the gradient of the first output. grads has one for each output; nil if none arrived.
	Grad  *Tensor
	Grads []*Tensor
	Out   []*Tensor
	kept  []*Tensor

	// Backing arrays of the slices above, large enough for most nodes.
	ins   [1]*Tensor
	outs  [4]*Tensor
	keeps [5]*Tensor
	// terms are the values of the names in a formula: grad, then the saved tensors.
	terms [6]*Tensor
}

// Saved returns the i-th saved tensor; nil if forward did not save it.
func (b *Gradients) Saved(i int) *Tensor { return b.kept[i] }

// Needs reports whether input i needs a gradient.
func (b *Gradients) Needs(i int) bool { return b.node.needs(i) }

// input returns the shape and type of input i, which its gradient must also have. The input must need a gradient.
func (b *Gradients) input(i int) *gradientMeta {
	e := b.node.next()[i]
	return e.node.output(e.input)
}

// Set sets the gradient of input i to x and ends the C++ statement.
func (b *Gradients) Set(i int, x *Tensor) {
	if x != nil {
		b.Out[i] = x.Retain()
	}
	b.EndStatement()
}

// setRealPart records handle_r_to_c: for a real input i, the real part of a complex gradient, a view.
func (b *Gradients) setRealPart(i int, x *Tensor) *Tensor {
	e := b.node.next()[i]
	if x.dtype != C64 || e.node == nil || e.node.output(e.input).dtype == C64 {
		return x
	}
	return x.RealPart()
}

// SetPair sets the gradients of the first two inputs, if they need any, and ends the C++ statement.
func (b *Gradients) SetPair(x, y *Tensor) {
	for i, g := range [...]*Tensor{x, y} {
		if b.Needs(i) {
			b.Out[i] = g.Retain()
		}
	}
	b.EndStatement()
}

// SetAll sets the gradients of inputs 0, 1, ... to the results of one native function: references, nil where there is
// none. Results that are not needed are freed after the temporaries, in order.
func (b *Gradients) SetAll(xs ...*Tensor) {
	b.EndStatement()
	for i, x := range xs {
		switch {
		case x == nil:
		case b.Needs(i):
			b.Out[i] = x
		default:
			x.Release()
		}
	}
}

// SavedBytes returns the sizes of the distinct storages, including parameters, that the graph behind xs has saved for
// backward, sorted.
func SavedBytes(xs ...*Tensor) []int64 {
	var sizes []int64
	seen, visited := map[*storage]bool{}, map[*Node]bool{}
	var visit func(n *Node)
	visit = func(n *Node) {
		if n == nil || visited[n] {
			return
		}
		visited[n] = true
		for i := range n.numSaved() {
			s := n.saved(i)
			if s.x != nil && !seen[s.x.store] {
				seen[s.x.store] = true
				sizes = append(sizes, s.x.store.bytes)
			}
		}
		for _, e := range n.next() {
			visit(e.node)
		}
	}
	for _, x := range xs {
		visit(x.node)
	}
	slices.Sort(sizes)
	return sizes
}
