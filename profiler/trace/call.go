package trace

// Call is a running call of an operator, a C++ function. Its temporaries live until the end of the full expression that
// created them, and its locals until the call ends. Both are destroyed in reverse order of construction. Python frames
// (see [Frame]) release a temporary as soon as it was used.
//
// An operator reads like its source in ATen. [Tape.Begin] enters it; [Call.Bind], [Call.Set] and [Call.Drop] handle its
// locals; [Tape.Alloc] and [Tape.Launch] allocate results and run kernels; [Tensor.SetGradFn] sets its autograd node;
// [Call.End] returns its result:
//
// c := x.Tape().Begin("linalg_inv", x)    y := c.Bind(c.Tape().Alloc(x.DType(), x.Shape()...))
// c.Tape().Launch(program.Matmul, flops, []*Tensor{y}, []*Tensor{x})      return
// c.End(y.SetGradFn("LinalgInvBackward0", []*Tensor{x}, []*Tensor{y}, gradient))
type Call struct {
	t      *Tape
	scope  codeScope
	caller *codeScope // to be restored
	casts  bool       // autocast is in force for the caller
	noGrad bool       // autograd is off for the caller
	// unwinding reports whether the caller runs without allocating, since a recomputation has all it needs.
	unwinding bool
	part      StagePart // where the caller runs, see [Tape.SetDeviceMap]
	temps     int       // where its temporaries begin on the tape's stack
	locals    int       // where its locals begin
	args      [4]*Tensor
	nargs     int
	list      []*Tensor // an argument that is a list of tensors
}

// Tape returns the tape on which the call is recorded.
func (c *Call) Tape() *Tape { return c.t }

// activation returns the next entry of the stack of running calls.
func (t *Tape) activation() *Call {
	if t.depth == len(t.calls) {
		t.calls = append(t.calls, &Call{t: t})
	}
	c := t.calls[t.depth]
	t.depth++
	c.temps, c.locals, c.nargs, c.list = len(t.temps), len(t.locals), 0, nil
	return c
}

// Begin starts a call of operator op with args; nil arguments are skipped. The call is valid until it ends.
func (t *Tape) Begin(op string, args ...*Tensor) *Call {
	c := t.activation()
	caller, s := t.codeScope, &c.scope
	c.caller, c.casts, c.part = caller, t.casts.enabled, t.ranks.pipeline.part
	c.noGrad, c.unwinding = t.autograd.noGrad, t.autograd.hooks.unwinding
	for _, x := range args {
		if x != nil {
			x.checkReferences()
			x.refs++
			c.args[c.nargs] = x
			c.nargs++
		}
	}
	if t.ranks.spread != nil {
		t.runWith(c.args[:c.nargs])
	}
	s.op, s.native, s.python, s.point = caller.op, op, false, caller.point
	if caller.python {
		s.op, t.fromPython = op, true
	} else if s.op == "" {
		s.op = op
	}
	if op != autocastCopy {
		t.activations++
		s.point = recordingPoint{ordinal: t.activations, buffers: len(t.prog.Buffers)}
		t.autograd.hooks.callBegan(t.activations)
		if t.activations%checkEvery == 0 {
			t.stopIfDone()
		}
	}
	t.codeScope = s
	return c
}

// BeginList starts a call of operator op with a list of tensors.
func (t *Tape) BeginList(op string, list []*Tensor) *Call {
	c := t.Begin(op)
	for _, x := range list {
		x.checkReferences()
		x.refs++
	}
	if c.list = list; t.ranks.spread != nil {
		t.runWith(list)
	}
	return c
}

// BelowAutocast turns autocast off for the rest of the call: after its arguments are cast, nested operators keep their
// types.
func (c *Call) BelowAutocast() { c.t.casts.enabled = false }

// WithoutGrad turns autograd off for the rest of the call.
func (c *Call) WithoutGrad() { c.t.autograd.noGrad = true }

// EndStatement ends a C++ full expression: temporaries without other references are freed.
func (c *Call) EndStatement() {
	t := c.t
	for i := len(t.temps) - 1; i >= c.temps; i-- {
		x := t.temps[i]
		x.listed--
		switch {
		case x.dead && x.listed == 0:
			t.retire(x)
		case x.refs == 0:
			x.releaseResources()
		}
	}
	t.temps = t.temps[:c.temps]
}

// Bind assigns the value of an expression to a C++ local variable and ends the statement.
func (c *Call) Bind(x *Tensor) *Tensor {
	c.t.locals = append(c.t.locals, x.Retain())
	c.EndStatement()
	return x
}

