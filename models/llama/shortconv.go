package llama

import "github.com/vprof/vprof/models/nn"

// ShortConv says of layers that they have a convolution over a few tokens in the place of
// attention.
type ShortConv struct {
	// Layers says it of each; nil says that none has.
	Layers []bool
	Kernel int64
	Bias   bool
}

// short reports whether layer i has a convolution.
func (s ShortConv) short(i int) bool { return i < len(s.Layers) && s.Layers[i] }

// shortConv is Lfm2ShortConv.
type shortConv struct {
	nn.Module
	Conv            *nn.Conv
	InProj, OutProj nn.Layer
}

func newShortConv(c *Config) *shortConv {
	s := c.ShortConv
	return &shortConv{
		Conv: nn.NewConv(c.Width, c.Width, nn.ConvOptions{
			Kernel: []int64{s.Kernel}, Padding: []int64{s.Kernel - 1},
			Groups: c.Width, NoBias: !s.Bias,
		}),
		InProj: nn.NewLinear(c.Width, 3*c.Width, s.Bias), OutProj: nn.NewLinear(c.Width, c.Width, s.Bias),
	}
}

// call maps hidden states to the same shape; mask is that of padded rows, or nil.
func (s *shortConv) call(f *frame, x, mask *tensor) *tensor {
	g := f.ModuleFrame(s, x, mask)
	g.Set(&x, unpadded(g, x, mask))
	all := g.Let(g.Call(s.InProj, x).Transpose(-1, -2))
	parts := g.LetAll(all.Chunk(3, -2))
	g.Set(&x, parts[0].Mul(parts[2]))
	g.Set(&x, causalConv(g, x, s.Conv, false))
	y := g.Let(parts[1].Mul(x))
	g.Set(&y, y.Transpose(-1, -2).Contiguous())
	g.Set(&y, g.Call(s.OutProj, y))
	return g.Return(y)
}
