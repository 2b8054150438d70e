package trace

import "github.com/vprof/vprof/profiler/program"

// Function is a torch.autograd.Function: Python code that autograd does not look
// into, with a backward of its own. Inputs and results may be nil.
type Function struct {
	// Name is the name of its node: "MatMul4BitBackward".
	Name string
	// Forward runs without autograd. Its frame holds the inputs by name.
	Forward func(f *Frame, ctx *FunctionContext, inputs []*Tensor) []*Tensor
	// Backward gives a gradient for each input, nil for none. Its frame holds the incoming gradients by name.
	Backward func(f *Frame, ctx *FunctionContext, grads []*Tensor) []*Tensor
	// AMP marks a Function with custom_fwd and custom_bwd, whose backward runs under the autocast of forward.
	AMP bool
}

// FunctionContext is the ctx of a [Function].
type FunctionContext struct {
	needs []bool
	saved []*Tensor
	attrs []*Tensor
	drop  func(i int)
}

// NeedsInputGrad returns ctx.needs_input_grad[i].
func (c *FunctionContext) NeedsInputGrad(i int) bool { return c.needs[i] }

// Inputs returns the number of arguments of the Function.
func (c *FunctionContext) Inputs() int { return len(c.needs) }

// SaveForBackward records ctx.save_for_backward(*xs).
func (c *FunctionContext) SaveForBackward(xs ...*Tensor) {
	for _, x := range xs {
		x.Retain()
	}
	c.saved = xs
}

// Saved records ctx.saved_tensors[i], in backward.
func (c *FunctionContext) Saved(i int) *Tensor { return c.saved[i] }

// Drop releases the i-th saved tensor in backward, as compiled code does after its last use.
func (c *FunctionContext) Drop(i int) { c.drop(i) }

// Keep records ctx.name = x: an attribute, which saved-tensor hooks ignore and which lives as long as the node.
func (c *FunctionContext) Keep(xs ...*Tensor) {
	for _, x := range xs {
		c.attrs = append(c.attrs, x.Retain())
	}
}

// Attribute returns the i-th attribute.
func (c *FunctionContext) Attribute(i int) *Tensor { return c.attrs[i] }

// Take returns the i-th attribute and releases it from the context (ctx.name = None); the frame holds it from now on.
func (c *FunctionContext) Take(f *Frame, i int) *Tensor {
	x := f.Bind(c.attrs[i])
	c.attrs[i] = nil
	x.Release()
	return x
}

// release releases the tensors that forward saved in the context.
func (c *FunctionContext) release() {
	releaseAll(c.saved)
	c.saved = nil
}

// Apply records fn.apply(*inputs).
func (f *Frame) Apply(fn *Function, inputs ...*Tensor) []*Tensor {
	t := f.t
	g := f.CallFrame(inputs...)
	ctx := &FunctionContext{needs: make([]bool, len(inputs))}
	for i, x := range inputs {
		ctx.needs[i] = t.RequiresGrad(x)
	}
	var ys []*Tensor
	state := t.casts.autocastState
	t.NoGrad(func() { ys = fn.Forward(g, ctx, inputs) })
	for _, y := range ys {
		y.Retain()
	}
	if n := t.record(fn.Name, inputs...); n != nil {
		n.save(ctx.saved...)
		if len(ctx.attrs) > 0 {
			n.growable().attrs = ctx.attrs
		}
		n.setOutputs(ys...)
		r := &functionCall{fn: fn, needs: ctx.needs, attrs: ctx.attrs, casts: state, place: t.place}
		n.apply = r.backward
	} else {
		releaseAll(ctx.attrs)
	}
	ctx.release()
	for _, y := range ys {
		if y != nil {
			y.refs--
		}
	}
	g.End(ys...)
	return ys
}

// functionCall is the state that a node of a [Function] needs to run.
type functionCall struct {
	fn    *Function
	needs []bool
	attrs []*Tensor
	casts autocastState
	place *place
}

// backward implements PyNode::apply.
func (r *functionCall) backward(b *Gradients) {
	t := b.t
	f := t.callFrame(b.Grads)
	t.place = r.place
	ctx := &FunctionContext{needs: r.needs, saved: b.kept, attrs: r.attrs, drop: b.dropSaved}
	run := func() []*Tensor { return r.fn.Backward(f, ctx, b.Grads) }
	var grads []*Tensor
	if r.fn.AMP {
		leave := t.casts.restore(r.casts)
		grads = run()
		leave()
	} else {
		grads = run()
	}
	for i, x := range grads {
		if x != nil && b.Needs(i) {
			b.Out[i] = x.Retain()
		}
	}
	f.End(grads...)
	for i, x := range grads {
		if x != nil && !b.Needs(i) && x.refs == 0 {
			x.die()
		}
	}
	b.EndStatement()
}

// Empty records torch.empty(shape) on the device.
func (t *Tape) Empty(d DType, shape ...int64) *Tensor {
	c := t.Begin("empty_memory_format")
	return c.End(t.Alloc(d, shape...))
}

// Kernel launches a kernel of Python code, such as Triton's, that reads and writes existing tensors and performs the
// given number of operations.
func (t *Tape) Kernel(name string, flops int64, writes, reads []*Tensor) {
	c := t.Begin(name)
	t.Launch(program.Elementwise, flops, writes, reads)
	c.Finish()
}

// Product launches a matrix product into an existing tensor (out=).
func (t *Tape) Product(name string, flops int64, writes, reads []*Tensor) {
	c := t.Begin(name)
	t.Launch(program.Matmul, flops, writes, reads)
	c.Finish()
}