// BindAll assigns tensors, of which some may be nil, to a C++ vector. Its first element is destroyed first.
func (c *Call) BindAll(xs []*Tensor) {
	for i := len(xs) - 1; i >= 0; i-- {
		if xs[i] != nil {
			c.t.locals = append(c.t.locals, xs[i].Retain())
		}
	}
	c.EndStatement()
}

// Set assigns x to the local variable *p, which [Call.Bind] has bound.
func (c *Call) Set(p **Tensor, x *Tensor) *Tensor {
	x.Retain()
	for i := len(c.t.locals) - 1; i >= c.locals; i-- {
		if c.t.locals[i] == *p {
			c.t.locals[i] = x
			(*p).Release()
			*p = x
			c.EndStatement()
			return x
		}
	}
	panic("trace: set of a local that was never bound")
}

// Drop releases a local variable before its function ends (std::move, reset).
func (c *Call) Drop(x *Tensor) {
	for i := len(c.t.locals) - 1; i >= c.locals; i-- {
		if c.t.locals[i] == x {
			c.t.locals = append(c.t.locals[:i], c.t.locals[i+1:]...)
			x.Release()
			return
		}
	}
	panic("trace: drop of a local that was never bound")
}

// DropAll releases local variables in the given order, as the destructor of a tuple does; nil ones are skipped.
func (c *Call) DropAll(xs ...*Tensor) {
	for _, x := range xs {
		if x != nil {
			c.Drop(x)
		}
	}
}

// End ends the call and returns its result to the caller.
func (c *Call) End(out *Tensor) *Tensor {
	out.refs++
	c.leave()
	c.unwind(out)
	c.releaseArguments()
	out.refs--
	c.returnTo(out)
	return out
}

// unwind frees a result at once if a recomputation got all it needs in this call: PyTorch then raises an exception.
func (c *Call) unwind(out *Tensor) {
	if c.t.autograd.hooks.stoppedByResult && !c.unwinding && out.refs == 1 {
		out.releaseResources()
	}
}

// EndAll ends the call and returns several results, of which some may be nil.
func (c *Call) EndAll(outs ...*Tensor) []*Tensor {
	for _, x := range outs {
		x.Retain()
	}
	c.leave()
	for _, x := range outs {
		if x != nil {
			c.unwind(x)
		}
	}
	c.releaseArguments()
	for _, x := range outs {
		if x != nil {
			x.refs--
			c.returnTo(x)
		}
	}
	return outs
}

// EndPair ends the call and returns two results, either of which may be nil.
func (c *Call) EndPair(x, y *Tensor) (*Tensor, *Tensor) {
	c.EndAll(x, y)
	return x, y
}

// returnTo passes a result to the caller. A C++ caller holds it until the end of its full expression, a Python caller
// until it is used. If the result is an argument, the caller already holds it.
func (c *Call) returnTo(x *Tensor) {
	if c.caller.python || x.refs != 0 || x.dead {
		return
	}
	for _, a := range c.args[:c.nargs] {
		if a == x {
			return
		}
	}
	c.t.list(x)
}

// Finish ends the call without a result. It releases temporaries first, then locals, then the arguments, which are
// freed if only a Python caller held them.
func (c *Call) Finish() {
	c.leave()
	c.releaseArguments()
}

// leave releases temporaries and locals and returns to the caller.
func (c *Call) leave() {
	t := c.t
	if len(t.temps) > c.temps {
		c.EndStatement()
	}
	for len(t.locals) > c.locals {
		last := len(t.locals) - 1
		x := t.locals[last]
		t.locals = t.locals[:last]
		x.Release()
	}
	t.depth--
	t.codeScope, t.casts.enabled, t.autograd.noGrad = c.caller, c.casts, c.noGrad
	if t.ranks.spread != nil {
		t.ranks.pipeline.part = c.part
	}
}

func (c *Call) releaseArguments() {
	for _, x := range c.args[:c.nargs] {
		c.releaseArgument(x)
	}
	for i := len(c.list) - 1; i >= 0; i-- { // as Python releases a list's elements
		c.releaseArgument(c.list[i])
	}
}

func (c *Call) releaseArgument(x *Tensor) {
	x.refs--
	if x.refs == 0 && c.caller.python {
		x.releaseResources()
	}
}

// exception is a Python exception that the recorded step raises. It is a Go panic through the model's code.
type exception struct{ err error }

// Raise ends the recording as a Python exception ends the training step. The running call of [Tape.Try] returns err.
func (t *Tape) Raise(err error) { panic(exception{err}) }

// Try runs f and returns the error that f raised; nil if none.
func (t *Tape) Try(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(exception)
			what, described := r.(string)
			switch {
			case ok:
				err = e.err
			case described && len(t.ranks.splits) > 0:
				err = misfit(what)
			default:
				panic(r)
			}
		}
	}()
	f()
	return nil
}
