package trace

import (
	"cmp"
	"errors"
	"slices"
)

// graphTask is one call of backward(): the work of PyTorch's autograd engine on its device thread.
type graphTask struct {
	t     *Tape
	ready readyQueue
	// after holds the functions of [Tape.AfterBackward].
	after []func()
	// outer is the backward call whose node started this one; nil if none did. shared holds the state of outer calls in
	// nodes for which both wait.
	outer  *graphTask
	visit  int32
	shared []pendingNode
}

// pendingNode is the state of a node in a graphTask: the number of gradients for which it still waits (deps), and the
// gradients that arrived.
type pendingNode struct {
	node  *Node
	visit int32
	deps  int32
	grads []*Tensor
	flags nodeFlags
}

// readyQueue is a binary heap with the order of PyTorch's ReadyQueue: the node created last runs first.
type readyQueue []*Node

func (q *readyQueue) push(n *Node) {
	heap := append(*q, n)
	*q = heap
	at := len(heap) - 1
	for at > 0 {
		parent := (at - 1) / 2
		if heap[parent].seq >= n.seq {
			break
		}
		heap[at] = heap[parent]
		at = parent
	}
	heap[at] = n
}

func (q *readyQueue) pop() *Node {
	heap := *q
	top, last := heap[0], heap[len(heap)-1]
	heap = heap[:len(heap)-1]
	*q = heap
	at := 0
	for {
		child := 2*at + 1
		if child+1 < len(heap) && heap[child+1].seq > heap[child].seq {
			child++
		}
		if child >= len(heap) || heap[child].seq <= last.seq {
			break
		}
		heap[at] = heap[child]
		at = child
	}
	if len(heap) > 0 {
		heap[at] = last
	}
	return top
}

// Backward records loss.backward() of the scalar x, which adds gradients to the leaves.
func (x *Tensor) Backward() {
	t := x.tape
	at := t.location()
	t.op, t.native, t.python, t.fromPython = "ones_like", "ones_like", true, true
	back := t.switchToGPUOf(x)
	root := x.AllocLike(x.dtype).Retain() // the caller's tuple of gradients
	t.LaunchFill(root)
	t.python = at.python
	t.backward([]*Tensor{x}, []*Tensor{root})
	back()
	root.Release()
	t.resume(at)
	if x.refs == 0 && at.python {
		x.releaseResources()
	}
}

// errNoGrad is PyTorch's error for backward of a loss that depends on no trained parameter.
var errNoGrad = errors.New("element 0 of tensors does not require grad and does not have a grad_fn: the loss does " +
	"not depend on any trained parameter; train another part of the model, or use another loss")

// backward runs the graph behind roots, starting with their gradients grads.
func (t *Tape) backward(roots, grads []*Tensor) {
	a := &t.autograd
	a.visit++
	task := &graphTask{t: t, outer: a.task, visit: a.visit}
	a.task = task
	at, noGrad, thread := t.location(), a.noGrad, a.thread
	a.noGrad, t.python, a.thread = true, false, 1
	for i, x := range roots {
		if !x.requiresGrad {
			t.Raise(errNoGrad)
		}
		e := x.gradEdge()
		task.countDependencies(e.node)
		g := grads[i]
		if g.dtype != x.dtype { // the caller's list has the cast one in its place
			g = g.AsType(x.dtype).Retain()
			defer g.Release()
		}
		task.accumulateInput(e, g.Retain())
	}
	for _, x := range roots {
		if n := x.gradEdge().node; n.deps == 0 && n.flags&isQueued == 0 {
			task.enqueue(n)
		}
	}
	for len(task.ready) > 0 {
		n := task.ready.pop()
		n.flags &^= isQueued
		if t.ranks.spread == nil {
			task.run(n)
		} else {
			task.runWhere(n)
		}
	}
	task.restoreNodes()
	for _, f := range task.after {
		t.hook(f)
	}
	a.task, a.noGrad, a.thread = task.outer, noGrad, thread
	t.node, t.place, t.python = at.node, at.place, at.python
}

