package trace

import "github.com/vprof/vprof/profiler/program"

// Softmax records torch.softmax(x, dim). Autocast runs it in fp32.
func (x *Tensor) Softmax(dim int) *Tensor {
	c := x.tape.begin("softmax_int", x)
	return c.end(x.softmax(&opSoftmax, c.fullResult(x.dtype)))
}

// SoftmaxTo records torch.softmax(x, dim, dtype=d).
func (x *Tensor) SoftmaxTo(dim int, d DType) *Tensor {
	c := x.tape.begin("softmax_int", x)
	return c.end(x.softmax(&opSoftmax, d))
}

// LogSoftmax records torch.log_softmax(x, dim). Autocast runs it in fp32.
func (x *Tensor) LogSoftmax(dim int) *Tensor {
	c := x.tape.begin("log_softmax_int", x)
	return c.end(x.softmax(&opLogSoftmax, c.fullResult(x.dtype)))
}

// LogSoftmaxTo records torch.log_softmax(x, dim, dtype=d).
func (x *Tensor) LogSoftmaxTo(dim int, d DType) *Tensor {
	c := x.tape.begin("log_softmax_int", x)
	return c.end(x.softmax(&opLogSoftmax, d))
}

// softmaxKind tells the two kernels apart.
type softmaxKind struct {
	op, node, backward string
	// product: backward multiplies the gradient by the output first.
	product bool
}

var (
	opSoftmax    = softmaxKind{"softmax", "SoftmaxBackward0", "_softmax_backward_data", true}
	opLogSoftmax = softmaxKind{"log_softmax", "LogSoftmaxBackward0", "_log_softmax_backward_data", false}
)

// softmax computes in type d. The kernel itself goes from fp16 to fp32; other
// types are converted before.
func (x *Tensor) softmax(k *softmaxKind, d DType) *Tensor {
	c := x.tape.begin(k.op, x)
	if x.dtype != d && (x.dtype != F16 || d != F32) {
		x = c.let(x.to(d))
	}
	y := c.t.empty(d, x.shape...)
	in := x.contiguousUntracked()
	c.t.launch(program.Softmax, 5*x.numel, []*Tensor{y}, []*Tensor{in})
	from := x.dtype
	return c.end(y.derived(k.node, inputs{x}, saves{y},
		func(b *backward) { b.give(0, k.gradient(b.grad, b.saved(0), from)) }))
}

// gradient records _softmax_backward_data: the result comes in the type of the
// input.
func (k *softmaxKind) gradient(grad, y *Tensor, d DType) *Tensor {
	c := grad.tape.begin(k.backward, grad, y)
	out := c.t.empty(d, grad.shape...)
	if k.product {
		grad = c.t.map1("mul", grad.dtype, 1, grad, y)
	}
	in := grad.contiguousUntracked()
	c.t.launch(program.Softmax, 4*y.numel, []*Tensor{out}, []*Tensor{in, y})
	return c.end(out)
}

func (x *Tensor) contiguousUntracked() *Tensor {
	if x.isContiguous() {
		return x
	}
	y := x.tape.empty(x.dtype, x.shape...)
	x.tape.launchCopy(y, x)
	return y
}
