package trace

import (
	"slices"
	"strings"

	"github.com/vprof/vprof/profiler/program"
)

// Dropout records torch.nn.functional.dropout(x, p, training). Nothing happens in evaluation or with p = 0.
func (x *Tensor) Dropout(p float64, training bool) *Tensor {
	c := x.tape.Begin("dropout", x)
	return c.End(x.dropout(p, training))
}

// dropout records native_dropout, which saves a mask of one byte per element for backward.
func (x *Tensor) dropout(p float64, training bool) *Tensor {
	if !training || p == 0 || x.numel == 0 {
		return x
	}
	c := x.tape.Begin("dropout", x)
	if p == 1 {
		return c.End(x.Mul(c.t.Zeros(x.dtype)))
	}
	c.t.native = "dropout_cuda"
	mask := c.Bind(x.AllocLike(Bool))
	y := x.AllocLike(x.dtype)
	c.t.Launch(program.Elementwise, 8*x.numel, []*Tensor{y, mask}, []*Tensor{x})
	return c.End(y.SetGradFn("NativeDropoutBackward0", inputs{x}, saves{mask},
		func(b *Gradients) { b.Set(0, b.Grad.dropoutBackward(b.Saved(0))) }))
}

// dropoutBackward records native_dropout_backward. Its result is row-major or channels-last, whatever the gradient's
// layout.
func (g *Tensor) dropoutBackward(mask *Tensor) *Tensor {
	c := g.tape.Begin("native_dropout_backward", g, mask)
	y := c.t.AllocIn(g.dtype, g.shape, g.SuggestsChannelsLast())
	c.t.LaunchElementwise(y, 2, g, mask)
	return c.End(y)
}

// noisyDropouts maps the dropouts that consist of other operators to the way in which their noise is applied.
var noisyDropouts = map[string]func(c *Call, x, noise *Tensor) *Tensor{
	"dropout_": (*Call).mulInPlace, "feature_dropout_": (*Call).mulInPlace,
	"feature_dropout": (*Call).mul,
	"alpha_dropout":   (*Call).mulAdd, "feature_alpha_dropout": (*Call).mulAdd,
}

// NoisyDropout records a dropout without a fused kernel, such as "alpha_dropout", by its name. Dropouts of features,
// such as torch.nn.functional.dropout2d, drop whole channels. The noise of in-place forms has the type of x.
func (x *Tensor) NoisyDropout(op string, p float64, training bool) *Tensor {
	c := x.tape.Begin(op, x)
	if !training || p == 0 {
		return c.End(x)
	}
	shape := x.shape
	if strings.HasPrefix(op, "feature_") {
		shape = x.featureShape()
	}
	return c.End(noisyDropouts[op](c, x, c.Bind(x.dropoutNoise(shape))))
}

func (*Call) mul(x, noise *Tensor) *Tensor        { return x.Mul(noise) }
func (*Call) mulInPlace(x, noise *Tensor) *Tensor { return x.MulInPlace(noise) }

// mulAdd records the product and sum of alpha dropout with its noise, which is freed before the shift.
func (c *Call) mulAdd(x, noise *Tensor) *Tensor {
	shift := c.Bind(noise.AddScalar())
	y := x.Mul(noise).AddInPlace(shift).Retain()
	c.EndStatement()
	c.Drop(noise)
	y.refs--
	return y
}

// dropoutNoise records the random factors of a dropout without a fused kernel.
func (x *Tensor) dropoutNoise(shape []int64) *Tensor {
	c := x.tape.Begin(x.tape.native, x)
	var y *Tensor
	if slices.Equal(shape, x.shape) {
		y = x.AllocLike(x.dtype)
	} else {
		y = c.t.Alloc(x.dtype, shape...)
	}
	c.t.LaunchElementwise(y, 8)
	return c.End(y)
}

// featureShape returns a shape with one element for each channel of each sample.
func (x *Tensor) featureShape() []int64 {
	shape := slices.Repeat([]int64{1}, len(x.shape))
	copy(shape, x.shape[:2])
	return shape
}

// NativeDropout records torch.native_dropout(x, p, True): the result and the mask.
func (x *Tensor) NativeDropout(p float64) (y, mask *Tensor) {
	c := x.tape.Begin("native_dropout", x)
	mask = c.Bind(x.AllocLike(Bool))
	y = c.Bind(x.AllocLike(x.dtype))
	c.t.Launch(program.Elementwise, 8*x.numel, []*Tensor{y, mask}, []*Tensor{x})
	c.t.SetGradFn(outputs{y, mask}, "NativeDropoutBackward0", inputs{x}, saves{mask},
		func(b *Gradients) { b.Set(0, b.Grad.dropoutBackward(b.Saved(0))) })
	return c.EndPair(y, mask)
}

// RReLU records torch.nn.functional.rrelu, which saves its noise in training.
func (x *Tensor) RReLU(training bool) *Tensor {
	c := x.tape.Begin("rrelu", x)
	noise := c.Bind(x.AllocLike(x.dtype))
	y := c.t.Map("rrelu_with_noise", x.dtype, 8, x)
	return c.End(y.SetGradFn("RreluWithNoiseBackward0", inputs{x}, saves{noise, x}, func(b *Gradients) {
		b.Set(0, callBackwardKernel("rrelu_with_noise_backward", b.Grad, b.Saved(0)))
	}))
}
