package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Node is a step of the backward graph: it turns gradients of an operator's
// outputs into gradients of its inputs.
type Node struct {
	t     *Tape
	name  string
	seq   int64
	refs  int32
	next  []edge // one per input; a zero edge where none is needed
	saved []saved
	metas []meta // of the outputs: gradients must come in these shapes and types
	apply func(b *backward)
	leaf  *Tensor // AccumulateGrad: the tensor whose gradient this is
	inner *Node   // CopySlices: what the view went through

	place *place

	// Scratch of the engine.
	visit  int64
	deps   int32
	grads  []*Tensor
	queued bool

	// What most nodes need of the slices above.
	edges [3]edge
	keeps [2]saved
	meta  [1]meta
	grad  [1]*Tensor
}

type edge struct {
	node  *Node
	input int32
}

// meta is what the engine checks a gradient against (InputMetadata).
type meta struct {
	*layout
	dtype DType
}

// saved is a tensor kept for backward, or what a saved-tensor hook made of it.
type saved struct {
	x    *Tensor
	pack *packed
}

// lastSeq is the sequence number of AccumulateGrad nodes: they run at once.
const lastSeq = int64(1) << 62

func (t *Tape) newNode(name string, inputs int) *Node {
	n := t.nodes.take()
	t.seq++
	n.t, n.name, n.seq = t, name, t.seq
	n.place = t.place
	n.saved, n.metas = n.keeps[:0], n.meta[:0]
	if inputs <= len(n.edges) {
		n.next = n.edges[:inputs]
	} else {
		n.next = make([]edge, inputs)
	}
	return n
}

// tracked reports whether autograd must follow an operator on xs.
func (t *Tape) tracked(xs ...*Tensor) bool {
	if t.noGrad {
		return false
	}
	for _, x := range xs {
		if x != nil && x.requiresGrad {
			return true
		}
	}
	return false
}

// record makes the node of an operator on inputs, nil if autograd does not
// follow it. Inputs may be nil.
func (t *Tape) record(name string, inputs ...*Tensor) *Node {
	if !t.tracked(inputs...) {
		return nil
	}
	n := t.newNode(name, len(inputs))
	for i, x := range inputs {
		n.link(i, x)
	}
	return n
}

// link makes gradient i of n flow to what made x.
func (n *Node) link(i int, x *Tensor) {
	if x == nil || !x.requiresGrad {
		return
	}
	e := x.gradEdge()
	e.node.retain()
	n.next[i] = e
}

// gradEdge is where a gradient of x goes.
func (x *Tensor) gradEdge() edge {
	if x.view != nil && x.version != x.store.version {
		x.refresh()
	}
	if x.node != nil {
		return edge{x.node, x.out}
	}
	if x.accum == nil {
		n := x.tape.newNode("AccumulateGrad", 0)
		x.tape.seq--
		n.seq = lastSeq
		n.leaf = x
		n.metas = append(n.metas, meta{x.layout, x.dtype})
		x.accum = n
	}
	return edge{x.accum, 0}
}

// needs reports whether input i of n wants a gradient.
func (n *Node) needs(i int) bool { return n.next[i].node != nil }

// keep saves x for backward if the condition holds; the place is taken in any
// case, so that saved values are found by their position.
func (n *Node) keep(x *Tensor, when bool) {
	if x == nil || !when {
		n.saved = append(n.saved, saved{})
		return
	}
	n.saved = append(n.saved, n.t.hooks.pack(n.t, x))
}

// save keeps each of xs.
func (n *Node) save(xs ...*Tensor) {
	for _, x := range xs {
		n.keep(x, true)
	}
}

// holdForBackward is a header over x's storage that a node owns.
func holdForBackward(x *Tensor) *Tensor {
	t := x.tape
	python := t.python
	t.python = true // not a temporary
	y := x.detached()
	t.python = python
	y.requiresGrad = x.requiresGrad
	if x.class() == program.Temporaries {
		x.classify(program.Activations)
	}
	return y.retain()
}

