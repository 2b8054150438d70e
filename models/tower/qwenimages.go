package tower

import (
	"slices"

	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// QwenImages encodes images with the towers of Qwen2-VL, Qwen2.5-VL and Qwen3-VL, which accept images of any size.
type QwenImages struct {
	Tower  *nn.NamedModule
	Size   Size
	Images ImageBatch
	// Pixels, Grid and Kinds are pixel_values, image_grid_thw and mm_token_type_ids.
	pixels, grid, kinds *tensor
	grads               bool
}

// QwenTokens returns the number of tokens of an image with the given side in pixels, rounded to whole tokens
// (smart_resize).
func QwenTokens(s Size, side int64) int64 {
	n := tokensPerSide(s, side)
	return n * n
}

// tokensPerSide returns the number of tokens along a side of an image. Each token is a square of patches.
func tokensPerSide(s Size, side int64) int64 {
	unit := s.Patch * s.Merge
	return max(1, (side+unit/2)/unit)
}

// patchesPerImage returns the number of patches of an image.
func (q *QwenImages) patchesPerImage() int64 { return q.patchesPerSide() * q.patchesPerSide() }

// patchesPerSide returns the number of patches along a side of an image.
func (q *QwenImages) patchesPerSide() int64 {
	return tokensPerSide(q.Size, q.Images.Side) * q.Size.Merge
}

// imageCount returns the number of images in the batch.
func (q *QwenImages) imageCount() int64 { return q.grid.Size(0) }

// Load copies the images of a batch to the device, for [Vision].
func (q *QwenImages) Load(t *trace.Tape, rows int64) {
	s, n := q.Size, rows*q.Images.PerRow
	q.pixels = newBatchTensor(t, trace.F32, n*q.patchesPerImage(), s.Channels*s.Frames*s.Patch*s.Patch)
	q.grid = newBatchTensor(t, trace.I64, n, 3)
	q.kinds = newBatchTensor(t, trace.I64, rows, q.Images.Length)
}

// RequireGrads makes the tower's first result require gradients, for [Vision]. It has no effect for Qwen3VLVisionModel,
// whose first module transformers does not find.
func (q *QwenImages) RequireGrads() { q.grads = q.Size.Positions == 0 }

// ReplacesTokens returns true, for [Vision]: image features replace placeholder tokens.
func (q *QwenImages) ReplacesTokens() bool { return true }

// Encode records the image part of Qwen2_5_VLModel.forward, for [Vision].
func (q *QwenImages) Encode(f *frame, ids, _, embeds *tensor, text hf.Text) DecoderInputs {
	_, features, deep := q.imageFeatures(f, text)
	images := f.Bind(trace.Cat(0, features...).To(embeds.DType()))
	masks := f.BindAll(imageMasks(f, ids, 2))
	f.Set(&embeds, embeds.MaskedScatter(masks[0], images))
	seen := DecoderInputs{Embeds: embeds}
	if q.Size.Deep > 0 {
		f.Set(&masks[0], masks[0].Select(-1, 0))
		seen.ImageTokens = masks[0]
		for _, d := range deep {
			seen.Deepstack = append(seen.Deepstack, f.Bind(trace.Cat(0, d...)))
		}
	}
	seen.Positions = f.Bind(f.Tape().Zeros(trace.I64, 3, ids.Size(0), ids.Size(1)))
	return seen
}

// imageFeatures records Qwen VL's get_image_features: the tower's last state, the features of each image, and the
// features of deeper layers. All of them live in frame f.
func (q *QwenImages) imageFeatures(f *frame, text hf.Text) (last *tensor, images []*tensor, deep [][]*tensor) {
	g := f.CallFrame(q.pixels, q.grid)
	pixels := g.Bind(q.pixels.To(q.patchEmbed().DType))
	last, merged, each := q.encodeImages(g, pixels, text)
	g.BindAll(append([]*tensor{last, merged}, each...))
	per := merged.Size(0) / q.imageCount()
	images = g.BindAll(merged.Split(per, 0))
	all := append([]*tensor{last}, images...)
	for _, d := range each {
		deep = append(deep, g.BindAll(d.Split(per, 0)))
		all = append(all, deep[len(deep)-1]...)
	}
	g.End(all...)
	f.BindAll(all)
	return last, images, deep
}

func (q *QwenImages) patchEmbed() *nn.Parameter {
	return nn.BaseLayerOf(q.Tower.ChildAt("patch_embed.proj")).(*nn.Conv).Weight
}

// encodeImages records forward of the tower. It returns the output of the last layer, the merged tokens (one for each
// square of patches), and the outputs of deeper layers.
func (q *QwenImages) encodeImages(f *frame, pixels *tensor, text hf.Text) (last, merged *tensor, deep []*tensor) {
	s := q.Size
	g := f.ModuleFrame(q.Tower, pixels, q.grid)
	var taps, weights *tensor
	if s.Positions > 0 {
		taps, weights = q.nearestPositions(g)
	}
	positions := g.Bind(q.positionIDs(g))
	ends := g.Bind(g.Tape().Zeros(trace.I32, q.imageCount()+1))
	var order, windows *tensor
	if s.Window > 0 {
		windows = g.Bind(g.Tape().Zeros(trace.I32, int64(len(q.windowLengths()))*q.imageCount()+1))
	}
	x := g.Bind(q.embedPatches(g, pixels))
	if s.Positions > 0 {
		places := g.Bind(g.Call(q.Tower.ChildAt("pos_embed"), taps).Mul(weights.Unsqueeze(-1)).Sum(false, 1))
		g.Set(&x, x.Add(places.To(x.DType())))
	}
	if s.Window > 0 {
		order = g.Tape().New(movingBatch, 0, trace.I64, x.Size(0)/(s.Merge*s.Merge))
		g.Bind(order)
		g.Set(&x, q.inWindowOrder(x, order))
	}
	cos, sin := q.rotaryAngles(g, positions)
	g.BindAll([]*tensor{cos, sin})
	if s.Window > 0 {
		g.Set(&cos, q.inWindowOrder(cos, order))
		g.Set(&sin, q.inWindowOrder(sin, order))
	}
	for i := range s.Layers {
		l, ends, spans := q.Tower.ModuleAt(elementPath("blocks", i)), ends, []int64{q.patchesPerImage()}
		if s.Window > 0 && !slices.Contains(s.FullAttentionLayers, i) {
			ends, spans = windows, q.windowLengths()
		}
		g.Set(&x, text.CallLayer(g, int(i), l, func(h *frame, args []*tensor) *tensor {
			return q.forwardBlock(h, l, args, spans)
		}, []*tensor{x}, ends, cos, sin))
		if at := slices.Index(s.DeepLayers, i); at >= 0 {
			merger := q.Tower.ModuleAt(elementPath("deepstack_merger_list", int64(at)))
			deep = append(deep, g.Bind(q.mergePatches(g, merger, x)))
		}
	}
	merged = g.Bind(q.mergePatches(g, q.Tower.ModuleAt("merger"), x))
	if s.Window > 0 {
		g.Set(&merged, merged.Index(order))
	}
	g.End(append([]*tensor{x, merged}, deep...)...)
	return x, merged, deep
}

// embedPatches records forward of the patch embedding (PatchEmbed).
func (q *QwenImages) embedPatches(f *frame, pixels *tensor) *tensor {
	s, m := q.Size, q.Tower.ModuleAt("patch_embed")
	y := callModule(f, m, []*tensor{pixels}, func(g *frame) *tensor {
		x := g.Bind(pixels.View(-1, s.Channels, s.Frames, s.Patch, s.Patch))
		return g.Call(m.ChildAt("proj"), x.To(q.patchEmbed().DType)).View(-1, s.Width)
	})
	y.RequireGrad(q.grads)
	return y
}

// inWindowOrder records transformers' permute_input_for_window_attn: it sorts the squares of patches by window.
func (q *QwenImages) inWindowOrder(x, order *tensor) *tensor {
	unit := q.Size.Merge * q.Size.Merge
	return x.Reshape(x.Size(0)/unit, unit, -1).Index(order).Reshape(x.Size(0), -1)
}

// positionIDs records transformers' get_vision_position_ids: the row and the column of each patch [patches, 2].
func (q *QwenImages) positionIDs(f *frame) *tensor {
	g := f.FunctionFrame(q.grid)
	t, n := g.Tape(), q.patchesPerSide()
	var all []*tensor
	for range q.imageCount() {
		h, w := t.Arange(n).View(-1, 1).Expand(n, n), t.Arange(n).View(1, -1).Expand(n, n)
		g.BindAll([]*tensor{h, w})
		blocks := func(x *tensor) *tensor {
			return x.Reshape(n/q.Size.Merge, q.Size.Merge, n/q.Size.Merge, q.Size.Merge).Transpose(1, 2).Flatten(0, -1)
		}
		g.Set(&h, blocks(h))
		g.Set(&w, blocks(w))
		all = append(all, g.Bind(trace.Stack(-1, h, w).Repeat(1, 1)))
	}
	return g.Return(trace.Cat(0, all...))
}

// rotaryAngles records forward of the rotary embedding: cosines and sines [patches, head size].
func (q *QwenImages) rotaryAngles(f *frame, positions *tensor) (cos, sin *tensor) {
	m := q.Tower.ModuleAt("rotary_pos_emb")
	g := f.ModuleFrame(m, positions)
	g.Tape().NoGrad(func() {
		freqs := g.Bind(positions.Unsqueeze(-1).To(trace.F32).Mul(m.BufferTensor(0)))
		cos, sin = g.Bind(freqs.Cos().MulScalar()), g.Bind(freqs.Sin().MulScalar())
		both := func(x *tensor) *tensor {
			h := g.FunctionFrame(x)
			joined := h.Bind(trace.Cat(-1, h.Bind(x.Select(1, 0)), h.Bind(x.Select(1, 1))))
			return h.Return(trace.Cat(-1, joined, joined))
		}
		g.Set(&cos, both(cos))
		g.Set(&sin, both(sin))
	})
	return g.ReturnPair(cos, sin)
}

// windowLengths returns the number of patches in each attention window of an image.
func (q *QwenImages) windowLengths() (lengths []int64) {
	n, side := q.patchesPerSide()/q.Size.Merge, q.Size.Window/q.Size.Patch/q.Size.Merge
	for y := int64(0); y < n; y += side {
		for x := int64(0); x < n; x += side {
			lengths = append(lengths, min(side, n-y)*min(side, n-x)*q.Size.Merge*q.Size.Merge)
		}
	}
	return lengths
}

// forwardBlock records a layer's forward of patches, ends of spans, cosines and sines. Patches attend within spans.
func (q *QwenImages) forwardBlock(f *frame, l *nn.NamedModule, args []*tensor, spans []int64) *tensor {
	x, attn := args[0], l.ModuleAt("attn")
	lengths := slices.Repeat(spans, int(q.imageCount()))
	y := f.Call(l.ChildAt("norm1"), x)
	f.Set(&x, x.Add(callModule(f, attn, []*tensor{y, args[1], args[2], args[3]}, func(g *frame) *tensor {
		return q.forwardAttention(g, attn, y, args[2], args[3], lengths)
	})))
	m, z := l.ModuleAt("mlp"), f.Call(l.ChildAt("norm2"), x)
	switch {
	case q.Size.Gated:
		z = callModule(f, m, []*tensor{z}, func(g *frame) *tensor {
			return g.Call(m.ChildAt("down_proj"),
				g.Call(hf.Activation(q.Size.Activation),
					g.Call(m.ChildAt("gate_proj"), z)).Mul(g.Call(m.ChildAt("up_proj"), z)))
		})
	case q.Size.Positions > 0:
		z = feedForward(f, m, "linear_fc1", q.Size.Activation, "linear_fc2", z)
	default:
		z = feedForward(f, m, "fc1", q.Size.Activation, "fc2", z)
	}
	return f.Set(&x, x.Add(z))
}

// forwardAttention records forward of the tower's attention.
func (q *QwenImages) forwardAttention(f *frame, m *nn.NamedModule, x, cos, sin *tensor, lengths []int64) *tensor {
	n := x.Size(0)
	parts := f.BindAll(f.Call(m.ChildAt("qkv"), x).Reshape(n, 3, q.Size.Heads, -1).Permute(1, 0, 2, 3).Unbind(0))
	turned := applyRotary(f, parts[0], parts[1], cos, sin)
	f.Set(&parts[0], turned[0])
	f.Set(&parts[1], turned[1])
	var spans [3][]*tensor
	for i := range parts {
		f.Set(&parts[i], parts[i].Transpose(0, 1).Unsqueeze(0))
	}
	f.Bind(f.Tape().Zeros(trace.I32, int64(len(lengths))))
	for i := range parts {
		spans[i] = f.BindAll(parts[i].SplitSizes(lengths, 2))
	}
	outputs := make([]*tensor, len(lengths))
	for i := range lengths {
		outputs[i] = f.Bind(hf.Attention(f, spans[0][i], spans[1][i], spans[2][i], nil, hf.AttentionOptions{}))
	}
	y := f.Bind(trace.Cat(1, outputs...))
	f.Set(&y, y.Reshape(n, -1).Contiguous())
	return f.Set(&y, f.Call(m.ChildAt("proj"), y))
}

// applyRotary records transformers' apply_rotary_pos_emb_vision.
func applyRotary(f *frame, q, k, cos, sin *tensor) []*tensor {
	g := f.FunctionFrame(q, k, cos, sin)
	d := q.DType()
	g.Set(&q, q.To(trace.F32))
	g.Set(&k, k.To(trace.F32))
	g.Set(&cos, cos.Unsqueeze(-2).To(trace.F32))
	g.Set(&sin, sin.Unsqueeze(-2).To(trace.F32))
	turn := func(x *tensor) *tensor { return x.Mul(cos).Add(rotateHalf(g, x).Mul(sin)) }
	a := g.Bind(turn(q))
	b := g.Bind(turn(k))
	g.Set(&a, a.To(d))
	g.Set(&b, b.To(d))
	g.End(a, b)
	return []*tensor{a, b}
}

func rotateHalf(f *frame, x *tensor) *tensor {
	g := f.FunctionFrame(x)
	half := x.Size(-1) / 2
	x1, x2 := g.Bind(x.Slice(-1, 0, half)), g.Bind(x.Slice(-1, half, x.Size(-1)))
	return g.Return(trace.Cat(-1, x2.Neg(), x1))
}

// mergePatches records forward of the merger, which merges each square of patches into one token.
func (q *QwenImages) mergePatches(f *frame, m *nn.NamedModule, x *tensor) *tensor {
	square := q.Size.Width * q.Size.Merge * q.Size.Merge
	return callModule(f, m, []*tensor{x}, func(g *frame) *tensor {
		if q.Size.Positions == 0 {
			y, mlp := g.Call(m.ChildAt("ln_q"), x).View(-1, square), m.ModuleAt("mlp")
			g.Set(&x, callModule(g, mlp, []*tensor{y}, func(h *frame) *tensor {
				h.Set(&y, h.Call(mlp.ChildAt("0"), y))
				h.Set(&y, y.GELU())
				return h.Set(&y, h.Call(mlp.ChildAt("2"), y))
			}))
			return x
		}
		y := x
		if m.ChildAt("norm").(*nn.LayerNorm).Weight.Dims[0] == square {
			y = x.View(-1, square)
		}
		g.Set(&x, g.Call(m.ChildAt("norm"), y).View(-1, square))
		return g.Set(&x, g.Call(m.ChildAt("linear_fc2"), g.Call(m.ChildAt("linear_fc1"), x).GELU()))
	})
}

// nearestPositions records transformers' get_vision_interpolation_indices_and_weights: for each patch the four nearest
// positions [patches, 4], and their weights.
func (q *QwenImages) nearestPositions(f *frame) (taps, weights *tensor) {
	n := q.imageCount() * q.patchesPerImage()
	return f.Bind(f.Tape().Zeros(trace.I64, n, 4)), f.Bind(f.Tape().Zeros(trace.F32, n, 4))
}
