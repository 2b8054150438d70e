package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/liger"
	"github.com/vprof/vprof/models/nn"
)

// mlp is the feed-forward layer.
type mlp struct {
	nn.Module
	TorchNames
	GateProj, GateUpProj, UpProj, DownProj nn.Layer // c.MLP selects some
	ActFn                                  nn.Layer
	c                                      *Config
}

func newMLP(c *Config) *mlp { return newMLPOf(c, c.Inner) }

func newMLPOf(c *Config, inner int64) *mlp {
	m := &mlp{
		TorchNames: c.Names, DownProj: nn.NewLinear(inner, c.Width, c.MLPBias),
		ActFn: hf.Activation(c.Activation), c: c,
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
		return m.forwardAll(f, x)
	}
	return hf.TiledForward(f, x, m.c.Tiles, m.Parameters(), m.forwardAll)
}

func (m *mlp) forwardAll(f *frame, x *tensor) *tensor {
	y := f.Bind(m.project(f, x))
	if m.c.DropoutInside {
		f.Set(&y, y.Dropout(m.c.ResidualDropout, m.Training()))
	}
	return y
}

func (m *mlp) project(f *frame, x *tensor) *tensor {
	switch {
	case m.c.MLP == Ungated:
		return f.Call(m.DownProj, f.Call(m.ActFn, f.Call(m.UpProj, x)))
	case m.c.MLP == FusedGated:
		up := f.Bind(f.Call(m.GateUpProj, x))
		parts := f.BindAll(up.Chunk(2, -1))
		f.Set(&up, parts[1])
		f.Del(&parts[1])
		f.Set(&up, up.Mul(f.Call(m.ActFn, parts[0])))
		return f.Call(m.DownProj, up)
	case m.c.Liger:
		return f.Call(m.DownProj, liger.GatedProduct(f, f.Call(m.GateProj, x), f.Call(m.UpProj, x)))
	default:
		return f.Call(m.DownProj, f.Call(m.ActFn, f.Call(m.GateProj, x)).Mul(f.Call(m.UpProj, x)))
	}
}
