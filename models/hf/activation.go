package hf

import (
	"maps"
	"slices"

	"github.com/vprof/vprof/models/nn"
)

// NewGELU is NewGELUActivation, the tanh form of GELU written out.
func NewGELU() *nn.Func {
	return nn.NewFunc(func(x *tensor) *tensor {
		return x.MulScalar().Mul(x.Add(x.Pow(3).MulScalar()).MulScalar().Tanh().AddScalar())
	})
}

// quickGELU is QuickGELUActivation.
func quickGELU() *nn.Func {
	return nn.NewFunc(func(x *tensor) *tensor { return x.Mul(x.MulScalar().Sigmoid()) })
}

// fastGELU is FastGELUActivation.
func fastGELU() *nn.Func {
	return nn.NewFunc(func(x *tensor) *tensor {
		return x.MulScalar().Mul(x.MulScalar().Mul(x.MulScalar().Mul(x).AddScalar()).Tanh().AddScalar())
	})
}

// squaredReLU is ReLUSquaredActivation.
func squaredReLU() *nn.Func {
	return nn.NewFunc(func(x *tensor) *tensor { return x.ReLU().Square() })
}

// activations are the functions of ACT2FN that models use.
var activations = map[string]func() *nn.Func{
	"gelu":              nn.NewGELU,
	"gelu_new":          NewGELU,
	"gelu_pytorch_tanh": nn.NewGELU, // one kernel, as the exact form
	"gelu_fast":         fastGELU,
	"quick_gelu":        quickGELU,
	"relu":              nn.NewReLU,
	"relu2":             squaredReLU,
	"silu":              nn.NewSiLU,
	"swish":             nn.NewSiLU,
	"tanh":              func() *nn.Func { return nn.NewFunc((*tensor).Tanh) },
}

// Activations are the names that [Activation] knows, sorted.
func Activations() []string { return slices.Sorted(maps.Keys(activations)) }

// Activation is ACT2FN[name]; a name not in [Activations] is a bug and panics.
func Activation(name string) *nn.Func { return activations[name]() }
