package hf

import (
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Tiles splits the tokens in feed-forward layers (axolotl's tiled_mlp).
type Tiles struct {
	// Count is the number of parts; [models.AutoTiles] is one for every 32768 tokens, and zero a single part.
	Count int64
	// Synchronized reports whether several ranks agree on the number of parts.
	Synchronized bool
}

// tokensPerTile is axolotl's default number of tokens in a tile.
const tokensPerTile = 32768

// TiledForward records the forward of a feed-forward layer under axolotl's patch_tiled_mlp, over x [batch, length,
// width]. half is the layer's original forward, ps its parameters.
func TiledForward(f *frame, x *tensor, tiles Tiles, ps []*nn.Parameter, half func(*frame, *tensor) *tensor) *tensor {
	t := f.Tape()
	n := tiles.Count
	if n == models.AutoTiles {
		n = ceil.Div(x.Size(-2), tokensPerTile)
		if tiles.Synchronized {
			f.Bind(t.New("tensor", program.Temporaries, trace.I64))
		}
	}
	own := func(f *frame, x *tensor) *tensor { // called as a plain Python function, not as a module
		g := f.FunctionFrame(x)
		return g.Return(half(g, x))
	}
	trained := lists.Filter(ps, func(p *nn.Parameter) bool { return p.RequiresGrad() })
	return f.Apply(tiledMLP(n, trained, own), x)[0]
}

// tiledMLP records axolotl's TiledMLP (monkeypatch/tiled_mlp/base.py, 0.18). Forward processes the tiles in turn
// without autograd. Backward recomputes each tile, runs its backward pass and sums the gradients of the parameters.
func tiledMLP(n int64, trained []*nn.Parameter, half func(f *frame, x *tensor) *tensor) *trace.Function {
	return &trace.Function{
		Name: "TiledMLPBackward",
		Forward: func(f *frame, ctx *trace.FunctionContext, in []*tensor) []*tensor {
			ctx.SaveForBackward(in[0])
			tiles := f.BindList(in[0].Chunk(n, 1))
			outputs := make([]*tensor, len(tiles))
			list := f.FunctionFrame()
			for i, tile := range tiles {
				outputs[i] = list.Bind(half(list, tile))
			}
			f.BindList(outputs)
			list.End()
			return []*tensor{trace.Cat(1, outputs...)}
		},
		Backward: func(f *frame, ctx *trace.FunctionContext, grads []*tensor) []*tensor {
			b := &tiledBackward{f: f, trained: trained, half: half, incoming: grads[0]}
			return []*tensor{b.run(n, ctx.Saved(0))}
		},
	}
}

type tiledBackward struct {
	f        *frame
	trained  []*nn.Parameter
	half     func(f *frame, x *tensor) *tensor
	incoming *tensor
	sums     []*tensor // gradients of the parameters, summed over tiles
	// The variables output, incoming_grad_shard and shard_grad, which outlive a tile.
	output, part, last *tensor
}

// run returns the gradient of x.
func (b *tiledBackward) run(n int64, saved *tensor) *tensor {
	f, t := b.f, b.f.Tape()
	x := f.Bind(saved.Detach())
	dx := f.Bind(x.ZerosLike())
	tiles := f.BindList(x.Chunk(n, 1))
	before := make([]*tensor, len(b.trained))
	for i, p := range b.trained {
		before[i] = p.TakeGrad()
		b.sums = append(b.sums, f.Bind(p.ZerosLike()))
	}
	from := int64(0)
	for _, tile := range tiles {
		b.tile(tile, dx.View(-1).Narrow(0, from, tile.Numel()).View(tile.Shape()...), from)
		from += tile.Numel()
	}
	for i, p := range b.trained {
		if before[i] == nil {
			p.SetGrad(b.sums[i])
			continue
		}
		p.SetGrad(before[i].Add(b.sums[i]))
	}
	for _, g := range before {
		t.Release(g)
	}
	return dx
}

// tile records one iteration of the loop over tiles; dx is the part of the gradient of x that begins at row from.
func (b *tiledBackward) tile(x, dx *tensor, from int64) {
	f, t := b.f, b.f.Tape()
	x.Leaf().AccumulateInto(dx)
	f.Set(&b.part, b.incoming.View(-1).Narrow(0, from, x.Numel()).View(x.Shape()...))
	t.EnableGrad(func() { f.Set(&b.output, b.half(f, x)) })
	trace.Backward([]*tensor{b.output}, []*tensor{b.part})
	for i, p := range b.trained {
		g := p.Grad()
		if g == nil {
			continue
		}
		f.Set(&b.last, g.Detach())
		b.sums[i].AddInPlace(b.last)
		p.ZeroGrad()
	}
}