// yields makes outs the outputs of n. A nil node leaves them untracked.
func (n *Node) yields(outs ...*Tensor) {
	if n == nil {
		return
	}
	for i, x := range outs {
		if x == nil {
			n.metas = append(n.metas, meta{})
			continue
		}
		n.metas = append(n.metas, meta{x.layout, x.dtype})
		if x.dtype.differentiable() {
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
	if old != nil {
		old.release()
	}
}

// retain adds a reference. The first one to an AccumulateGrad node holds its
// leaf, which otherwise only knows of the node.
func (n *Node) retain() {
	if n.refs == 0 && n.leaf != nil {
		n.leaf.retain()
	}
	n.refs++
}

// release drops a reference. The last one takes the nodes behind apart as
// deleteNode does: with a stack, the last edge of a node first.
func (n *Node) release() {
	n.refs--
	if n.refs > 0 {
		return
	}
	stack := n.gather(nil)
	for len(stack) > 0 {
		last := len(stack) - 1
		m := stack[last]
		stack = m.gather(stack[:last])
	}
}

// gather ends a node nobody refers to and pushes those that only it did.
func (n *Node) gather(stack []*Node) []*Node {
	if n.leaf != nil {
		n.leaf.release()
		return stack
	}
	n.releaseSaved()
	for i, e := range n.next {
		if e.node == nil {
			continue
		}
		n.next[i] = edge{}
		e.node.refs--
		if e.node.refs == 0 {
			stack = append(stack, e.node)
		}
	}
	n.t.nodes.give(n)
	return stack
}

func (n *Node) releaseSaved() {
	for i := range n.saved {
		s := &n.saved[i]
		if s.x != nil {
			s.x.release()
			s.x = nil
		}
		if s.pack != nil {
			s.pack.release()
			s.pack = nil
		}
	}
	if m := n.inner; m != nil {
		n.inner = nil
		m.release()
	}
	n.apply = nil
}

// backward is a node at work: the gradients that came in, the saved tensors,
// and the gradients that go out.
type backward struct {
	*call
	node *Node
	// grad is the gradient of the first output; grads are those of all,
	// nil where none came.
	grad  *Tensor
	grads []*Tensor
	out   []*Tensor
	kept  []*Tensor

	// What most nodes need of the slices above.
	outs  [4]*Tensor
	keeps [4]*Tensor
}

// saved is the i-th tensor the forward kept, nil if it was not needed.
func (b *backward) saved(i int) *Tensor { return b.kept[i] }

// needs reports whether a gradient of input i is wanted.
func (b *backward) needs(i int) bool { return b.node.needs(i) }

// input is the shape and type of input i, which its gradient must have too. The
// input must want one.
func (b *backward) input(i int) *meta {
	e := b.node.next[i]
	return &e.node.metas[e.input]
}

// give makes x the gradient of input i and ends the statement.
func (b *backward) give(i int, x *Tensor) {
	if x != nil {
		b.out[i] = x.retain()
	}
	b.statement()
}

// giveAll takes the results of one native function that makes the gradients
// of inputs 0, 1, ...: a tuple of references, nil where there is none. Those
// nobody wants go after the temporaries, in order.
func (b *backward) giveAll(xs ...*Tensor) {
	b.statement()
	for i, x := range xs {
		switch {
		case x == nil:
		case b.needs(i):
			b.out[i] = x
		default:
			x.release()
		}
	}
}

// SavedBytes are the sizes of the storages that the graph behind xs keeps for
// backward, each once, sorted. Parameters are among them.
func SavedBytes(xs ...*Tensor) []int64 {
	var sizes []int64
	seen, visited := map[*storage]bool{}, map[*Node]bool{}
	var stack []*Node
	push := func(n *Node) {
		if n != nil && !visited[n] {
			visited[n] = true
			stack = append(stack, n)
		}
	}
	for _, x := range xs {
		push(x.node)
	}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, s := range n.saved {
			if s.x != nil && !seen[s.x.store] {
				seen[s.x.store] = true
				sizes = append(sizes, s.x.store.bytes)
			}
		}
		for _, e := range n.next {
			push(e.node)
		}
	}
	slices.Sort(sizes)
	return sizes
}
