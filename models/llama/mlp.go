package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/liger"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// mlp is the feed-forward half of a layer.
type mlp struct {
	nn.Module
	Names
	GateProj, GateUpProj, UpProj, DownProj nn.Layer // those of the kind that c names
	ActFn                                  nn.Layer
	c                                      *Config
}

func newMLP(c *Config) *mlp { return newMLPOf(c, c.Inner) }

func newMLPOf(c *Config, inner int64) *mlp {
	m := &mlp{
		Names: c.Names, DownProj: nn.NewLinear(inner, c.Width, c.MLPBias),
		ActFn: activation(c.Activation), c: c,
	}
	switch c.MLP {
	case FusedGated:
		m.GateUpProj = nn.NewLinear(c.Width, 2*inner, c.MLPBias)
	case Gated:
		m.GateProj = nn.NewLinear(c.Width, inner, c.MLPBias)
		fallthrough
	case Ungated:
		m.UpProj = nn.NewLinear(c.Width, inner, c.MLPBias)
	}
	return m
}

func (m *mlp) Forward(f *frame, x *tensor) *tensor {
	if m.c.Tiles.Count == 0 {
		return m.whole(f, x)
	}
	return hf.Tiled(f, x, m.c.Tiles, m.Parameters(), m.whole)
}

// whole sees all of x at once.
func (m *mlp) whole(f *frame, x *tensor) *tensor {
	y := f.Let(m.forward(f, x))
	if m.c.DropoutInside {
		f.Set(&y, y.Dropout(m.c.ResidualDropout, m.Training()))
	}
	return y
}

func (m *mlp) forward(f *frame, x *tensor) *tensor {
	switch {
	case m.c.MLP == Ungated:
		return f.Call(m.DownProj, f.Call(m.ActFn, f.Call(m.UpProj, x)))
	case m.c.MLP == FusedGated:
		up := f.Let(f.Call(m.GateUpProj, x))
		parts := f.LetAll(up.Chunk(2, -1))
		f.Set(&up, parts[1])
		f.Del(&parts[1])
		f.Set(&up, up.Mul(f.Call(m.ActFn, parts[0])))
		return f.Call(m.DownProj, up)
	case m.c.GateScaled:
		y := f.Let(f.Call(m.UpProj, x).Mul(f.Call(m.ActFn, f.Call(m.GateProj, x).MulScalar())))
		return f.Set(&y, f.Call(m.DownProj, y).MulScalar())
	case m.c.Liger:
		return f.Call(m.DownProj, liger.GatedProduct(f, f.Call(m.GateProj, x), f.Call(m.UpProj, x)))
	default:
		return f.Call(m.DownProj, f.Call(m.ActFn, f.Call(m.GateProj, x)).Mul(f.Call(m.UpProj, x)))
	}
}

// sharedMLP is GraniteMoeHybridMLP.
type sharedMLP struct {
	nn.Module
	InputLinear, OutputLinear nn.Layer
	Activation                nn.Layer
}

func newSharedMLP(c *Config) *sharedMLP {
	return &sharedMLP{
		InputLinear:  nn.NewLinear(c.Width, 2*c.SharedInner, false),
		OutputLinear: nn.NewLinear(c.SharedInner, c.Width, false), Activation: activation(c.Activation),
	}
}

func (m *sharedMLP) Forward(f *frame, x *tensor) *tensor {
	f.Set(&x, f.Call(m.InputLinear, x))
	parts := f.LetAll(x.Chunk(2, -1))
	f.Set(&x, f.Call(m.Activation, parts[0]).Mul(parts[1]))
	return f.Call(m.OutputLinear, x)
}

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
