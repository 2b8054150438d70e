package spoter

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// Sizes of both networks: 54 points with two coordinates, 60 words.
const (
	features    = 108
	classes     = 60
	width       = 108
	heads       = 9
	feedForward = 512
)

// network is what a trainer trains.
type network interface {
	call(f *frame, poses, mask *tensor, checkpointing bool) *tensor
}

// spoterNet is the eight-layer network of the training notebook.
type spoterNet struct {
	nn.Module
	Pos, Cls *nn.Parameter
	Embed    *nn.Sequential
	Encoder  *nn.TransformerEncoder
	Head     *nn.Sequential
}

func newSpoterNet() *spoterNet {
	const dropout = 0.15
	return &spoterNet{
		Pos: nn.NewParameter(frames+1, width), Cls: nn.NewParameter(1, 1, width),
		Embed: nn.NewSequential(nn.NewLinear(features, width, true), nn.NewLayerNorm(width), nn.NewDropout(dropout/2)),
		Encoder: nn.NewTransformerEncoder(8, width, heads, feedForward, nn.TransformerOptions{
			Dropout: dropout, Activation: nn.NewGELU(), BatchFirst: true,
		}),
		Head: nn.NewSequential(nn.NewLayerNorm(width), nn.NewLinear(width, width, true), nn.NewGELU(),
			nn.NewDropout(dropout),
			nn.NewLinear(width, width/2, true), nn.NewGELU(), nn.NewDropout(dropout/2),
			nn.NewLinear(width/2, classes, true)),
	}
}

// call maps poses [B, frames, features] and their mask [B, frames] to logits.
func (n *spoterNet) call(f *frame, x, mask *tensor, checkpointing bool) *tensor {
	g := f.CallFrame(x, mask)
	b, t := x.Size(0), x.Size(1)
	g.Set(&x, trace.Cat(1, n.Cls.Expand(b, -1, -1), g.Call(n.Embed, x)))
	g.Set(&x, x.Add(n.Pos.Narrow(0, 0, t+1).Unsqueeze(0)))
	ones := g.Tape().Filled("ones", trace.F32, b, 1)
	pad := g.Let(trace.Cat(1, ones, mask).EqScalar())
	masks := nn.TransformerMasks{KeyPadding: pad}
	if checkpointing {
		for _, l := range n.Encoder.Layers {
			g.Set(&x, g.CheckpointClosure([]*tensor{pad}, func(h *frame, in []*tensor) *tensor {
				return l.Call(h, in[0], masks)
			}, x))
		}
	} else {
		g.Set(&x, n.Encoder.Call(g, x, masks))
	}
	return g.Return(g.Call(n.Head, firstToken(x)))
}
