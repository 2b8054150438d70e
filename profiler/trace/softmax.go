package trace

import "github.com/vprof/vprof/profiler/program"

// Softmax is torch.softmax(x, dim).
func (x *Tensor) Softmax(dim int) *Tensor {
	return x.softmaxLike("softmax_int", "softmax", "SoftmaxBackward0", func(b *backward) {
		b.give(0, softmaxBackward(b.grad, b.saved(0)))
	})
}

// LogSoftmax is torch.log_softmax(x, dim).
func (x *Tensor) LogSoftmax(dim int) *Tensor {
	return x.softmaxLike("log_softmax_int", "log_softmax", "LogSoftmaxBackward0", func(b *backward) {
		b.give(0, kernel1("_log_softmax_backward_data", 3)(b.grad, b.saved(0)))
	})
}

// softmaxLike: autocast runs it in fp32 by its dtype argument, so that a half
// input is not copied.
func (x *Tensor) softmaxLike(op, native, node string, back func(*backward)) *Tensor {
	t := x.tape
	c := t.begin(op, x)
	t.native = native
	d := x.dtype
	if t.casts.enabled && d.IsHalf() {
		d = F32
	}
	in := x
	if !x.isContiguous() {
		in = c.let(x.contiguousUntracked())
	}
	y := t.empty(d, x.shape...)
	t.launch(program.Op{Work: program.Softmax, FLOPs: 5 * x.numel}, []*Tensor{y}, []*Tensor{in})
	if n := t.record(node, x); n != nil {
		n.save(y)
		n.yields(y)
		n.apply = back
	}
	return c.end(y)
}

// softmaxBackward multiplies before it calls the kernel: two full-size tensors.
func softmaxBackward(grad, y *Tensor) *Tensor {
	t := grad.tape
	c := t.begin("_softmax_backward_data", grad, y)
	product := c.let(t.map1("mul", grad.dtype, 1, grad, y))
	out := t.empty(grad.dtype, grad.shape...)
	t.launch(program.Op{Work: program.Softmax, FLOPs: 4 * y.numel}, []*Tensor{out}, []*Tensor{product, y})
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
