package trace

import "github.com/vprof/vprof/profiler/program"

// A Wrapper runs before and after the forward pass of a module, as forward hooks do.
type Wrapper interface {
	// Enter is called with the arguments before the module's code runs.
	Enter(args []*Tensor)
	// Inputs returns the type to which floating-point arguments are cast; cast reports whether they are.
	Inputs() (d DType, cast bool)
	// Leave is called with the results after the module's code has returned and its variables were released. The
	// arguments are still alive. Results may be nil.
	Leave(results []*Tensor)
}

// Wrap registers a wrapper for the calls of the module at path p.
func (t *Tape) Wrap(p *Path, w Wrapper) {
	if t.wrappers == nil {
		t.wrappers = map[*Path]Wrapper{}
	}
	t.wrappers[p] = w
}

// enterWrapper calls Enter of the wrapper of the module whose code the frame runs.
func (f *Frame) enterWrapper(p *Path) {
	w := f.t.wrappers[p]
	if w == nil || f.wrapper != nil {
		return
	}
	f.wrapper = w
	f.t.RunHook(func() { w.Enter(f.held) })
}

// Argument returns an argument of the frame's module in the compute type of its wrapper (FSDP's mixed precision).
func (f *Frame) Argument(x *Tensor) *Tensor {
	if f.wrapper == nil || !x.dtype.IsFloat() {
		return x
	}
	if d, cast := f.wrapper.Inputs(); cast && d != x.dtype {
		return f.Bind(x.To(d))
	}
	return x
}

// hook runs a Python function that autograd calls as a hook.
func (t *Tape) hook(f func()) {
	at := t.location()
	t.resume(codeLocation{op: "-", native: "-", place: t.placeOf("", ""), python: true})
	f()
	t.resume(at)
}

// OnGradient registers f to run in backward once the gradient of x is complete, before its node runs (register_hook).
func (x *Tensor) OnGradient(f func()) { x.tape.addHook(x.gradEdge().node, f) }

// OnAccumulated registers f to run in every backward after a gradient was added to the leaf x (a post hook of its
// AccumulateGrad).
func (x *Tensor) OnAccumulated(f func()) {
	n := x.gradEdge().node
	n.retain()
	x.tape.addHook(n, f)
}

func (t *Tape) addHook(n *Node, f func()) {
	if t.autograd.hooked == nil {
		t.autograd.hooked = map[*Node][]func(){}
	}
	n.flags |= isHooked
	t.autograd.hooked[n] = append(t.autograd.hooked[n], f)
}

// InBackward reports whether a backward pass is running (torch._C._current_graph_task_id).
func (t *Tape) InBackward() bool { return t.autograd.task != nil }

// AfterBackward registers f to run after the last node of the running backward pass (queue_callback of the engine).
func (t *Tape) AfterBackward(f func()) { t.autograd.task.after = append(t.autograd.task.after, f) }

// runHooked runs the node of a leaf, or the hooks before another node. done reports whether the node is done.
func (g *graphTask) runHooked(n *Node, grads []*Tensor) (done bool) {
	var hooks []func()
	if n.flags&isHooked != 0 {
		hooks = g.t.autograd.hooked[n]
	}
	leaf := n.flags&isLeafNode != 0
	if leaf {
		grad := grads[0]
		grads[0] = nil
		n.leaf.accumulate(grad)
	}
	for _, f := range hooks {
		g.t.hook(f)
	}
	if leaf {
		n.release()
		return true
	}
	if hooks != nil { // another node may get the memory of this one
		delete(g.t.autograd.hooked, n)
		n.flags &^= isHooked
	}
	return false
}

