package hf

import "github.com/vprof/vprof/models/nn"

// NewGELU is NewGELUActivation, the tanh form of GELU written out.
func NewGELU() *nn.Func {
	return nn.NewFunc(func(x *tensor) *tensor {
		return x.MulScalar().Mul(x.Add(x.Pow(3).MulScalar()).MulScalar().Tanh().AddScalar())
	})
}
