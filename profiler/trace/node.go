package trace

// Node is a node of the autograd graph: it computes gradients of an operator's inputs from gradients of its outputs.
//
// The graphs of large models exceed a processor's cache, so a node is small: it has room for most operators' tensors,
// and its fields are in the order of their use. A walk through the graph reads only its first 64 bytes (a cache line).
// Running a node that saves nothing only reads the next 64.
type Node struct {
	edges  [3]edge // of the inputs; a zero edge where no gradient is needed
	visit  int32   // the call of backward that was here last
	deps   int32   // gradients that it waits for
	refs   int32
	inputs uint8 // their number, or exceeding
	saves  uint8
	yield  uint8 // outputs
	flags  nodeFlags

	seq   int64
	metas [1]gradientMeta // of the outputs: gradients must come in these shapes and types
	grads [1]*Tensor      // that have come
	apply func(b *Gradients)
	name  string
	place *place

	kept [5]*Tensor // saved for backward
	t    *Tape
	more *nodeLists // its lists, if it has more than there is room for
	leaf *Tensor    // AccumulateGrad: the tensor whose gradient this is
}

// nodeFlags are the properties of a node of the autograd graph, as bits.
type nodeFlags uint8

const (
	isQueued       nodeFlags = 1 << iota // it waits to be run
	isLeafNode                           // it is an AccumulateGrad
	isSpent                              // it has released its saved tensors
	isReshape                            // its result is the incoming gradient in the shape of the input
	isMatrixT                            // its result is the incoming gradient, a matrix, transposed
	isHooked                             // functions are called when it runs, see [Tape.hooked]
	isEarlierStage                       // an earlier stage of the pipeline made it, see [StagePart]
	isSubclassed                         // its gradients are DTensors, which are not added in place
)

// manyInputs is the value of the input count of a node whose lists are stored separately.
const manyInputs = 255

// nodeLists holds the lists of a node with many inputs or outputs, or with saved tensors that a hook replaced.
type nodeLists struct {
	edges []edge
	saved []saved
	metas []gradientMeta
	grads []*Tensor
	attrs []*Tensor // of a Function's context
	inner *Node     // CopySlices: the view's node
}

type edge struct {
	node  *Node
	input int32
}

// gradientMeta is the shape, type and layout with which the engine compares a gradient (InputMetadata).
type gradientMeta struct {
	*layout
	dtype DType
}

// saved is a tensor saved for backward, or the result of a saved-tensor hook.
type saved struct {
	x    *Tensor
	pack *packedTensor
}

// lastSeq is the sequence number of AccumulateGrad nodes, which run before all others.
const lastSeq = int64(1) << 62

func (t *Tape) newNode(name string, inputs int) *Node {
	n := t.nodes.take()
	t.autograd.seq++
	n.t, n.name, n.seq, n.place = t, name, t.autograd.seq, t.place
	if t.ranks.pipeline.part == EarlierStages {
		n.flags = isEarlierStage
	}
	if t.ranks.subclassed {
		n.flags |= isSubclassed
	}
	if inputs <= len(n.edges) {
		n.inputs = uint8(inputs)
	} else {
		e := n.growable()
		e.edges = append(e.edges, make([]edge, inputs)...)
	}
	return n
}

func (n *Node) growable() *nodeLists {
	if n.inputs != manyInputs {
		e := n.t.newLists()
		e.edges = append(e.edges, n.edges[:n.inputs]...)
		for _, x := range n.kept[:n.saves] {
			e.saved = append(e.saved, saved{x: x})
		}
		e.metas = append(e.metas, n.metas[:n.yield]...)
		n.more, n.inputs = e, manyInputs
	}
	return n.more
}

func (t *Tape) newLists() *nodeLists {
	last := len(t.autograd.freeLists) - 1
	if last < 0 {
		return &nodeLists{}
	}
	e := t.autograd.freeLists[last]
	t.autograd.freeLists = t.autograd.freeLists[:last]
	return e
}

// end releases the memory of a node without references.
func (n *Node) end(t *Tape) {
	if n.inputs == manyInputs {
		e := n.more
		releaseAll(e.attrs)
		e.attrs = nil
		clear(e.edges)
		clear(e.grads)
		e.edges, e.saved, e.metas, e.grads = e.edges[:0], e.saved[:0], e.metas[:0], e.grads[:0]
		t.autograd.freeLists = append(t.autograd.freeLists, e)
	}
	t.nodes.give(n)
}

