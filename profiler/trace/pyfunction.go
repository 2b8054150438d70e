package trace

import "github.com/vprof/vprof/profiler/program"

// Function is a torch.autograd.Function: Python code with its own backward, whose operators autograd does not record.
// Inputs and results may be nil.
type Function struct {
	// Name is the class of the autograd node, such as "MatMul4BitBackward".
	Name string
	// Forward runs without autograd. Its frame holds the inputs by name.
	Forward func(f *Frame, ctx *FunctionContext, inputs []*Tensor) []*Tensor
	// Backward returns a gradient for each input; nil means none. Its frame holds the incoming gradients by name.
	Backward func(f *Frame, ctx *FunctionContext, grads []*Tensor) []*Tensor
	// AMP reports whether forward and backward have the decorators custom_fwd and custom_bwd: backward runs under the
	// autocast state of forward.
	AMP bool
}

// FunctionContext is the ctx argument of a [Function]'s forward and backward.
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

// Saved returns ctx.saved_tensors[i] in backward.
func (c *FunctionContext) Saved(i int) *Tensor { return c.saved[i] }

// Drop releases the i-th saved tensor in backward, as code compiled by torch.compile does after its last use.
func (c *FunctionContext) Drop(i int) { c.drop(i) }

// Keep records ctx.name = x: an attribute, which lives as long as the node and which saved-tensor hooks do not replace.
func (c *FunctionContext) Keep(xs ...*Tensor) {
	for _, x := range xs {
		c.attrs = append(c.attrs, x.Retain())
	}
}

// Attribute returns the i-th tensor that [FunctionContext.Keep] stored.
func (c *FunctionContext) Attribute(i int) *Tensor { return c.attrs[i] }

// Take removes the i-th attribute from the context (ctx.name = None) and returns it; the frame holds it from now on.
func (c *FunctionContext) Take(f *Frame, i int) *Tensor {
	x := f.Bind(c.attrs[i])
	c.attrs[i] = nil
	x.Release()
	return x
}

// release releases the tensors that forward passed to SaveForBackward.
func (c *FunctionContext) release() {
	releaseAll(c.saved)
	c.saved = nil
}

// Apply records fn.apply(*inputs) and returns its results.
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

// functionCall is the state that backward needs of a call of a [Function].
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
			x.releaseResources()
		}
	}
	b.EndStatement()
}

// Empty records torch.empty(shape) on the device.
func (t *Tape) Empty(d DType, shape ...int64) *Tensor {
	c := t.Begin("empty_memory_format")
	return c.End(t.Alloc(d, shape...))
}

// Kernel launches a kernel of Python code, such as a Triton kernel, that reads and writes existing tensors. flops is
// its number of operations.
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
