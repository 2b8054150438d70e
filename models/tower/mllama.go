package tower

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// Tiled describes how MllamaVisionModel cuts an image into tiles: at most Tiles of them, in one of Shapes arrangements.
// Global is the number of layers that attend over all tiles of an image.
type Tiled struct{ Tiles, Shapes, Global int64 }

// Mllama returns the modules of MllamaVisionModel. s.Positions is the number of patches of a tile.
func Mllama(s Size, t Tiled) *nn.NamedModule {
	p := (&nn.NamedModule{}).AddParameter("class_embedding", s.Width).Add("patch_embedding",
		newPatchConv(s.Channels, s.Width, false, s.Patch, s.Patch))
	places := s.Positions + 1
	p.AddChild("gated_positional_embedding").AddParameter("gate", 1).AddParameter("embedding", places,
		s.Width).Add("tile_embedding", nn.NewEmbedding(t.Shapes+1, t.Tiles*places*s.Width))
	for _, name := range []string{"pre_tile_positional_embedding", "post_tile_positional_embedding"} {
		p.AddChild(name).AddParameter("gate", 1).Add("embedding", nn.NewEmbedding(t.Shapes+1, t.Tiles*s.Width))
	}
	p.Add("layernorm_pre", nn.NewLayerNorm(s.Width)).Add("layernorm_post", nn.NewLayerNorm(s.Width))
	addMllamaLayers(p.AddChild("transformer"), s, s.Layers, false)
	addMllamaLayers(p.AddChild("global_transformer"), s, t.Global, true)
	return p
}

func addMllamaLayers(p *nn.NamedModule, s Size, n int64, gated bool) {
	addLayers(p.AddChild("layers"), n, func(l *nn.NamedModule) {
		if gated {
			l.AddParameter("gate_attn", 1).AddParameter("gate_ffn", 1)
		}
		addProjections(l.AddChild("self_attn"), s.Width, false, "q_proj", "k_proj", "v_proj", "o_proj")
		l.AddChild("mlp").Add("fc1", nn.NewLinear(s.Width, s.Inner, true)).Add("fc2",
			nn.NewLinear(s.Inner, s.Width, true))
		l.Add("input_layernorm", nn.NewLayerNorm(s.Width)).Add("post_attention_layernorm", nn.NewLayerNorm(s.Width))
	})
}

// MllamaImages encodes images, cut into tiles, with Mllama's tower. Cross-attention layers read the result.
type MllamaImages struct {
	Tower     *nn.NamedModule
	Projector *nn.NamedModule // what holds it
	Size      Size
	Tiled     Tiled
	// States are the layers whose hidden states the tower returns besides the last layer's.
	States []int64
	Images ImageBatch

	pixels, shapes, tiles, among *tensor
	grads                        bool
}

// ReplacesTokens returns false, for [Vision]: images replace no tokens, since cross-attention layers read them.
func (q *MllamaImages) ReplacesTokens() bool { return false }

// Load copies the images of a batch to the device, for [Vision].
func (q *MllamaImages) Load(t *trace.Tape, rows int64) {
	s, n := q.Size, q.Images.PerRow
	q.pixels = newBatchTensor(t, trace.F32, rows, n, q.Tiled.Tiles, s.Channels, s.Image, s.Image)
	q.shapes = newBatchTensor(t, trace.I64, rows, n)
	q.tiles = newBatchTensor(t, trace.I64, rows, n, q.Tiled.Tiles)
	q.among = newBatchTensor(t, trace.I64, rows, q.Images.Length, n, q.Tiled.Tiles)
}

// RequireGrads makes the tower's first result require gradients, for [Vision].
func (q *MllamaImages) RequireGrads() { q.grads = true }

// Encode records the image part of MllamaModel.forward, for [Vision].
func (q *MllamaImages) Encode(f *frame, _, _, _ *tensor, _ hf.Text) DecoderInputs {
	out := f.Bind(q.encodeImages(f))
	places := q.Size.Positions + 1
	states := f.Call(q.Projector.ChildAt("multi_modal_projector"), out)
	states = f.Bind(states.Reshape(-1, places, states.Size(-1)))
	mask, rows := q.crossMask(f, places)
	return DecoderInputs{Cross: []*tensor{states, f.Bind(mask), f.Bind(rows)}}
}

