package trace

import (
	"slices"

	"github.com/vprof/vprof/profiler/program"
)

// Operations per element of the activations, as in pointwise.go. Those of piecewise linear
// functions stand in the table as they are: comparisons, additions and multiplications.
const (
	tanhFLOPs       = transcendentalFLOPs + 2 // exp, and a quotient
	eluFLOPs        = transcendentalFLOPs + 2 // exp, less one, times alpha
	sigmoidFLOPs    = transcendentalFLOPs     // exp, beside which the quotient is nothing
	siluFLOPs       = sigmoidFLOPs + 1        // times x
	geluFLOPs       = erfFLOPs + 2            // erf, plus one, times x
	softplusFLOPs   = 2 * transcendentalFLOPs // exp and log
	logSigmoidFLOPs = softplusFLOPs + 2       // and the smaller of x and zero
	mishFLOPs       = softplusFLOPs + 4       // and tanh of it by the same exp, times x

	sigmoidGradFLOPs    = 3                       // grad * (1 - y) * y; as many for tanh
	siluGradFLOPs       = sigmoidFLOPs + 4        // grad * s * (1 + x * (1 - s))
	softplusGradFLOPs   = transcendentalFLOPs + 4 // grad * z / (z + 1) above a threshold
	logSigmoidGradFLOPs = transcendentalFLOPs + 6 // the same by sign
	geluGradFLOPs       = 2 * transcendentalFLOPs // erf and exp
	mishGradFLOPs       = mishFLOPs + 6           // grad * (t + x * s * (1 - t * t))
	gluFLOPs            = siluFLOPs               // a * sigmoid(b)
	gluGradFLOPs        = sigmoidFLOPs            // both halves by the same sigmoid
	preluGradFLOPs      = 4                       // a comparison and a product for each gradient
)

var (
	opTanh        = unary{op: "tanh", node: "TanhBackward0", keepOut: true, flops: tanhFLOPs, back: kernel1("tanh_backward", sigmoidGradFLOPs)}
	opSigmoid     = unary{op: "sigmoid", node: "SigmoidBackward0", keepOut: true, flops: sigmoidFLOPs, back: kernel1("sigmoid_backward", sigmoidGradFLOPs)}
	opReLU        = unary{op: "relu", exact: true, node: "ReluBackward0", keepOut: true, flops: 1, back: kernel1Kept("threshold_backward", 1)}
	opGELU        = unary{op: "gelu", node: "GeluBackward0", keepIn: true, flops: geluFLOPs, back: kernel1("gelu_backward", geluGradFLOPs)}
	opLeakyReLU   = unary{op: "leaky_relu", node: "LeakyReluBackward0", keepIn: true, flops: 2, back: kernel1Kept("leaky_relu_backward", 2)}
	opELU         = unary{op: "elu", node: "EluBackward0", keepIn: true, flops: eluFLOPs, back: kernel1("elu_backward", eluFLOPs)}
	opSELU        = unary{op: "selu", node: "EluBackward0", keepIn: true, flops: eluFLOPs, back: kernel1("elu_backward", eluFLOPs)}
	opSiLU        = unary{op: "silu", node: "SiluBackward0", keepIn: true, flops: siluFLOPs, back: kernel1("silu_backward", siluGradFLOPs)}
	opMish        = unary{op: "mish", node: "MishBackward0", keepIn: true, flops: mishFLOPs, back: kernel1("mish_backward", mishGradFLOPs)}
	opHardsigmoid = unary{op: "hardsigmoid", node: "HardsigmoidBackward0", keepIn: true, flops: 4, back: kernel1("hardsigmoid_backward", 3)}
	opHardswish   = unary{op: "hardswish", node: "HardswishBackward0", keepIn: true, flops: 5, back: kernel1("hardswish_backward", 5)}
	opHardtanh    = unary{op: "hardtanh", node: "HardtanhBackward0", keepIn: true, flops: 2, back: kernel1("hardtanh_backward", 2)}
	opReLU6       = unary{op: "relu6", node: "HardtanhBackward0", keepIn: true, flops: 2, back: kernel1("hardtanh_backward", 2)}
	opSoftplus    = unary{op: "softplus", node: "SoftplusBackward0", keepIn: true, full: true, flops: softplusFLOPs, back: kernel1("softplus_backward", softplusGradFLOPs)}
	opLogSigmoid  = unary{op: "log_sigmoid", node: "LogSigmoidBackward0", keepIn: true, flops: logSigmoidFLOPs, back: kernel1Kept("log_sigmoid_backward", logSigmoidGradFLOPs)}

	// In place these keep their output, from which the gradient follows too.
	opLeakyReLUInPlace = unary{op: "leaky_relu", node: "LeakyReluBackward1", keepOut: true, flops: 2, back: kernel1Kept("leaky_relu_backward", 2)}
	opELUInPlace       = unary{op: "elu", node: "EluBackward1", keepOut: true, flops: eluFLOPs, back: kernel1("elu_backward", eluFLOPs)}
)

