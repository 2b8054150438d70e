package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Operations per element for the operators below, as in operators.txt.
const (
	gluFLOPs       = transcendentalFLOPs + 1 // a * sigmoid(b)
	gluGradFLOPs   = transcendentalFLOPs     // both halves by the same sigmoid
	preluGradFLOPs = 4                       // a comparison and a product for each gradient
)

// GLU records torch.nn.functional.glu(x, dim).
func (x *Tensor) GLU(dim int) *Tensor {
	t := x.tape
	c := t.Begin("glu", x)
	shape := slices.Clone(x.shape)
	shape[x.Dim(dim)] /= 2
	y := t.Alloc(x.dtype, shape...)
	t.LaunchElementwise(y, gluFLOPs, x)
	return c.End(y.SetGradFn("GluBackward0", inputs{x}, saves{x}, func(b *Gradients) {
		x := b.Saved(0)
		c := b.t.Begin("glu_backward", b.Grad, x)
		g := b.t.Alloc(x.dtype, x.shape...)
		b.t.LaunchElementwise(g, gluGradFLOPs, b.Grad, x)
		b.Set(0, c.End(g))
	}))
}

// PReLU records torch.nn.functional.prelu(x, weight). Autocast runs it in the lower precision.
func (x *Tensor) PReLU(weight *Tensor) *Tensor {
	c := x.tape.Begin("prelu", x, weight)
	weight, x = c.t.CastToLower(weight), c.t.CastToLower(x)
	c.t.casts.enabled = false
	if n := x.NDim(); n != weight.NDim() {
		shape := slices.Repeat([]int64{1}, n)
		if n > 1 {
			shape[1] = weight.numel
		}
		weight = weight.Reshape(shape...)
	}
	y := c.t.Map("_prelu_kernel", x.dtype, 2, x, weight)
	return c.End(y.SetGradFn("PreluKernelBackward0", inputs{x, weight}, saves{x, weight}, preluBackward))
}

// preluBackward records both gradients in full size, needed or not.
func preluBackward(b *Gradients) {
	x, weight := b.Saved(0), b.Saved(1)
	gx := b.t.elementwise(x.dtype, b.Grad, x, weight)
	gw := b.t.elementwise(weight.dtype, b.Grad, x, weight)
	b.t.Launch(program.Elementwise, preluGradFLOPs*gx.numel, []*Tensor{gx, gw}, []*Tensor{b.Grad, x, weight})
	b.SetPair(gx, gw)
}
