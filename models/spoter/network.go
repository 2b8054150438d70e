package spoter

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// Sizes of both networks: 54 points with two coordinates, 60 words to recognize.
const (
	features    = 108
	classes     = 60
	width       = 108
	heads       = 9
	feedForward = 512
)

// network is a model that the trainer can train.
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
	pad := g.Bind(trace.Cat(1, ones, mask).EqScalar())
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

// attention is self-attention that keeps its probabilities.
type attention struct {
	nn.Module
	Q, K, V, O *nn.Linear
	Drop       *nn.Dropout
}

func newAttention(p float64) *attention {
	linear := func() *nn.Linear { return nn.NewLinear(width, width, true) }
	return &attention{Q: linear(), K: linear(), V: linear(), O: linear(), Drop: nn.NewDropout(p)}
}

func (a *attention) Forward(f *frame, x *tensor) *tensor {
	b := x.Size(0)
	project := func(l *nn.Linear) *tensor {
		return f.Bind(f.Call(l, x).View(b, -1, heads, width/heads).Transpose(1, 2))
	}
	q, k, v := project(a.Q), project(a.K), project(a.V)
	s := f.Bind(q.Matmul(k.Transpose(-2, -1)).DivScalar())
	p := f.Bind(f.Call(a.Drop, s.Softmax(-1)))
	return f.Call(a.O, p.Matmul(v).Transpose(1, 2).Contiguous().View(b, -1, width))
}

// layer is a post-norm encoder layer.
type layer struct {
	nn.Module
	Attn   *attention
	Ffn    *nn.Sequential
	N1, N2 *nn.LayerNorm
	Drop   *nn.Dropout
}

func newLayer(p float64) *layer {
	return &layer{
		Attn: newAttention(p),
		Ffn: nn.NewSequential(nn.NewLinear(width, feedForward, true), nn.NewReLU(), nn.NewDropout(p),
			nn.NewLinear(feedForward, width, true)),
		N1: nn.NewLayerNorm(width), N2: nn.NewLayerNorm(width), Drop: nn.NewDropout(p),
	}
}

func (l *layer) Forward(f *frame, x *tensor) *tensor {
	f.Set(&x, f.Call(l.N1, x.Add(f.Call(l.Drop, f.Call(l.Attn, x)))))
	return f.Call(l.N2, x.Add(f.Call(l.Drop, f.Call(l.Ffn, x))))
}

// firstNotebookNet is the six-layer network of the first notebook.
type firstNotebookNet struct {
	nn.Module
	Cls    *nn.Parameter
	Pe     *nn.Buffer
	Embed  *nn.Linear
	Layers []*layer
	Head   *nn.Sequential
}

func newFirstNotebookNet() *firstNotebookNet {
	const dropout, positions = 0.1, 300
	return &firstNotebookNet{
		Cls: nn.NewParameter(1, 1, width), Pe: nn.NewBuffer(trace.F32, positions, 1, width),
		Embed: nn.NewLinear(features, width, true),
		Head: nn.NewSequential(nn.NewLayerNorm(width), nn.NewDropout(dropout),
			nn.NewLinear(width, width/2, true), nn.NewReLU(),
			nn.NewDropout(dropout), nn.NewLinear(width/2, classes, true)),
		Layers: lists.Make(6, func(int) *layer { return newLayer(dropout) }),
	}
}

// call maps poses [B, frames, features] to logits.
func (n *firstNotebookNet) call(f *frame, x, _ *tensor, checkpointing bool) *tensor {
	g := f.CallFrame(x)
	g.Set(&x, trace.Cat(1, n.Cls.Expand(x.Size(0), -1, -1), g.Call(n.Embed, x)))
	g.Set(&x, x.Transpose(0, 1).Add(n.Pe.Narrow(0, 0, x.Size(1))).Transpose(0, 1))
	for _, l := range n.Layers {
		g.Set(&x, nn.CallCheckpointed(g, l, x, checkpointing))
	}
	return g.Return(g.Call(n.Head, firstToken(x)))
}

func firstToken(x *tensor) *tensor { return x.Select(1, 0) }