// Tanh is torch.tanh.
func (x *Tensor) Tanh() *Tensor { return x.unary(&opTanh) }

// TanhInPlace is torch.tanh_.
func (x *Tensor) TanhInPlace() *Tensor { return x.unaryInPlace(&opTanh) }

// Sigmoid is torch.sigmoid.
func (x *Tensor) Sigmoid() *Tensor { return x.unary(&opSigmoid) }

// SigmoidInPlace is torch.sigmoid_.
func (x *Tensor) SigmoidInPlace() *Tensor { return x.unaryInPlace(&opSigmoid) }

// ReLU is torch.relu.
func (x *Tensor) ReLU() *Tensor { return x.unary(&opReLU) }

// ReLUInPlace is torch.relu_.
func (x *Tensor) ReLUInPlace() *Tensor { return x.unaryInPlace(&opReLU) }

// GELU is torch.nn.functional.gelu, exact or with the tanh approximation.
func (x *Tensor) GELU() *Tensor { return x.unary(&opGELU) }

// LeakyReLU is torch.nn.functional.leaky_relu.
func (x *Tensor) LeakyReLU() *Tensor { return x.unary(&opLeakyReLU) }

// LeakyReLUInPlace is torch.nn.functional.leaky_relu_.
func (x *Tensor) LeakyReLUInPlace() *Tensor { return x.unaryInPlace(&opLeakyReLUInPlace) }

// ELU is torch.nn.functional.elu.
func (x *Tensor) ELU() *Tensor { return x.unary(&opELU) }

// ELUInPlace is torch.nn.functional.elu_.
func (x *Tensor) ELUInPlace() *Tensor { return x.unaryInPlace(&opELUInPlace) }

// SELU is torch.selu.
func (x *Tensor) SELU() *Tensor { return x.unary(&opSELU) }

// SiLU is torch.nn.functional.silu.
func (x *Tensor) SiLU() *Tensor { return x.unary(&opSiLU) }

// SiLUInPlace is torch.nn.functional.silu(x, inplace=True).
func (x *Tensor) SiLUInPlace() *Tensor { return x.unaryInPlace(&opSiLU) }

// Mish is torch.nn.functional.mish.
func (x *Tensor) Mish() *Tensor { return x.unary(&opMish) }

// MishInPlace is torch.nn.functional.mish(x, inplace=True).
func (x *Tensor) MishInPlace() *Tensor { return x.unaryInPlace(&opMish) }

// Hardsigmoid is torch.nn.functional.hardsigmoid.
func (x *Tensor) Hardsigmoid() *Tensor { return x.unary(&opHardsigmoid) }

// Hardswish is torch.nn.functional.hardswish.
func (x *Tensor) Hardswish() *Tensor { return x.unary(&opHardswish) }