// enterNode prepares a node for this call of backward(). Calls nest, since a checkpointed region runs another backward
// inside. The state of an outer call in the node is stored until restoreNodes.
func (g *graphTask) enterNode(n *Node) {
	if g.outer != nil && n.visit >= g.outermost() {
		g.shared = append(g.shared, pendingNode{
			node: n, visit: n.visit, deps: n.deps, grads: slices.Clone(n.incoming()),
			flags: n.flags,
		})
		clear(n.incoming())
		n.flags &^= isQueued
	}
	n.visit, n.deps = g.visit, 0
}

// outermost returns the number (visit) of the outermost running call of backward().
func (g *graphTask) outermost() int32 {
	for g.outer != nil {
		g = g.outer
	}
	return g.visit
}

// restoreNodes restores the state that enterNode stored.
func (g *graphTask) restoreNodes() {
	for i := range g.shared {
		s := &g.shared[i]
		n := s.node
		n.visit, n.deps, n.flags = s.visit, s.deps, n.flags&^isQueued|s.flags&isQueued
		copy(n.incoming(), s.grads)
	}
}

// countDependencies counts the gradients for which each reachable node waits.
func (g *graphTask) countDependencies(root *Node) {
	if root.visit == g.visit {
		return
	}
	g.enterNode(root)
	stack := []*Node{root}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, e := range n.next() {
			m := e.node
			if m == nil {
				continue
			}
			if m.visit != g.visit {
				g.enterNode(m)
				stack = append(stack, m)
			}
			m.deps++
		}
	}
}

func (g *graphTask) enqueue(n *Node) {
	n.flags |= isQueued
	n.retain() // by the queue
	g.ready.push(n)
}

// accumulateInput adds gradient x, of which it takes ownership, to its target's sum so far (InputBuffer::add).
func (g *graphTask) accumulateInput(e edge, x *Tensor) {
	grads := e.node.incoming()
	old := grads[e.input]
	if old == nil {
		grads[e.input] = x
		return
	}
	c := g.t.Begin("add_")
	var sum *Tensor
	if old.isDense() && old.refs == 1 && old.store.refs == 1 && e.node.flags&isSubclassed == 0 {
		old.AddInPlace(x)
		sum = old
	} else {
		g.t.native = "add"
		sum = old.Add(x).Retain()
		old.Release()
	}
	x.Release()
	grads[e.input] = sum
	c.Finish()
}

// runWhere runs a node on the GPU of its gradients.
func (g *graphTask) runWhere(n *Node) {
	var of *Tensor
	for _, x := range n.incoming() {
		of = cmp.Or(of, x)
	}
	defer g.t.switchToGPUOf(of)()
	g.run(n)
}

// run runs one node and passes its results on.
func (g *graphTask) run(n *Node) {
	t := g.t
	t.node, t.place, t.op, t.native, t.fromPython = n.name, n.place, "", "", false
	grads := n.incoming()
	if n.flags&(isLeafNode|isHooked) != 0 && g.runHooked(n, grads) {
		return
	}
	if x := n.viewBackward(); x != nil {
		g.passGradient(n.edges[0], x)
		n.release()
		return
	}
	b := n.start(grads)
	if b != nil {
		n.apply(b)
		b.Finish()
		n.dropUnpacked(b)
		g.validate(n, b.Out)
		releaseAll(b.Grads)
		n.releaseSaved()
	}
	for i, e := range n.next() {
		var x *Tensor
		if b != nil {
			x = b.Out[i]
		}
		g.passGradient(e, x)
	}
	if b != nil {
		t.autograd.backwards = append(t.autograd.backwards, b)
	}
	n.release()
}

// passGradient passes gradient x, or nil, to its target. It takes ownership of x.
func (g *graphTask) passGradient(e edge, x *Tensor) {
	n := e.node
	switch {
	case n == nil && x != nil:
		x.Release()
		return
	case n == nil:
		return
	case x != nil:
		g.accumulateInput(e, x)
	}
	n.deps--
	if n.deps == 0 && n.flags&isQueued == 0 {
		g.enqueue(n)
	}
}

