package tower

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// Squares runs CLIP's or SigLIP's tower on images of the size that the tower is made for.
type Squares struct {
	Tower *nn.NamedModule
	Size  Size
	// Classed reports whether the tower is CLIP's, with a place for the class of an image.
	Classed bool
	Images  ImageBatch
	// Projected projects the states of the tower to the tokens of all images.
	Projected func(f *frame, states States) *tensor
	// Masked makes the masks of a decoder whose tokens of an image see each other both ways, of
	// its ids and their padding mask; nil where it makes its own.
	Masked func(f *frame, ids, kinds, padding *tensor) (full, window *tensor)

	pixels, kinds *tensor
	grads         bool
}

// States are the hidden states of a tower for images [images, patches, width]: Chosen is the output of the selected
// layer, nil for none, and Last the final output, after the last norm if the tower has one there.
type States struct{ Chosen, Last *tensor }

// Load implements [Vision].
func (q *Squares) Load(t *trace.Tape, rows int64) {
	s := q.Size
	q.pixels = batchOf(t, trace.F32, rows*q.Images.PerRow, s.Channels, s.Image, s.Image)
	if q.Masked != nil {
		q.kinds = batchOf(t, trace.I64, rows, q.Images.Length)
	}
}

// RequireGrads implements [Vision].
func (q *Squares) RequireGrads() { q.grads = true }

// ReplacesTokens implements [Vision].
func (q *Squares) ReplacesTokens() bool { return true }

// Encode implements [Vision], as LlavaModel.forward and Gemma3Model.forward do.
func (q *Squares) Encode(f *frame, ids, padding, embeds *tensor, text hf.Text) DecoderInputs {
	g := f.CallFrame(q.pixels)
	states := q.encodeImages(g, text)
	features := g.Bind(q.Projected(g, states))
	held := append(states.held(), features)
	g.End(held...)
	f.BindAll(held)
	if features.NDim() == 3 && q.Masked == nil { // a list of the images'
		features = f.Bind(trace.Cat(0, f.BindAll(features.Unbind(0))...))
	}
	features = f.Bind(features.To(embeds.DType()))
	mask := f.Bind(imagePlaces(f, ids, 1)[0])
	f.Set(&embeds, embeds.MaskedScatter(mask, features))
	seen := DecoderInputs{Embeds: embeds, Kept: []*tensor{features}}
	if q.Masked != nil {
		seen.Full, seen.Window = q.Masked(f, ids, q.kinds, padding)
	}
	return seen
}

// encodeImages follows forward of the tower.
func (q *Squares) encodeImages(f *frame, text hf.Text) States {
	g := f.ModuleFrame(q.Tower, q.pixels)
	x := g.Bind(q.patchEmbeddings(g))
	if q.Classed {
		g.Set(&x, g.Call(q.Tower.ChildAt("pre_layrnorm"), x))
	}
	var states States
	encoder := q.Tower.ModuleAt("encoder")
	h := g.ModuleFrame(encoder, x)
	y := h.Bind(x)
	for i := range q.Size.Layers {
		l := encoder.ModuleAt(indexed("layers", i))
		h.Set(&y, text.CallLayer(h, int(i), l, func(k *frame, args []*tensor) *tensor {
			return q.layer(k, l, args[0])
		}, []*tensor{y}))
		if q.Size.FeatureLayer == i-q.Size.Layers {
			states.Chosen = g.Bind(y)
		}
	}
	h.End(y)
	states.Last = g.Bind(y)
	if q.Classed {
		g.Bind(g.Call(q.Tower.ChildAt("post_layernorm"), y.Select(1, 0)))
	} else {
		g.Set(&states.Last, g.Call(q.Tower.ChildAt("post_layernorm"), y))
	}
	g.End(states.held()...)
	f.BindAll(states.held())
	return states
}

func (s States) held() []*tensor {
	if s.Chosen == nil {
		return []*tensor{s.Last}
	}
	return []*tensor{s.Last, s.Chosen}
}

func (q *Squares) patchEmbeddings(f *frame) *tensor {
	m := q.Tower.ModuleAt("embeddings")
	return callModule(f, m, []*tensor{q.pixels}, func(g *frame) *tensor {
		conv := m.ChildAt("patch_embedding")
		x := g.Call(conv, q.pixels.To(nn.BaseLayerOf(conv).(*nn.Conv).Weight.DType))
		x.RequireGrad(q.grads)
		g.Bind(x)
		g.Set(&x, x.Flatten(2, -1).Transpose(1, 2))
		if q.Classed {
			class := g.Bind(m.ParameterTensor("class_embedding").Expand(x.Size(0), 1, -1))
			x = g.Bind(trace.Cat(1, class, x))
		}
		return g.Set(&x, x.Add(g.Call(m.ChildAt("position_embedding"), m.BufferTensor(0).View(1, -1))))
	})
}

