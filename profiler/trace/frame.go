package trace

import "slices"

// Frame is a Python frame. It holds the tensors that are bound to variables of the model's code. Such a tensor lives
// until the variable is reassigned or the frame ends. Another tensor is freed right after the operator that uses it.
//
// y := f.Bind(conv.Forward(f, x))   // y = conv(x)        f.Set(&y, y.ReLU())              // y = relu(y)
type Frame struct {
	t     *Tape
	names []*Tensor
	held  []*Tensor // the argument tuple of a module call
	// wrapper is the wrapper (FSDP, DDP) of the module that runs in the frame; nil for most.
	wrapper Wrapper
	// style is the way in which the frame's module receives its argument under tensor parallelism.
	style              Style
	python, subclassed bool
	place              *place
	// placed reports whether the frame's module has its own GPU; before is the caller's GPU, see [Tape.SetDeviceMap].
	placed bool
	before StagePart
}

// Frame opens the outermost Python frame of a recording.
func (t *Tape) Frame() *Frame { return t.enter() }

func (t *Tape) enter() *Frame {
	var f *Frame
	if last := len(t.frames) - 1; last >= 0 {
		f, t.frames = t.frames[last], t.frames[:last]
		f.python, f.place, f.subclassed = t.python, t.place, t.ranks.subclassed
	} else {
		f = &Frame{t: t, python: t.python, place: t.place, subclassed: t.ranks.subclassed}
	}
	t.python = true
	return f
}

// Tape returns the tape on which the frame is recorded.
func (f *Frame) Tape() *Tape { return f.t }

// Bind binds x to a new variable, as an assignment does.
func (f *Frame) Bind(x *Tensor) *Tensor {
	x.checkReferences()
	f.names = append(f.names, x.Retain())
	return x
}

// BindEach binds each of several results to a variable; nil ones (None) are skipped.
func (f *Frame) BindEach(xs ...*Tensor) {
	for _, x := range xs {
		if x != nil {
			f.Bind(x)
		}
	}
}

// BindAll binds each of xs to a variable, as a list in a variable holds them.
func (f *Frame) BindAll(xs []*Tensor) []*Tensor {
	for _, x := range xs {
		f.Bind(x)
	}
	return xs
}

// BindList binds a list of tensors to a variable. When that ends, the list releases its last element first.
func (f *Frame) BindList(xs []*Tensor) []*Tensor {
	for _, x := range slices.Backward(xs) {
		f.Bind(x)
	}
	return xs
}

// DelList deletes a variable that BindList has bound to a list.
func (f *Frame) DelList(xs []*Tensor) {
	if len(xs) == 0 {
		return
	}
	i := slices.Index(f.names, xs[len(xs)-1])
	if i < 0 {
		panic("trace: DelList of a list that is not bound")
	}
	f.names = slices.Delete(f.names, i, i+len(xs))
	for _, x := range slices.Backward(xs) {
		x.Release()
	}
}

// Discard frees the unused results of an expression statement.
func (f *Frame) Discard(xs ...*Tensor) { discardTensors(xs) }

func discardTensors(xs []*Tensor) {
	for _, x := range xs {
		if x.refs == 0 {
			x.releaseResources()
		}
	}
}

// Output passes a model's outputs to the training loop. The first is the loss; nil if the model computes none. The loop
// may keep the outputs ([Tape.KeepOutputs]). Otherwise all except the loss are freed unless something else holds them.
func (t *Tape) Output(xs ...*Tensor) {
	t.AddOutputs(xs[1:]...)
	if xs[0] == nil {
		xs = xs[1:]
	}
	if t.keepOutputs != nil {
		t.keepOutputs(xs)
		return
	}
	discardTensors(xs[1:])
}

// KeepOutputs sets the function that binds models' outputs to variables ([Tape.Output]); nil frees the outputs.
func (t *Tape) KeepOutputs(keep func(xs []*Tensor)) { t.keepOutputs = keep }

// Set assigns x to the variable *p; the tensor that it held loses a reference.
func (f *Frame) Set(p **Tensor, x *Tensor) *Tensor {
	x.checkReferences()
	x.Retain()
	for i, old := range f.names {
		if old == *p {
			f.names[i] = x
			*p = x
			old.Release()
			return x
		}
	}
	f.names = append(f.names, x)
	*p = x
	return x
}

// Del deletes variables, as Python's del does.
func (f *Frame) Del(ps ...**Tensor) {
	for _, p := range ps {
		f.unbind(*p)
		*p = nil
	}
}