// viewBackward runs the backward of a reshape or a transposition without a backward call: the result is a view of the
// incoming gradient, and nothing is allocated. This is faster, since many nodes are reshapes. It returns nil for other
// nodes and if a view does not suffice.
func (n *Node) viewBackward() *Tensor {
	x := n.grads[0]
	if n.flags&(isReshape|isMatrixT) == 0 || x == nil || n.apply == nil || n.edges[0].node == nil {
		return nil
	}
	want := n.edges[0].node.output(n.edges[0].input)
	var l *layout
	if n.flags&isReshape != 0 {
		l = x.viewLayout(want.shape)
	} else {
		l = x.matrixT()
	}
	if l == nil || x.dtype != want.dtype || !l.sameShape(want.layout) {
		return nil
	}
	y := n.t.newBareHeader(x.store, x.dtype, l, x.offset)
	y.setBase(x)
	n.grads[0] = nil
	n.releaseSaved()
	x.Release()
	return y.Retain()
}

// start takes ownership of the gradients and unpacks the saved tensors. It returns nil if no gradient arrived.
func (n *Node) start(grads []*Tensor) *Gradients {
	if !slices.ContainsFunc(grads, func(x *Tensor) bool { return x != nil }) {
		return nil
	}
	if n.apply == nil {
		panic("trace: backward through " + n.name + " a second time")
	}
	t := n.t
	var b *Gradients
	if last := len(t.autograd.backwards) - 1; last >= 0 {
		b, t.autograd.backwards = t.autograd.backwards[last], t.autograd.backwards[:last]
	} else {
		b = &Gradients{}
	}
	b.node, b.Grad = n, grads[0]
	b.ins, b.outs, b.keeps = [1]*Tensor{}, [4]*Tensor{}, [5]*Tensor{}
	b.Grads = padWithNil(b.ins[:], len(grads))
	for i, x := range grads {
		b.Grads[i], grads[i] = x, nil
	}
	b.Out = padWithNil(b.outs[:], len(n.next()))
	n.unpack(b)
	b.Call = t.Begin(n.name)
	t.op = ""
	return b
}

// padWithNil returns a slice of n nils; it reuses nils if that is long enough.
func padWithNil(nils []*Tensor, n int) []*Tensor {
	if n > len(nils) {
		return make([]*Tensor, n)
	}
	return nils[:n]
}

// unpack passes the node's saved tensors to b.
func (n *Node) unpack(b *Gradients) {
	if n.inputs != manyInputs {
		b.keeps = n.kept
		b.kept = b.keeps[:n.saves]
		return
	}
	b.kept = padWithNil(b.keeps[:], len(n.more.saved))
	for i, s := range n.more.saved {
		b.kept[i] = n.t.unpack(s)
	}
}

// dropUnpacked releases the tensors that saved-tensor hooks returned. Unlike tensors that the node saved, they are
// locals of its function.
func (n *Node) dropUnpacked(b *Gradients) {
	if n.inputs != manyInputs {
		return
	}
	for i, s := range slices.Backward(n.more.saved) {
		if s.pack != nil && b.kept[i] != nil {
			b.kept[i].Release()
		}
	}
}

// validate converts each gradient to the shape and type of its tensor (validate_outputs).
func (g *graphTask) validate(n *Node, out []*Tensor) {
	for i, e := range n.next() {
		x := out[i]
		if x == nil || e.node == nil {
			continue
		}
		want := e.node.output(e.input)
		alike := x.sameShape(want.layout)
		if alike && x.dtype == want.dtype {
			continue
		}
		c := g.t.Begin("validate_outputs")
		if !alike {
			y := x.sumTo(want.shape).Retain()
			x.Release()
			x = y
			c.EndStatement()
		}
		if x.dtype != want.dtype {
			y := x.AsType(want.dtype).Retain()
			x.Release()
			x = y
			c.EndStatement()
		}
		out[i] = x
		c.Finish()
	}
}

// Backward records torch.autograd.backward(roots, grads). The graph takes ownership of otherwise unused gradients.
func Backward(roots, grads []*Tensor) { roots[0].tape.backward(roots, grads) }