// crossMask records _prepare_cross_attention_mask of transformers' Mllama: which image states each token attends to,
// and which tokens attend to any.
func (q *MllamaImages) crossMask(f *frame, places int64) (mask, rows *tensor) {
	g := f.FunctionFrame(q.among)
	b, d := q.among.Size(0), q.patchType()
	mask = g.Bind(q.among.RepeatInterleave(places, 3))
	g.Set(&mask, mask.View(b, q.Images.Length, -1))
	g.Set(&mask, mask.Unsqueeze(1))
	inverted := g.Bind(mask.To(trace.F32).RSubScalar().To(d))
	g.Set(&mask, inverted.MaskedFill(inverted.To(trace.Bool)))
	rows = g.Bind(mask.EqScalar().Any(false, -1).To(d).Unsqueeze(-1))
	mask.MulInPlace(rows)
	return g.ReturnPair(mask, rows)
}

// patchType returns the dtype of the patch convolution's weight.
func (q *MllamaImages) patchType() trace.DType {
	return nn.BaseLayerOf(q.Tower.ChildAt("patch_embedding")).(*nn.Conv).Weight.DType
}

// encodeImages records forward of MllamaVisionModel. The result is [rows, images, tiles, patches, width of all states].
func (q *MllamaImages) encodeImages(f *frame) *tensor {
	s, p := q.Size, q.Tower
	rows, images, tiles := q.pixels.Size(0), q.pixels.Size(1), q.Tiled.Tiles
	n, places := rows*images, s.Positions+1
	g := f.ModuleFrame(p, q.pixels, q.shapes, q.tiles)
	patches := g.Call(q.Tower.ChildAt("patch_embedding"),
		q.pixels.View(n*tiles, s.Channels, s.Image, s.Image).To(q.patchType()))
	patches.RequireGrad(q.grads)
	g.Bind(patches)
	x := g.Bind(patches.Flatten(2, -1).Transpose(1, 2))
	g.Set(&x, x.Reshape(n, tiles, -1, s.Width))
	g.Set(&x, q.addTileEmbedding(g, p.ModuleAt("pre_tile_positional_embedding"), x))
	g.Set(&x, x.Reshape(n*tiles, places-1, s.Width))
	g.Set(&x, q.addClassToken(g, x))
	g.Set(&x, x.Reshape(n, tiles, places, s.Width))
	g.Set(&x, q.addPositions(g, p.ModuleAt("gated_positional_embedding"), x))
	g.Set(&x, g.Call(p.ChildAt("layernorm_pre"), x))
	padded := (places + 7) / 8 * 8
	g.Set(&x, x.Pad(0, 0, 0, padded-places))
	mask := g.Bind(q.tileMask(g, n, padded))
	g.Set(&x, x.View(n, -1, s.Width))
	first := q.encode(g, p.ModuleAt("transformer"), s.Layers, false, x, mask)
	g.BindAll(first)
	g.Set(&x, first[len(first)-1])
	g.Set(&x, g.Call(p.ChildAt("layernorm_post"), x))
	g.Set(&x, x.Reshape(n, tiles, padded, s.Width))
	g.Set(&x, q.addTileEmbedding(g, p.ModuleAt("post_tile_positional_embedding"), x))
	g.Set(&x, x.Reshape(n, tiles*padded, s.Width))
	whole := q.encode(g, p.ModuleAt("global_transformer"), q.Tiled.Global, true, x, mask)
	g.BindAll(whole)
	g.Set(&x, whole[len(whole)-1])
	cut := func(x **tensor, width int64) {
		g.Set(x, (*x).Reshape(n, tiles, padded, width))
		g.Set(x, (*x).Slice(2, 0, places))
		g.Set(x, (*x).Reshape(rows, images, tiles, places, width))
	}
	cut(&x, s.Width)
	chosen := lists.Map(q.States, func(i int64) *tensor { return first[i] })
	states := g.Bind(trace.Stack(-1, chosen...))
	cut(&states, s.Width*int64(len(chosen)))
	return g.Return(g.Set(&x, trace.Cat(-1, x, states)))
}