// BeforeInputs inserts an autograd.Function that returns its inputs behind xs: f runs in backward when the gradients of
// all xs exist. Until restore is called, operators on xs use the Function's results. Tensors without gradients are left
// unchanged.
func (t *Tape) BeforeInputs(name string, f func(), xs []*Tensor) (restore func()) {
	var inputs []*Tensor
	for _, x := range xs {
		if x != nil && x.requiresGrad {
			inputs = append(inputs, x)
		}
	}
	n := t.record(name, inputs...)
	if n == nil {
		return func() {}
	}
	type maker struct {
		node *Node
		out  int32
	}
	made := make([]maker, len(inputs))
	for i, x := range inputs {
		made[i] = maker{x.node, x.out}
		n.addOutput(x)
		n.retain()
		x.Retain()
		x.node, x.out = n, int32(i)
	}
	n.apply = func(b *Gradients) {
		t.hook(f)
		for i, g := range b.Grads {
			if g == nil {
				g = b.zeros(i)
			}
			b.Out[i] = g.Retain()
		}
		b.EndStatement()
	}
	return func() {
		for i, x := range inputs {
			n.release()
			x.node, x.out = made[i].node, made[i].out
			x.Release()
		}
	}
}

// zeros returns a zero gradient for an output without a gradient, as autograd Functions receive it.
func (b *Gradients) zeros(i int) *Tensor {
	m := b.input(i)
	x := b.t.newTensor(m.dtype, m.layout)
	b.t.LaunchFill(x)
	return x
}

// TakeGrad removes and returns a leaf's gradient; nil if it has none. The caller must release it.
func (x *Tensor) TakeGrad() *Tensor {
	g := x.grad
	x.grad = nil
	return g
}

// offload is torch.autograd.graph.save_on_cpu: each saved tensor is copied to host memory, once for each time that it
// is saved. TRL's OffloadActivations leaves parameters on the device.
type offload struct{ leavesParameters bool }

// hostCopy is a saved tensor in host memory.
type hostCopy struct {
	tape         *Tape
	dtype        DType
	layout       *layout
	requiresGrad bool
	trues        int64 // of its storage
}

// SaveOnCPU runs f as under torch.autograd.graph.save_on_cpu(), or under TRL's OffloadActivations(), which leaves
// parameters where they are.
func (t *Tape) SaveOnCPU(leavesParameters bool, f func()) {
	t.autograd.hooks.push(offload{leavesParameters})
	f()
	t.autograd.hooks.pop()
}

// SaveOnGPU runs f without the hooks of [Tape.SaveOnCPU], as code after their context runs.
func (t *Tape) SaveOnGPU(f func()) {
	hooks := t.autograd.hooks.stack
	t.autograd.hooks.stack = nil
	f()
	t.autograd.hooks.stack = hooks
}

func (o offload) pack(t *Tape, x *Tensor) saved {
	if x.store.blank || o.leavesParameters && x.class() == program.Weights {
		return saved{x: holdForBackward(x)}
	}
	l := x.layout
	if !x.dense { // it is laid out in rows on the device first
		l = t.contiguous(x.shape)
		c := t.Begin("clone", x)
		t.LaunchCopy(t.Alloc(x.dtype, x.shape...), x)
		c.Finish()
	}
	t.saveOnHost(x.Bytes(), 1)
	return saved{pack: &packedTensor{host: &hostCopy{t, x.dtype, l, x.requiresGrad, x.store.trues}}}
}

// release removes the host copy when its node releases the saved tensor.
func (h *hostCopy) release() { h.tape.saveOnHost(h.layout.numel*h.dtype.Size(), -1) }

// copyBack copies the tensor back to the device. The caller must release it.
func (h *hostCopy) copyBack(t *Tape) *Tensor {
	c := t.Begin("to_device")
	x := t.newTensor(h.dtype, h.layout)
	x.requiresGrad, x.store.trues = h.requiresGrad, h.trues
	t.LaunchFill(x)
	x.Retain()
	c.Finish()
	return x
}

// OnGradients registers f to run in backward once the gradients of all xs that require one exist
// (register_multi_grad_hook). The hooks hold the AccumulateGrad nodes of leaves, so until remove is called, leaves
// among xs stay alive with their gradients.
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
