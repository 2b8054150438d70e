package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// XIELU is the name of an activation that is trained.
const XIELU = "xielu"

// activation is that of a name, [XIELU] included.
func activation(name string) nn.Layer {
	if name == XIELU {
		return &xielu{
			AlphaP: nn.NewParameter(1), AlphaN: nn.NewParameter(1), Beta: nn.NewBufferOfWeights(),
			Eps: nn.NewBufferOfWeights(),
		}
	}
	return hf.Activation(name)
}

// xielu is XIELUActivation in PyTorch.
type xielu struct {
	nn.Module
	AlphaP, AlphaN *nn.Parameter
	Beta, Eps      *nn.Buffer
}

func (a *xielu) Forward(f *frame, x *tensor) *tensor {
	g := f.FuncFrame(x)
	alphaP := g.Let(a.AlphaP.Softplus())
	alphaN := g.Let(a.Beta.Add(a.AlphaN.Softplus()))
	y := trace.Where(x.GtScalar(),
		alphaP.Mul(x).Mul(x).Add(a.Beta.Mul(x)),
		x.Minimum(a.Eps.Tensor).Function("expm1").Sub(x).Mul(alphaN).Add(a.Beta.Mul(x)))
	return g.Return(y)
}