// addTileEmbedding records forward of MllamaPrecomputedAspectRatioEmbedding.
func (q *MllamaImages) addTileEmbedding(f *frame, m *nn.NamedModule, x *tensor) *tensor {
	return callModule(f, m, []*tensor{x, q.shapes}, func(g *frame) *tensor {
		e := g.Bind(g.Call(m.ChildAt("embedding"), q.shapes.View(-1, 1)))
		g.Set(&e, e.Reshape(-1, q.Tiled.Tiles, 1, q.Size.Width))
		g.Set(&e, e.Mul(m.ParameterTensor("gate").Tanh()))
		return g.Set(&x, x.Add(e))
	})
}

// addClassToken records apply_class_embedding of transformers' MllamaVisionModel.
func (q *MllamaImages) addClassToken(f *frame, x *tensor) *tensor {
	g := f.FunctionFrame(x)
	class := g.Bind(q.Tower.ParameterTensor("class_embedding").Expand(x.Size(0), 1, q.Size.Width))
	return g.Return(g.Set(&x, trace.Cat(1, class, x)))
}

// addPositions records forward of MllamaPrecomputedPositionEmbedding.
func (q *MllamaImages) addPositions(f *frame, m *nn.NamedModule, x *tensor) *tensor {
	places := q.Size.Positions + 1
	return callModule(f, m, []*tensor{x, q.shapes}, func(g *frame) *tensor {
		gated := g.Bind(m.ParameterTensor("gate").Tanh().RSubScalar().Mul(m.ParameterTensor("embedding")))
		g.Set(&x, x.Add(gated.View(1, 1, places, q.Size.Width)))
		tile := g.Bind(g.Call(m.ChildAt("tile_embedding"), q.shapes.View(-1, 1)))
		g.Set(&tile, tile.Reshape(x.Size(0), q.Tiled.Tiles, places, q.Size.Width))
		scaled := g.Bind(m.ParameterTensor("gate").Tanh().Mul(tile))
		return g.Set(&x, x.Add(scaled))
	})
}

// tileMask records Mllama's _prepare_aspect_ratio_attention_mask: an additive mask for pairs of patches of n images.
func (q *MllamaImages) tileMask(f *frame, n, padded int64) *tensor {
	d := q.patchType()
	g := f.FunctionFrame(q.tiles)
	m := g.Bind(q.tiles.View(n, q.Tiled.Tiles, 1, 1).To(d))
	g.Set(&m, m.Repeat(1, 1, padded, 1))
	g.Set(&m, m.RSubScalar())
	g.Set(&m, m.Reshape(n, q.Tiled.Tiles*padded, 1))
	g.Set(&m, m.Matmul(m.Transpose(-1, -2)).MulScalar())
	return g.Return(g.Set(&m, m.Unsqueeze(1)))
}

// encode returns the hidden states after each layer of MllamaVisionEncoder, which has no activation checkpointing.
func (q *MllamaImages) encode(f *frame, m *nn.NamedModule, layers int64, gated bool, x, mask *tensor) []*tensor {
	g := f.ModuleFrame(m, x, mask)
	g.Bind(x)
	var states []*tensor
	for i := range layers {
		l := m.ModuleAt(elementPath("layers", i))
		forward := func(h *frame) *tensor { return q.forwardLayer(h, l, x, mask, gated) }
		g.Set(&x, callModule(g, l, []*tensor{x, mask}, forward))
		states = append(states, g.Bind(x))
	}
	g.End(states...)
	return states
}

// forwardLayer records forward of MllamaVisionEncoderLayer.
func (q *MllamaImages) forwardLayer(f *frame, l *nn.NamedModule, x, mask *tensor, gated bool) *tensor {
	through := func(gate string) {
		if gated {
			f.Set(&x, l.ParameterTensor(gate).Tanh().Mul(x))
		}
	}
	residual := f.Bind(x)
	f.Set(&x, f.Call(l.ChildAt("input_layernorm"), x))
	f.Set(&x, selfAttention(f, l.ModuleAt("self_attn"), x, mask, q.Size, "o_proj", true))
	through("gate_attn")
	f.Set(&x, residual.Add(x))
	f.Set(&residual, x)
	f.Set(&x, f.Call(l.ChildAt("post_attention_layernorm"), x))
	f.Set(&x, feedForwardInSteps(f, l.ModuleAt("mlp"), q.Size.Activation, x))
	through("gate_ffn")
	return f.Set(&x, residual.Add(x))
}

// StatesWithin reports whether all numbers in states are indices of existing layers.
func StatesWithin(states []int64, layers int64) bool {
	return !slices.ContainsFunc(states, func(i int64) bool { return i >= layers })
}
