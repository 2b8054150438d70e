package hf

import (
	"maps"
	"slices"

	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// NewGELU returns NewGELUActivation, the tanh form of GELU written out.
func NewGELU() *nn.Func {
	return nn.NewFunc(func(x *tensor) *tensor {
		return x.MulScalar().Mul(x.Add(x.Pow(3).MulScalar()).MulScalar().Tanh().AddScalar())
	})
}

// fastGELU follows FastGELUActivation.
func fastGELU() *nn.Func {
	return nn.NewFunc(func(x *tensor) *tensor {
		return x.MulScalar().Mul(x.MulScalar().Mul(x.MulScalar().Mul(x).AddScalar()).Tanh().AddScalar())
	})
}

// activations are the functions of ACT2FN that models use.
var activations = map[string]func() *nn.Func{
	"gelu":              nn.NewGELU,
	"gelu_new":          NewGELU,
	"gelu_pytorch_tanh": nn.NewGELU, // one kernel, as the exact form
	"gelu_fast":         fastGELU,
	"quick_gelu": func() *nn.Func {
		return nn.NewFunc(func(x *tensor) *tensor { return x.Mul(x.MulScalar().Sigmoid()) })
	},
	"relu":  nn.NewReLU,
	"relu2": func() *nn.Func { return nn.NewFunc(func(x *tensor) *tensor { return x.ReLU().Square() }) },
	"silu":  nn.NewSiLU,
	"swish": nn.NewSiLU,
	"tanh":  func() *nn.Func { return nn.NewFunc((*tensor).Tanh) },
}

// Activations returns the names that [Activation] accepts, sorted.
func Activations() []string { return slices.Sorted(maps.Keys(activations)) }

// Activation returns ACT2FN[name]; a name not in [Activations] is a bug and panics.
func Activation(name string) *nn.Func { return activations[name]() }

// RMSNormalize normalizes x in fp32 as LlamaRMSNorm does before it multiplies by its weight, in the frame of the norm.
func RMSNormalize(f *frame, x **tensor) {
	f.Set(x, (*x).To(trace.F32))
	variance := f.Bind((*x).Pow(2).Mean(true, -1))
	f.Set(x, (*x).Mul(variance.AddScalar().Rsqrt()))
}

// GemmaNormalized follows GemmaRMSNorm._norm over x in fp32.
func GemmaNormalized(f *frame, x *tensor) *tensor {
	g := f.FuncFrame(x)
	return g.Return(x.Mul(x.Pow(2).Mean(true, -1).AddScalar().Rsqrt()))
}

// Frequencies are the buffers of rotary positions for one kind of layers, each [head size/2].
type Frequencies struct {
	nn.Module
	InvFreq, OriginalInvFreq *nn.Buffer
}

// NewFrequencies returns the frequencies of heads of a size, in fp32.
func NewFrequencies(headSize int64) *Frequencies {
	half := headSize / 2
	return &Frequencies{InvFreq: nn.NewBuffer(trace.F32, half), OriginalInvFreq: nn.NewBuffer(trace.F32, half)}
}

// RotateHalf follows rotate_half: it swaps the halves of x's last dimension and negates the former second half.
func RotateHalf(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	g := f.FuncFrame(x)
	half := x.Size(-1) / 2
	first := g.Bind(x.Slice(-1, 0, half))
	second := g.Bind(x.Slice(-1, half, x.Size(-1)))
	return g.Return(trace.Cat(-1, second.Neg(), first))
}
