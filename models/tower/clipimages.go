package tower

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// CLIPImages encodes images with CLIP's or SigLIP's tower, in the one size that the tower accepts.
type CLIPImages struct {
	Tower *nn.NamedModule
	Size  Size
	// Classed reports whether the tower is CLIP's, which has a class token for each image.
	Classed bool
	Images  ImageBatch
	// Projected projects the tower's hidden states to the image tokens of the decoder.
	Projected func(f *frame, states States) *tensor
	// Masked returns the masks of a decoder in which the tokens of an image attend to each other in both directions,
	// from its ids, token kinds and padding mask; nil where the decoder makes its own.
	Masked func(f *frame, ids, kinds, padding *tensor) (full, window *tensor)

	pixels, kinds *tensor
	grads         bool
}

// States are hidden states of a tower [images, patches, width]. Chosen is the output of the selected layer, nil for
// none. Last is the final output, after the last norm if the tower has one.
type States struct{ Chosen, Last *tensor }

// Load copies the images of a batch to the device, for [Vision].
func (q *CLIPImages) Load(t *trace.Tape, rows int64) {
	s := q.Size
	q.pixels = newBatchTensor(t, trace.F32, rows*q.Images.PerRow, s.Channels, s.Image, s.Image)
	if q.Masked != nil {
		q.kinds = newBatchTensor(t, trace.I64, rows, q.Images.Length)
	}
}

// RequireGrads makes the tower's first result require gradients, for [Vision].
func (q *CLIPImages) RequireGrads() { q.grads = true }

// ReplacesTokens returns true, for [Vision]: image features replace placeholder tokens.
func (q *CLIPImages) ReplacesTokens() bool { return true }

// Encode records the image part of LlavaModel.forward and Gemma3Model.forward, for [Vision].
func (q *CLIPImages) Encode(f *frame, ids, padding, embeds *tensor, text hf.Text) DecoderInputs {
	g := f.CallFrame(q.pixels)
	states := q.encodeImages(g, text)
	features := g.Bind(q.Projected(g, states))
	held := append(states.tensors(), features)
	g.End(held...)
	f.BindAll(held)
	if features.NDim() == 3 && q.Masked == nil { // a list of the images'
		features = f.Bind(trace.Cat(0, f.BindAll(features.Unbind(0))...))
	}
	features = f.Bind(features.To(embeds.DType()))
	mask := f.Bind(imageMasks(f, ids, 1)[0])
	f.Set(&embeds, embeds.MaskedScatter(mask, features))
	seen := DecoderInputs{Embeds: embeds, Kept: []*tensor{features}}
	if q.Masked != nil {
		seen.Full, seen.Window = q.Masked(f, ids, q.kinds, padding)
	}
	return seen
}

// encodeImages records forward of CLIPVisionModel or SiglipVisionModel.
func (q *CLIPImages) encodeImages(f *frame, text hf.Text) States {
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
		l := encoder.ModuleAt(elementPath("layers", i))
		h.Set(&y, text.CallLayer(h, int(i), l, func(k *frame, args []*tensor) *tensor {
			return q.forwardLayer(k, l, args[0])
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
	g.End(states.tensors()...)
	f.BindAll(states.tensors())
	return states
}

func (s States) tensors() []*tensor {
	if s.Chosen == nil {
		return []*tensor{s.Last}
	}
	return []*tensor{s.Last, s.Chosen}
}

func (q *CLIPImages) patchEmbeddings(f *frame) *tensor {
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

// forwardLayer records forward of CLIPEncoderLayer and SiglipEncoderLayer.
func (q *CLIPImages) forwardLayer(f *frame, l *nn.NamedModule, x *tensor) *tensor {
	residual := f.Bind(x)
	f.Set(&x, f.Call(l.ChildAt("layer_norm1"), x))
	f.Set(&x, selfAttention(f, l.ModuleAt("self_attn"), x, nil, q.Size, "out_proj", q.Classed))
	f.Set(&x, residual.Add(x))
	f.Set(&residual, x)
	f.Set(&x, f.Call(l.ChildAt("layer_norm2"), x))
	f.Set(&x, feedForwardInSteps(f, l.ModuleAt("mlp"), q.Size.Activation, x))
	return f.Set(&x, residual.Add(x))
}

// LlavaProjected returns LlavaModel's projection of hidden states by two linear layers. cut: the class token of each
// image is removed first.
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

// Gemma3Projected returns the forward of Gemma3MultiModalProjector, which averages patches over squares. An image gets
// tokens × tokens of them.
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

// Gemma3Masks returns a function that records create_masks_for_vision_model: masks of a decoder in which tokens of one
// image attend to each other in both directions.
func Gemma3Masks(window int64) func(f *frame, ids, kinds, padding *tensor) (full, part *tensor) {
	return func(f *frame, ids, kinds, padding *tensor) (full, part *tensor) {
		blocks := f.Bind(imageNumbers(f, kinds))
		full = f.Bind(hf.BlockMask(f, ids.Size(0), ids, padding, blocks, hf.SingleSequence, 0))
		part = f.Bind(hf.BlockMask(f, ids.Size(0), ids, padding, blocks, hf.SingleSequence, window))
		return full, part
	}
}

// imageNumbers records transformers' get_block_sequence_ids_for_mask: the number of each token's image.
func imageNumbers(f *frame, kinds *tensor) *tensor {
	g := f.FunctionFrame(kinds)
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

// Forward returns the normalized x, of the same shape.
func (n *gemmaNorm) Forward(f *frame, x *tensor) *tensor {
	y := f.Bind(hf.GemmaNormalize(f, x.To(trace.F32)))
	f.Set(&y, y.Mul(n.Weight.To(trace.F32).AddScalar()))
	return y.To(x.DType())
}
