package tower

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// ImageBatch describes the images of a batch: their number in each sequence of Length tokens, and their side in pixels.
type ImageBatch struct{ PerRow, Side, Length int64 }

// Vision encodes a batch's images for the decoder.
type Vision interface {
	// Load copies the images of a number of sequences to the device.
	Load(t *trace.Tape, rows int64)
	// RequireGrads makes the tower's first result require gradients although the tower is frozen, as
	// enable_input_require_grads() of transformers does.
	RequireGrads()
	// ReplacesTokens reports whether image features replace placeholder tokens. If not, Encode gets no ids or embeds.
	ReplacesTokens() bool
	// Encode returns the decoder's input. It replaces placeholder tokens in embeds [rows, length, width] by the tower's
	// features. f is the frame of the model's forward, which holds them as variables; padding may be nil.
	Encode(f *frame, ids, padding, embeds *tensor, text hf.Text) DecoderInputs
}

// DecoderInputs is the decoder's input from text and images.
type DecoderInputs struct {
	// Embeds are the embeddings of text and images [rows, length, width] (inputs_embeds).
	Embeds *tensor
	// Positions are position ids by time, height and width [3, rows, length]; nil if the decoder computes them.
	Positions *tensor
	// ImageTokens marks the tokens of images [rows, length]. Deepstack are features that the first layers add to their
	// outputs at these tokens.
	ImageTokens *tensor
	Deepstack   []*tensor
	// Full and Window are the masks of layers with full attention and with a sliding window; both nil if the decoder
	// creates them.
	Full, Window *tensor
	// Cross are the image states for cross-attention layers, the mask of the states that each token attends to, and the
	// tokens that attend to any. Embeds is nil then.
	Cross []*tensor
	// Kept are features that the model returns besides its hidden states.
	Kept []*tensor
}

// AddDeepstack records Qwen3-VL's _deepstack_process: it adds layer i's image features to x [rows, length, width].
func (s DecoderInputs) AddDeepstack(f *frame, x *tensor, i int) *tensor {
	g := f.FunctionFrame(x, s.ImageTokens, s.Deepstack[i])
	deep := g.Bind(s.Deepstack[i].To(x.DType()))
	g.Set(&x, x.Clone())
	there := func() []*tensor {
		found := g.Tape().New("nonzero", program.Temporaries, trace.I64, deep.Size(0), 2)
		return []*tensor{found.Select(1, 0), found.Select(1, 1)}
	}
	sum := g.Bind(x.Index(there()...).Add(deep))
	x.SetItem(sum, there()...)
	return g.Return(x)
}

func newBatchTensor(t *trace.Tape, d trace.DType, shape ...int64) *tensor {
	return t.Hold(t.New(movingBatch, program.Batch, d, shape...))
}

// movingBatch is the C++ function of ATen that copies a batch to the device.
const movingBatch = "to_dtype_layout"

// imageMasks records get_placeholder_mask of transformers: for images and each other kind of input, the mask of their
// placeholder ids and its sum.
func imageMasks(f *frame, ids *tensor, kinds int) []*tensor {
	g := f.FunctionFrame(ids)
	masks := lists.Make(kinds, func(int) *tensor { return g.Bind(ids.EqScalar()) })
	for i := range masks {
		g.Bind(masks[i].Sum(false))
		g.Set(&masks[i], masks[i].Unsqueeze(-1))
	}
	g.End(masks...)
	return masks
}

// callModule records body as the forward of module m, in a new frame.
func callModule(f *frame, m any, args []*tensor, body func(g *frame) *tensor) *tensor {
	g := f.ModuleFrame(m, args...)
	return g.Return(body(g))
}

// feedForward records a feed-forward module: two linear layers with an activation between them.
func feedForward(f *frame, m *nn.NamedModule, first, activation, second string, x *tensor) *tensor {
	return callModule(f, m, []*tensor{x}, func(g *frame) *tensor {
		return g.Call(m.ChildAt(second), g.Call(hf.Activation(activation), g.Call(m.ChildAt(first), x)))
	})
}

// feedForwardInSteps records [feedForward] of a class that assigns each step's result to a variable.
func feedForwardInSteps(f *frame, m *nn.NamedModule, activation string, x *tensor) *tensor {
	return callModule(f, m, []*tensor{x}, func(g *frame) *tensor {
		g.Pass(&x, m.ChildAt("fc1"), hf.Activation(activation), m.ChildAt("fc2"))
		return x
	})
}

// selfAttention records forward of an attention module with separate projections of query, key and value. output is the
// name of the output projection. splitLast: heads are split after all three projections.
func selfAttention(f *frame, m *nn.NamedModule, x, mask *tensor, s Size, output string, splitLast bool) *tensor {
	heads := func(y *tensor) *tensor { return hf.SplitHeads(y, s.Width/s.Heads) }
	return callModule(f, m, []*tensor{x, mask}, func(g *frame) *tensor {
		var qkv [3]*tensor
		for i, name := range []string{"q_proj", "k_proj", "v_proj"} {
			if qkv[i] = g.Call(m.ChildAt(name), x); !splitLast {
				qkv[i] = heads(qkv[i])
			}
			g.Bind(qkv[i])
		}
		for i := range qkv {
			if splitLast {
				g.Set(&qkv[i], heads(qkv[i]))
			}
		}
		y := g.Bind(hf.Attention(g, qkv[0], qkv[1], qkv[2], mask, hf.AttentionOptions{}))
		g.Set(&y, hf.MergeHeads(y))
		return g.Set(&y, g.Call(m.ChildAt(output), y))
	})
}
