package trace

import "github.com/vprof/vprof/profiler/program"

// accumulate records AccumulateGrad. The first gradient becomes the leaf's gradient if nothing else refers to it and
// its layout matches the leaf's; otherwise it is copied. Later gradients are added in place. It takes ownership of g.
func (x *Tensor) accumulate(g *Tensor) {
	if g == nil {
		return
	}
	c := x.tape.Begin("AccumulateGrad")
	switch {
	case x.grad != nil:
		x.grad.AddInPlace(g)
	case g.refs == 1 && g.obeysLayoutOf(x):
		x.grad = g.withoutHistory().Retain()
		x.grad.classify(program.Gradients)
	default:
		x.grad = g.cloneLike(x).Retain()
		x.grad.classify(program.Gradients)
	}
	g.Release()
	c.Finish()
}

// obeysLayoutOf implements utils::obeys_layout_contract.
func (g *Tensor) obeysLayoutOf(x *Tensor) bool {
	if !x.isDense() {
		return g.IsContiguous()
	}
	for i, s := range g.shape {
		if s != 1 && g.strides[i] != x.strides[i] {
			return false
		}
		if s == 1 && g.strides[i] == 0 {
			return false
		}
	}
	return true
}

// cloneLike records utils::clone_obey_contract.
func (g *Tensor) cloneLike(x *Tensor) *Tensor {
	t := g.tape
	t.native = "new_empty_strided"
	var y *Tensor
	if x.isDense() {
		y = t.newTensor(x.dtype, x.layout)
	} else {
		y = t.Alloc(x.dtype, x.shape...)
	}
	t.LaunchCopy(y, g)
	return y
}

// ZeroGrad releases the gradient of a leaf, as zero_grad(set_to_none=True) does.
func (x *Tensor) ZeroGrad() {
	g := x.grad
	x.grad = nil
	g.Release()
}

// Leaf makes x a leaf that requires a gradient: a parameter.
func (x *Tensor) Leaf() *Tensor {
	x.requiresGrad = true
	return x
}

// RequireGrad makes x require gradients if on is set, as requires_grad_ does.
func (x *Tensor) RequireGrad(on bool) { x.requiresGrad = x.requiresGrad || on }

// New returns a new tensor that Python code outside of the model creates, such as a batch or a parameter moved to the
// device. op is the operator that PyTorch calls.
func (t *Tape) New(op string, c program.Class, d DType, shape ...int64) *Tensor {
	if t.unplaced && c == program.Weights {
		return t.newUnallocated(d, t.contiguous(shape))
	}
	var x *Tensor
	t.withOp(op, op, c, func() { x = t.Alloc(d, shape...) })
	return x
}

// NewAt returns a new tensor like New, created by a module of the model.
func (t *Tape) NewAt(p *Path, op string, c program.Class, d DType, shape ...int64) *Tensor {
	var x *Tensor
	withValue(&t.place, t.placeOn(p), func() { x = t.New(op, c, d, shape...) })
	return x
}

// NewStrided returns a new tensor like New with the given strides; nil is contiguous.
func (t *Tape) NewStrided(op string, c program.Class, d DType, shape, strides []int64) *Tensor {
	x := t.New(op, c, d, shape...)
	if len(strides) > 0 {
		x.layout = t.layout(shape, strides)
	}
	return x
}

// NewChannelsLast returns a new tensor like New in channels-last layout.
func (t *Tape) NewChannelsLast(op string, c program.Class, d DType, shape ...int64) *Tensor {
	x := t.New(op, c, d, shape...)
	x.layout = t.channelsLast(shape)
	return x
}

// SetGrad sets the gradient of a leaf, as assigning to .grad does.
func (x *Tensor) SetGrad(g *Tensor) {
	x.AccumulateInto(g)
	g.classify(program.Gradients)
}

// AccumulateInto sets the gradient of a leaf to a view of a larger buffer. Backward adds to it in place.
func (x *Tensor) AccumulateInto(g *Tensor) {
	x.ZeroGrad()
	x.grad = g.Retain()
}

// NewGradient allocates a gradient of x, in the layout of x.
func (x *Tensor) NewGradient() *Tensor { return x.AllocLike(x.dtype) }

// Hold keeps a reference to x until the end of the recording, as a model or a data loader does.
func (t *Tape) Hold(x *Tensor) *Tensor {
	t.facts.input(t, x)
	return x.Retain()
}

// Release releases tensors that Hold holds, in the given order; nil ones are skipped.
func (*Tape) Release(xs ...*Tensor) { releaseAll(xs) }