// HardswishInPlace is torch.nn.functional.hardswish(x, inplace=True).
func (x *Tensor) HardswishInPlace() *Tensor { return x.unaryInPlace(&opHardswish) }

// Hardtanh is torch.nn.functional.hardtanh.
func (x *Tensor) Hardtanh() *Tensor { return x.unary(&opHardtanh) }

// HardtanhInPlace is torch.nn.functional.hardtanh_.
func (x *Tensor) HardtanhInPlace() *Tensor { return x.unaryInPlace(&opHardtanh) }

// ReLU6 is torch.nn.functional.relu6.
func (x *Tensor) ReLU6() *Tensor { return x.unary(&opReLU6) }

// ReLU6InPlace is torch.nn.functional.relu6(x, inplace=True).
func (x *Tensor) ReLU6InPlace() *Tensor { return x.unaryInPlace(&opReLU6) }

// Softplus is torch.nn.functional.softplus.
func (x *Tensor) Softplus() *Tensor { return x.unary(&opSoftplus) }

// LogSigmoid is torch.nn.functional.logsigmoid.
func (x *Tensor) LogSigmoid() *Tensor { return x.unary(&opLogSigmoid) }

// Softsign is torch.nn.functional.softsign: x / (x.abs() + 1).
func (x *Tensor) Softsign() *Tensor {
	f := x.tape.funcFrame(x)
	y := x.Div(x.Abs().AddScalar())
	f.End(y)
	return y
}

// Tanhshrink is torch.nn.functional.tanhshrink: x - x.tanh().
func (x *Tensor) Tanhshrink() *Tensor {
	f := x.tape.funcFrame(x)
	y := x.Sub(x.Tanh())
	f.End(y)
	return y
}

// GLU is torch.nn.functional.glu(x, dim).
func (x *Tensor) GLU(dim int) *Tensor {
	t := x.tape
	c := t.begin("glu", x)
	shape := slices.Clone(x.shape)
	shape[x.dim(dim)] /= 2
	y := t.empty(x.dtype, shape...)
	t.launchElementwise(y, gluFLOPs, x)
	if n := t.record("GluBackward0", x); n != nil {
		n.save(x)
		n.yields(y)
		n.apply = func(b *backward) {
			x := b.saved(0)
			c := b.t.begin("glu_backward", b.grad, x)
			g := b.t.empty(x.dtype, x.shape...)
			b.t.launchElementwise(g, gluGradFLOPs, b.grad, x)
			b.give(0, c.end(g))
		}
	}
	return c.end(y)
}

// PReLU is torch.nn.functional.prelu(x, weight). Autocast runs it in the lower
// precision.
func (x *Tensor) PReLU(weight *Tensor) *Tensor {
	t := x.tape
	c := t.begin("prelu", x, weight)
	weight, x = t.lower(weight), t.lower(x)
	c.t.casts.enabled = false
	if n := x.NDim(); n != weight.NDim() {
		shape := make([]int64, n)
		for i := range shape {
			shape[i] = 1
		}
		if n > 1 {
			shape[1] = weight.numel
		}
		weight = weight.Reshape(shape...)
	}
	y := t.map1("_prelu_kernel", x.dtype, 2, x, weight)
	if n := t.record("PreluKernelBackward0", x, weight); n != nil {
		n.save(x, weight)
		n.yields(y)
		n.apply = preluBackward
	}
	return c.end(y)
}

// preluBackward makes both gradients in full size, wanted or not.
func preluBackward(b *backward) {
	x, weight := b.saved(0), b.saved(1)
	gx := b.t.elementwise(x.dtype, b.grad, x, weight)
	gw := b.t.elementwise(weight.dtype, b.grad, x, weight)
	b.t.launch(program.Elementwise, preluGradFLOPs*gx.numel, []*Tensor{gx, gw}, []*Tensor{b.grad, x, weight})
	b.out[0], b.out[1] = keepIf(gx, b.needs(0)), keepIf(gw, b.needs(1))
	b.statement()
}