// End closes the frame and releases its variables, in the order in which they were bound. Results outlive the frame.
func (f *Frame) End(results ...*Tensor) {
	for _, r := range results {
		r.checkReferences()
		r.Retain()
	}
	releaseAll(f.names)
	f.names = f.names[:0]
	t := f.t
	if w := f.wrapper; w != nil {
		f.wrapper = nil
		t.RunHook(func() { w.Leave(results) })
	}
	t.python, t.place, t.ranks.subclassed, f.style = f.python, f.place, f.subclassed, Style{}
	releaseAll(f.held)
	f.held = f.held[:0]
	if f.placed {
		t.ranks.pipeline.part, f.placed = f.before, false
	}
	t.frames = append(t.frames, f)
	for _, r := range results {
		if r != nil {
			r.refs--
			if !t.python && r.refs == 0 {
				t.list(r)
			}
		}
	}
}

// Return closes the frame as [Frame.End] does, and returns its only result.
func (f *Frame) Return(result *Tensor) *Tensor {
	f.End(result)
	return result
}

// ReturnPair closes the frame as [Frame.End] does, and returns its two results.
func (f *Frame) ReturnPair(a, b *Tensor) (*Tensor, *Tensor) {
	f.End(a, b)
	return a, b
}

// Module is a callable with one tensor as its argument, like nn.Module.__call__.
type Module interface {
	Forward(f *Frame, x *Tensor) *Tensor
}

// Call calls m with x. The argument tuple holds x until the call returns.
func (f *Frame) Call(m Module, x *Tensor) *Tensor {
	g := f.ModuleFrame(m, x)
	return g.Return(m.Forward(g, g.ParallelInput(g.ToModuleGPU(x))))
}

// CallFrame opens the frame of a module call with any number of arguments. The caller runs the module's code and ends
// the frame. Nil arguments are skipped.
func (f *Frame) CallFrame(args ...*Tensor) *Frame { return f.t.callFrame(args) }

func (t *Tape) callFrame(args []*Tensor) *Frame {
	g := t.functionFrame(args...)
	g.held = append(g.held, g.names...)
	for _, x := range g.held {
		x.Retain()
	}
	return g
}

// Pass assigns the result of each module to the variable *x in turn: x = a(x); x = b(x).
func (f *Frame) Pass(x **Tensor, modules ...Module) {
	for _, m := range modules {
		f.Set(x, f.Call(m, *x))
	}
}

// ModuleFrame opens the frame of a call of module m, see [Frame.CallFrame] and [Frame.SetModule].
func (f *Frame) ModuleFrame(m any, args ...*Tensor) *Frame {
	g := f.CallFrame(args...)
	g.SetModule(m)
	return g
}

// FunctionFrame opens the frame of a plain Python function. Only the function holds its arguments, so reassigning a
// parameter frees the argument.
func (f *Frame) FunctionFrame(args ...*Tensor) *Frame { return f.t.functionFrame(args...) }

func (t *Tape) functionFrame(args ...*Tensor) *Frame {
	g := t.enter()
	for _, x := range args {
		if x != nil {
			x.checkReferences()
			g.names = append(g.names, x.Retain())
		}
	}
	return g
}

// SetModule sets the module whose code the frame runs, if the module has a path.
func (f *Frame) SetModule(m any) {
	if p, ok := m.(interface{ ModulePath() *Path }); ok {
		f.t.place = f.t.placeOn(p.ModulePath())
		if f.t.wrappers != nil {
			f.enterWrapper(p.ModulePath())
		}
		if f.t.ranks.spread != nil {
			f.enterModule(p.ModulePath())
		}
		if f.t.ranks.styles != nil {
			f.style = f.t.ranks.styles[p.ModulePath()]
		}
	}
}

// SetAll assigns xs to the variables *ps, as reassigning the elements of a list or a dict does.
func (f *Frame) SetAll(ps *[]*Tensor, xs []*Tensor) {
	old := *ps
	*ps = f.BindAll(xs)
	for _, x := range old {
		f.unbind(x)
	}
}

// unbind removes the variable that holds x.
func (f *Frame) unbind(x *Tensor) {
	i := slices.Index(f.names, x)
	if i < 0 {
		panic("trace: a name that is not bound is unbound")
	}
	f.names = slices.Delete(f.names, i, i+1)
	x.Release()
}

// A Slot is an entry of a Python dict that is passed to calls, which assign it. Frames and checkpoints hold it like a
// tensor. When the last of them releases it, its tensor is released, too.
type Slot struct{ handle *Tensor }

// NewSlot binds an empty slot to a variable.
func (f *Frame) NewSlot() *Slot { return &Slot{f.Bind(f.t.Empty(F32, 0))} }

// Handle returns the tensor that a checkpoint captures to hold the slot.
func (s *Slot) Handle() *Tensor { return s.handle }

// Fill sets the slot's tensor to x.
func (s *Slot) Fill(x *Tensor) {
	if s.handle.tape.autograd.hooks.unwinding {
		return
	}
	old := s.handle.view
	s.handle.view = x.Retain()
	old.Release()
}

// Value returns the slot's tensor.
func (s *Slot) Value() *Tensor { return s.handle.view }
