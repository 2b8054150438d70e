package tower

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// ImageBatch is the shape of a batch's images: how many a row of Length tokens has, and their side in pixels.
type ImageBatch struct{ PerRow, Side, Length int64 }

// Vision encodes a batch's images and inserts them among the tokens.
type Vision interface {
	// Load brings the images of some rows to the device.
	Load(t *trace.Tape, rows int64)
	// RequireGrads makes the tower's first result require gradients although the tower is frozen, as
	// enable_input_require_grads() of transformers does.
	RequireGrads()
	// ReplacesTokens reports whether features replace tokens; else it leaves tokens alone, and Encode is given none.
	ReplacesTokens() bool
	// Encode replaces the tokens of images by the tower's features among embeddings [rows, length, width], in the frame
	// of the model that binds them; padding may be nil.
	Encode(f *frame, ids, padding, embeds *tensor, text hf.Text) DecoderInputs
}

// DecoderInputs is a decoder's input from text and images.
type DecoderInputs struct {
	// Embeds are the embeddings [rows, length, width] (inputs_embeds).
	Embeds *tensor
	// Positions are those in time, height and width [3, rows, length]; nil where the decoder counts its tokens.
	Positions *tensor
	// ImageTokens marks the tokens of images [rows, length]; Deepstack are features that are added at these tokens to
	// the output of the first layers.
	ImageTokens *tensor
	Deepstack   []*tensor
	// Full and Window are the masks of layers that see all before them and of layers with a
	// window; both nil where the decoder makes its own.
	Full, Window *tensor
	// Cross are the states of images that separate layers attend to, the mask of the states that each token attends to,
	// and the tokens that attend to any; Embeds are nil then.
	Cross []*tensor
	// Kept are features that the model returns besides its states.
	Kept []*tensor
}

// AddDeepstack follows _deepstack_process: x [rows, length, width] with the features of layer i added where images are.
func (s DecoderInputs) AddDeepstack(f *frame, x *tensor, i int) *tensor {
	g := f.FuncFrame(x, s.ImageTokens, s.Deepstack[i])
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

func batchOf(t *trace.Tape, d trace.DType, shape ...int64) *tensor {
	return t.Hold(t.New(movingBatch, program.Batch, d, shape...))
}

// movingBatch is the native function that copies a batch to the device.
const movingBatch = "to_dtype_layout"

// imagePlaces follows get_placeholder_mask: masks of the ids that are placeholders of images, and of other inputs. It
// also sums each mask.
func imagePlaces(f *frame, ids *tensor, kinds int) []*tensor {
	g := f.FuncFrame(ids)
	masks := lists.Make(kinds, func(int) *tensor { return g.Bind(ids.EqScalar()) })
	for i := range masks {
		g.Bind(masks[i].Sum(false))
		g.Set(&masks[i], masks[i].Unsqueeze(-1))
	}
	g.End(masks...)
	return masks
}

// callModule runs the body of a module in a new frame.
func callModule(f *frame, m any, args []*tensor, body func(g *frame) *tensor) *tensor {
	g := f.ModuleFrame(m, args...)
	return g.Return(body(g))
}

// feedForward runs a feed-forward half of two layers with an activation between them.
func feedForward(f *frame, m *nn.NamedModule, first, activation, second string, x *tensor) *tensor {
	return callModule(f, m, []*tensor{x}, func(g *frame) *tensor {
		return g.Call(m.ChildAt(second), g.Call(hf.Activation(activation), g.Call(m.ChildAt(first), x)))
	})
}

// feedForwardInSteps follows [feedForward] for a class that binds the result of each step to a name.
func feedForwardInSteps(f *frame, m *nn.NamedModule, activation string, x *tensor) *tensor {
	return callModule(f, m, []*tensor{x}, func(g *frame) *tensor {
		g.Pass(&x, m.ChildAt("fc1"), hf.Activation(activation), m.ChildAt("fc2"))
		return x
	})
}

// selfAttention follows forward of an attention module with separate projections of query, key and value, and a layer
// named output for the result. splitLast splits heads after all three projections.
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