// layer follows forward of CLIPEncoderLayer and SiglipEncoderLayer.
func (q *Squares) layer(f *frame, l *nn.NamedModule, x *tensor) *tensor {
	residual := f.Bind(x)
	f.Set(&x, f.Call(l.ChildAt("layer_norm1"), x))
	f.Set(&x, selfAttention(f, l.ModuleAt("self_attn"), x, nil, q.Size, "out_proj", q.Classed))
	f.Set(&x, residual.Add(x))
	f.Set(&residual, x)
	f.Set(&x, f.Call(l.ChildAt("layer_norm2"), x))
	f.Set(&x, feedForwardInSteps(f, l.ModuleAt("mlp"), q.Size.Activation, x))
	return f.Set(&x, residual.Add(x))
}

// LlavaProjected returns LlavaModel's projection of the tower's states through two layers; cut removes the class token
// of an image first.
func LlavaProjected(p *nn.NamedModule, activation string, cut bool) func(f *frame, states States) *tensor {
	return func(f *frame, states States) *tensor {
		x := states.Last
		if states.Chosen != nil {
			x = states.Chosen
		}
		f.Bind(x)
		if cut {
			f.Set(&x, x.Slice(1, 1, x.Size(1)))
		}
		return callModule(f, p, []*tensor{x}, func(g *frame) *tensor {
			y := g.Bind(g.Call(p.ChildAt("linear_1"), x))
			g.Pass(&y, hf.Activation(activation), p.ChildAt("linear_2"))
			return y
		})
	}
}

// Gemma3Projected returns the forward pass of Gemma3MultiModalProjector: patches are averaged over squares, with the
// given number of tokens along each side of an image.
func Gemma3Projected(p *nn.NamedModule, s Size, tokens int64) func(f *frame, states States) *tensor {
	return func(f *frame, states States) *tensor {
		return callModule(f, p, []*tensor{states.Last}, func(g *frame) *tensor {
			x, side := states.Last, s.Image/s.Patch
			size := side / tokens
			y := g.Bind(x.Transpose(1, 2))
			g.Set(&y, y.Reshape(x.Size(0), s.Width, side, side))
			g.Set(&y, y.Contiguous())
			pooled := g.Bind(y.AvgPool(trace.PoolArgs{Kernel: []int64{size, size}, Stride: []int64{size, size}}))
			g.Set(&pooled, pooled.Flatten(2, -1))
			g.Set(&pooled, pooled.Transpose(1, 2))
			normed := g.Bind(g.Call(p.ChildAt("mm_soft_emb_norm"), pooled))
			projected := g.Bind(normed.Matmul(p.ParameterTensor("mm_input_projection_weight")))
			return projected.To(x.DType())
		})
	}
}

// Gemma3Masks returns the masks of a decoder in which tokens of one image attend to each other in both directions
// (create_masks_for_vision_model).
func Gemma3Masks(window int64) func(f *frame, ids, kinds, padding *tensor) (full, part *tensor) {
	return func(f *frame, ids, kinds, padding *tensor) (full, part *tensor) {
		blocks := f.Bind(imageBlocks(f, kinds))
		full = f.Bind(hf.BlockMask(f, ids.Size(0), ids, padding, blocks, hf.SingleSequence, 0))
		part = f.Bind(hf.BlockMask(f, ids.Size(0), ids, padding, blocks, hf.SingleSequence, window))
		return full, part
	}
}

// imageBlocks follows get_block_sequence_ids_for_mask: the number of the image that each token is of.
func imageBlocks(f *frame, kinds *tensor) *tensor {
	g := f.FuncFrame(kinds)
	image := g.Bind(kinds.EqScalar())
	before := g.Bind(image.Pad(1, 0).Slice(1, 0, image.Size(1)))
	first := g.Bind(image.And(before.EqScalar()))
	groups := g.Bind(first.To(trace.I32).CumSum(1).AddScalar())
	return g.Return(trace.WhereScalar(image, groups))
}

// gemmaNorm is Gemma3RMSNorm.
type gemmaNorm struct {
	nn.Module
	Weight *nn.Parameter
}

// NewGemmaNorm returns Gemma3RMSNorm, whose weight is added to one.
func NewGemmaNorm(width int64) nn.Layer { return &gemmaNorm{Weight: nn.NewParameter(width)} }

// Forward keeps the shape.
func (n *gemmaNorm) Forward(f *frame, x *tensor) *tensor {
	y := f.Bind(hf.GemmaNormalize(f, x.To(trace.F32)))
	f.Set(&y, y.Mul(n.Weight.To(trace.F32).AddScalar()))
	return y.To(x.DType())
}
