package trace

// map1 computes a new tensor element by element, without autograd.
func (t *Tape) map1(op string, d DType, flops int64, xs ...*Tensor) *Tensor {
	native := t.native
	if t.native == t.op {
		t.native = op
	}
	y := t.elementwise(d, xs...)
	t.launchElementwise(y, flops, xs...)
	t.native = native
	return y
}

// unary describes a pointwise operator of one tensor.
type unary struct {
	op, node string
	// keepIn and keepOut say what backward needs.
	keepIn, keepOut bool
	// full marks the operators that autocast runs in fp32.
	full  bool
	flops int64
	// back is the gradient, given grad and what was kept (x or y).
	back func(grad, kept *Tensor) *Tensor
}

func (x *Tensor) unary(u *unary) *Tensor {
	t := x.tape
	c := t.begin(u.op, x)
	in := x
	if u.full {
		in = t.full(x)
	}
	d := in.dtype
	if !d.IsFloat() && d != C64 {
		d = F32
	}
	y := t.map1(u.op, d, u.flops, in)
	u.track(t, in, y)
	return c.end(y)
}

// track records the autograd node of y = u(x).
func (u *unary) track(t *Tape, x, y *Tensor) {
	n := t.record(u.node, x)
	if n == nil {
		return
	}
	switch {
	case u.keepIn:
		n.save(x)
	case u.keepOut:
		n.save(y)
	default:
		n.keep(nil, false)
	}
	n.yields(y)
	back := u.back
	n.apply = func(b *backward) { b.give(0, back(b.grad, b.saved(0))) }
}

// unaryInPlace is the variant that overwrites x (exp_, relu_, ...). Operators
// that keep their input keep a clone of it.
func (x *Tensor) unaryInPlace(u *unary) *Tensor {
	t := x.tape
	c := t.begin(u.op+"_", x)
	if !t.tracked(x) {
		t.launchElementwise(x, u.flops, x)
		return c.end(x)
	}
	var original *Tensor
	if u.keepIn {
		original = c.let(x.cloneForInPlace())
	}
	t.launchElementwise(x, u.flops, x)
	n := t.record(u.node, x)
	switch {
	case u.keepIn:
		n.save(original)
	case u.keepOut:
		n.save(x)
	default:
		n.keep(nil, false)
	}
	back := u.back
	n.apply = func(b *backward) { b.give(0, back(b.grad, b.saved(0))) }
	x.rebase(n)
	return c.end(x)
}

// cloneForInPlace keeps the value of x that an in-place operator destroys.
func (x *Tensor) cloneForInPlace() *Tensor {
	y := x.emptyLike(x.dtype)
	x.tape.launchCopy(y, x)
	y.requiresGrad = x.requiresGrad
	return y
}

// kernel1 is a backward kernel over grad and another tensor: one fresh result.
func kernel1(op string, flops int64) func(grad, kept *Tensor) *Tensor {
	return func(grad, kept *Tensor) *Tensor {
		t := grad.tape
		c := t.begin(op, grad, kept)
		return c.end(t.map1(op, grad.dtype, flops, grad, kept))
	}
}

var (
	opExp     = unary{op: "exp", node: "ExpBackward0", keepOut: true, full: true, flops: 8, back: func(g, y *Tensor) *Tensor { return g.Mul(y) }}
	opLog     = unary{op: "log", node: "LogBackward0", keepIn: true, full: true, flops: 8, back: func(g, x *Tensor) *Tensor { return g.Div(x) }}
	opSqrt    = unary{op: "sqrt", node: "SqrtBackward0", keepOut: true, flops: 4, back: func(g, y *Tensor) *Tensor { return g.Div(y.MulScalar()) }}
	opTanh    = unary{op: "tanh", node: "TanhBackward0", keepOut: true, flops: 10, back: kernel1("tanh_backward", 3)}
	opSigmoid = unary{op: "sigmoid", node: "SigmoidBackward0", keepOut: true, flops: 8, back: kernel1("sigmoid_backward", 3)}
	opReLU    = unary{op: "relu", node: "ReluBackward0", keepOut: true, flops: 1, back: kernel1("threshold_backward", 1)}
	opGELU    = unary{op: "gelu", node: "GeluBackward0", keepIn: true, flops: 12, back: kernel1("gelu_backward", 16)}
)

// Exp is torch.exp.
func (x *Tensor) Exp() *Tensor { return x.unary(&opExp) }

// Log is torch.log.
func (x *Tensor) Log() *Tensor { return x.unary(&opLog) }

// Sqrt is torch.sqrt.
func (x *Tensor) Sqrt() *Tensor { return x.unary(&opSqrt) }

// Tanh is torch.tanh.
func (x *Tensor) Tanh() *Tensor { return x.unary(&opTanh) }

// Sigmoid is torch.sigmoid.
func (x *Tensor) Sigmoid() *Tensor { return x.unary(&opSigmoid) }

// ReLU is torch.relu.
func (x *Tensor) ReLU() *Tensor { return x.unary(&opReLU) }

// ReLUInPlace is torch.relu_.
func (x *Tensor) ReLUInPlace() *Tensor { return x.unaryInPlace(&opReLU) }

// GELU is torch.nn.functional.gelu.
func (x *Tensor) GELU() *Tensor { return x.unary(&opGELU) }

// Neg is -x.
func (x *Tensor) Neg() *Tensor {
	return x.withScalar("neg", "NegBackward0", x.dtype, (*Tensor).Neg)
}