func (n *Node) next() []edge {
	if n.inputs == manyInputs {
		return n.more.edges
	}
	return n.edges[:n.inputs]
}

// addSaved appends a saved tensor, or the result of a hook.
func (n *Node) addSaved(s saved) {
	if n.inputs != manyInputs && s.pack == nil && int(n.saves) < len(n.kept) {
		n.kept[n.saves] = s.x
		n.saves++
		return
	}
	e := n.growable()
	e.saved = append(e.saved, s)
}

// numSaved returns the number of saved tensors, including nil ones.
func (n *Node) numSaved() int {
	if n.inputs == manyInputs {
		return len(n.more.saved)
	}
	return int(n.saves)
}

// saved returns the saved tensor with index i.
func (n *Node) saved(i int) saved {
	if n.inputs == manyInputs {
		return n.more.saved[i]
	}
	return saved{x: n.kept[i]}
}

// forget releases all saved tensors.
func (n *Node) forget() {
	if n.inputs != manyInputs {
		releaseAll(n.kept[:n.saves])
		n.saves = 0
		return
	}
	for _, s := range n.more.saved {
		s.x.Release()
		if s.pack != nil {
			s.pack.release()
		}
	}
	clear(n.more.saved)
	n.more.saved = n.more.saved[:0]
	m := n.more.inner
	n.more.inner = nil
	m.release()
}

// addOutput appends the metadata of the next output; nil if there is no output.
func (n *Node) addOutput(x *Tensor) {
	var m gradientMeta
	if x != nil {
		m = gradientMeta{x.layout, x.dtype}
	}
	if n.inputs != manyInputs && n.yield == 0 {
		n.metas[0] = m
		n.yield++
		return
	}
	e := n.growable()
	e.metas = append(e.metas, m)
}

// output returns the shape and type of output i.
func (n *Node) output(i int32) *gradientMeta {
	if n.inputs == manyInputs {
		return &n.more.metas[i]
	}
	return &n.metas[i]
}

// incoming returns the gradients that arrived, one for each output.
func (n *Node) incoming() []*Tensor {
	if n.inputs != manyInputs {
		return n.grads[:]
	}
	e := n.more
	if len(e.grads) == 0 {
		e.grads = append(e.grads, make([]*Tensor, max(len(e.metas), 1))...)
	}
	return e.grads
}

// Arguments of SetGradFn: the inputs of an operator, some of which may be nil, and the tensors that its node saves for
// backward, with nil for missing or unneeded ones.
type (
	inputs  = []*Tensor
	saves   = []*Tensor
	outputs = []*Tensor
)

// SetGradFn makes the node of an operator with results outs, if autograd records the operator.
func (t *Tape) SetGradFn(outs outputs, name string, in inputs, kept saves, gradients func(b *Gradients)) {
	n := t.record(name, in...)
	if n == nil {
		return
	}
	n.save(kept...)
	n.setOutputs(outs...)
	n.apply = gradients
}

// SetGradFn makes the node of an operator with one result.
func (x *Tensor) SetGradFn(name string, in inputs, kept saves, gradients func(b *Gradients)) *Tensor {
	x.tape.SetGradFn(outputs{x}, name, in, kept, gradients)
	return x
}

// resetGradFn makes the node of an operator that has overwritten x, if autograd records the operator.
func (x *Tensor) resetGradFn(name string, in inputs, kept saves, gradients func(b *Gradients)) *Tensor {
	if n := x.tape.record(name, in...); n != nil {
		n.save(kept...)
		n.apply = gradients
		x.rebase(n)
	}
	return x
}

// tensorIf returns x if a condition holds, else nil.
func tensorIf(condition bool, x *Tensor) *Tensor {
	if condition {
		return x
	}
	return nil
}

// savedFactors returns the factors of a product that backward needs: each of them if the other one requires a gradient.
func savedFactors(a, b *Tensor) saves {
	return saves{tensorIf(b.requiresGrad, a), tensorIf(a.requiresGrad, b)}
}

// inputGradient is the gradient of one input.
type inputGradient struct {
	input int
	of    func(b *Gradients) *Tensor
}

// inputGradients returns a function that computes the needed gradients in the given order.
func inputGradients(partials ...inputGradient) func(b *Gradients) {
	return func(b *Gradients) {
		for _, p := range partials {
			if b.Needs(p.input) {
				b.Set(p.input, p.of(b))
			}
		}
	}
}

// formulas maps arguments to their derivatives, as formulas.
type formulas = map[string]string
