package hf

import (
	"maps"
	"slices"

	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// NewGELU returns NewGELUActivation, GELU's tanh form computed by separate operators.
func NewGELU() *nn.FuncLayer {
	return nn.NewFunc(func(x *tensor) *tensor {
		return x.MulScalar().Mul(x.Add(x.Pow(3).MulScalar()).MulScalar().Tanh().AddScalar())
	})
}

// fastGELU follows transformers' FastGELUActivation.
func fastGELU() *nn.FuncLayer {
	return nn.NewFunc(func(x *tensor) *tensor {
		return x.MulScalar().Mul(x.MulScalar().Mul(x.MulScalar().Mul(x).AddScalar()).Tanh().AddScalar())
	})
}

// activations maps names in ACT2FN to constructors.
var activations = map[string]func() *nn.FuncLayer{
	"gelu":              nn.NewGELU,
	"gelu_new":          NewGELU,
	"gelu_pytorch_tanh": nn.NewGELU, // one kernel, like exact GELU
	"gelu_fast":         fastGELU,
	"quick_gelu": func() *nn.FuncLayer {
		return nn.NewFunc(func(x *tensor) *tensor { return x.Mul(x.MulScalar().Sigmoid()) })
	},
	"relu":  nn.NewReLU,
	"relu2": func() *nn.FuncLayer { return nn.NewFunc(func(x *tensor) *tensor { return x.ReLU().Square() }) },
	"silu":  nn.NewSiLU,
	"swish": nn.NewSiLU,
	"tanh":  func() *nn.FuncLayer { return nn.NewFunc((*tensor).Tanh) },
}

// Activations returns the names that [Activation] accepts, sorted.
func Activations() []string { return slices.Sorted(maps.Keys(activations)) }

// Activation returns ACT2FN[name]; a name not in [Activations] is a bug and panics.
func Activation(name string) *nn.FuncLayer { return activations[name]() }

// RMSNormalize normalizes x in fp32, the part of LlamaRMSNorm before the multiplication by its weight.
func RMSNormalize(f *frame, x **tensor) {
	f.Set(x, (*x).To(trace.F32))
	variance := f.Bind((*x).Pow(2).Mean(true, -1))
	f.Set(x, (*x).Mul(variance.AddScalar().Rsqrt()))
}

// GemmaNormalize records GemmaRMSNorm._norm over x in fp32.
func GemmaNormalize(f *frame, x *tensor) *tensor {
	g := f.FunctionFrame(x)
	return g.Return(x.Mul(x.Pow(2).Mean(true, -1).AddScalar().Rsqrt()))
}

// Frequencies are the buffers of a rotary embedding for one kind of layers, each [head size/2].
type Frequencies struct {
	nn.Module
	InvFreq, OriginalInvFreq *nn.Buffer
}

// NewFrequencies returns the fp32 frequencies for a head size.
func NewFrequencies(headSize int64) *Frequencies {
	half := headSize / 2
	return &Frequencies{InvFreq: nn.NewBuffer(trace.F32, half), OriginalInvFreq: nn.NewBuffer(trace.F32, half)}
}

// RotateHalf records transformers' rotate_half, which swaps the halves of x's last dimension and negates the second.
func RotateHalf(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	g := f.FunctionFrame(x)
	half := x.Size(-1) / 2
	first := g.Bind(x.Slice(-1, 0, half))
	second := g.Bind(x.Slice(-1, half, x.Size(-1)))
	return g.Return(trace.Cat(-1, second.Neg(), first))
}
