package trace

import "github.com/vprof/vprof/profiler/program"

// Softmax records torch.softmax(x, dim). Autocast runs it in fp32.
func (x *Tensor) Softmax(dim int) *Tensor {
	c := x.tape.Begin("softmax_int", x)
	return c.End(x.softmax(&opSoftmax, c.fullResult(x.dtype)))
}

// SoftmaxTo records torch.softmax(x, dim, dtype=d).
func (x *Tensor) SoftmaxTo(dim int, d DType) *Tensor {
	c := x.tape.Begin("softmax_int", x)
	return c.End(x.softmax(&opSoftmax, d))
}

// LogSoftmax records torch.log_softmax(x, dim). Autocast runs it in fp32.
func (x *Tensor) LogSoftmax(dim int) *Tensor {
	c := x.tape.Begin("log_softmax_int", x)
	return c.End(x.softmax(&opLogSoftmax, c.fullResult(x.dtype)))
}

// LogSoftmaxTo records torch.log_softmax(x, dim, dtype=d).
func (x *Tensor) LogSoftmaxTo(dim int, d DType) *Tensor {
	c := x.tape.Begin("log_softmax_int", x)
	return c.End(x.softmax(&opLogSoftmax, d))
}

// softmaxKind holds the differences between softmax and log_softmax.
type softmaxKind struct {
	op, node, backward string
	// product reports whether backward first multiplies the gradient by the output.
	product bool
}

var (
	opSoftmax    = softmaxKind{"softmax", "SoftmaxBackward0", "_softmax_backward_data", true}
	opLogSoftmax = softmaxKind{"log_softmax", "LogSoftmaxBackward0", "_log_softmax_backward_data", false}
)

// softmax records the operator with a result of type d. The kernel converts fp16 to fp32; other types are cast before.
func (x *Tensor) softmax(k *softmaxKind, d DType) *Tensor {
	c := x.tape.Begin(k.op, x)
	if x.dtype != d && (x.dtype != F16 || d != F32) {
		x = c.Bind(x.AsType(d))
	}
	y := c.t.Alloc(d, x.shape...)
	in := x.ContiguousUntracked()
	c.t.Launch(program.Softmax, 5*x.numel, []*Tensor{y}, []*Tensor{in})
	from := x.dtype
	return c.End(y.SetGradFn(k.node, inputs{x}, saves{y},
		func(b *Gradients) { b.Set(0, k.gradient(b.Grad, b.Saved(0), from)) }))
}

// gradient records _softmax_backward_data or _log_softmax_backward_data, with a result of the input's type.
func (k *softmaxKind) gradient(grad, y *Tensor, d DType) *Tensor {
	c := grad.tape.Begin(k.backward, grad, y)
	out := c.t.Alloc(d, grad.shape...)
	if k.product {
		grad = c.t.Map("mul", grad.dtype, 1, grad, y)
	}
	in := grad.ContiguousUntracked()
	c.t.Launch(program.Softmax, 4*y.numel, []*Tensor{out}, []*Tensor{in, y})
	return c.End(out)
}

// ContiguousUntracked returns x if it is contiguous, else a contiguous copy without autograd history.
func (x *Tensor) ContiguousUntracked() *Tensor {
	if x.IsContiguous() {
		return x
	}
	y := x.tape.Alloc(x.dtype, x.shape...)
	x.tape.LaunchCopy(y, x)
	return y
}
