package whisper

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// encoder is WhisperEncoder: two convolutions over log-mel frames, and encoder layers.
type encoder struct {
	nn.Module
	Conv1, Conv2   *nn.Conv
	EmbedPositions *nn.Embedding
	Layers         []*layer
	LayerNorm      *nn.LayerNorm
	dropout        float64
	requireGrads   bool // of what the first convolution makes
}

func newEncoder(c Config) *encoder {
	e := &encoder{
		Conv1: nn.NewConv(c.MelBins, c.Width, nn.ConvOptions{Kernel: []int64{3}, Padding: []int64{1}}),
		Conv2: nn.NewConv(c.Width, c.Width,
			nn.ConvOptions{Kernel: []int64{3}, Stride: []int64{2}, Padding: []int64{1}}),
		EmbedPositions: nn.NewEmbedding(c.SourcePositions, c.Width),
		LayerNorm:      nn.NewLayerNorm(c.Width),
		dropout:        c.Dropout,
	}
	e.EmbedPositions.Weight.Frozen = !c.TrainedPositions
	e.Layers = lists.Make(c.EncoderLayers, func(int64) *layer {
		return newLayer(c, c.EncoderHeads, c.EncoderInner, false)
	})
	return e
}

// call maps log-mel frames [batch, bins, 2*positions] to hidden states [batch, positions, width].
func (e *encoder) call(f *frame, features *tensor, checkpointing bool) *tensor {
	g := f.CallFrame(features)
	first := g.Call(e.Conv1, features)
	first.RequireGrad(e.requireGrads)
	y := g.Bind(first.GELU())
	g.Set(&y, g.Call(e.Conv2, y).GELU())
	g.Set(&y, y.Permute(0, 2, 1))
	positions := g.Bind(g.Tape().Arange(e.EmbedPositions.Weight.Dims[0]))
	x := g.Bind(y.Add(g.Call(e.EmbedPositions, positions)))
	g.Set(&x, x.Dropout(e.dropout, e.Training()))
	for _, l := range e.Layers {
		g.Set(&x, hf.CallLayer(g, l, checkpointing, l.forward, x, nil, nil))
	}
	return g.Return(g.Set(&x, g.Call(e.LayerNorm, x)))
}

// positionalEmbedding is WhisperPositionalEmbedding, which indexes its weight by position.
type positionalEmbedding struct {
	nn.Module
	Weight *nn.Parameter
}

func (e *positionalEmbedding) call(f *frame, ids, positions *tensor) *tensor {
	g := f.CallFrame(ids, positions)
	return g.Return(e.Weight.Index(positions))
}

type decoder struct {
	nn.Module
	EmbedTokens    *nn.Embedding
	EmbedPositions *positionalEmbedding
	Layers         []*layer
	LayerNorm      *nn.LayerNorm
	dropout        float64
}

func newDecoder(c Config) *decoder {
	return &decoder{
		EmbedTokens:    nn.NewEmbedding(c.Vocab, c.Width),
		EmbedPositions: &positionalEmbedding{Weight: nn.NewParameter(c.TargetPositions, c.Width)},
		LayerNorm:      nn.NewLayerNorm(c.Width),
		Layers:         lists.Make(c.DecoderLayers, func(int64) *layer { return newDecoderLayer(c) }),
		dropout:        c.Dropout,
	}
}

// call maps token ids [batch, length] and the encoder's output to hidden states [batch, length, width]. packed tells
// how many sequences share a row.
func (d *decoder) call(f *frame, ids, states *tensor, packed hf.Packing, checkpointing bool) *tensor {
	g := f.CallFrame(ids, states)
	embeds := g.Bind(g.Call(d.EmbedTokens, ids))
	positions := g.Bind(g.Tape().Arange(ids.Size(1)).AddScalar())
	g.Set(&positions, positions.Unsqueeze(0).Repeat(ids.Size(0), 1))
	positionEmbeds := g.Bind(d.EmbedPositions.call(g, ids, positions))
	x := g.Bind(embeds.Add(positionEmbeds))
	g.Set(&x, x.Dropout(d.dropout, d.Training()))
	mask := hf.CausalMask(g, ids.Size(0), positions, nil, packed)
	g.BindEach(mask)
	for _, l := range d.Layers {
		g.Set(&x, hf.CallLayer(g, l, checkpointing, l.forward, x, mask, states))
	}
	return g.Return(g.Set(&x, g.Call(d.LayerNorm, x)))
}

// Model is WhisperModel.
type Model struct {
	nn.Module
	Encoder *encoder
	Decoder *decoder
}

// conditionalGeneration is WhisperForConditionalGeneration, whose output layer usually shares the embeddings' weight.
type conditionalGeneration struct {
	nn.Module
	Model   *Model
	ProjOut *nn.Linear
}

func newConditionalGeneration(c Config) *conditionalGeneration {
	m := &Model{Encoder: newEncoder(c), Decoder: newDecoder(c)}
	out := &nn.Linear{Weight: m.Decoder.EmbedTokens.Weight}
	if c.Untied {
		out = nn.NewLinear(c.Width, c.Vocab, false)
	}
	return &conditionalGeneration{Model: m, ProjOut: out}
}

// call returns the loss of predicting labels [batch, length] from log-mel frames.
func (m *conditionalGeneration) call(f *frame, features, labels *tensor, packed hf.Packing,
	checkpointing bool,
) *tensor {
	g := f.ModuleFrame(m, features, labels)
	features = g.Argument(features)
	ids := g.Bind(shiftRight(g, labels))
	h := g.CallFrame(features, ids)
	states := h.Bind(m.Model.Encoder.call(h, features, checkpointing))
	x := m.Model.Decoder.call(h, ids, states, packed, checkpointing)
	h.End(x, states)
	g.BindEach(states, x)
	logits := g.Bind(g.Call(m.ProjOut, x))
	loss := g.Bind(logits.View(-1, logits.Size(-1)).CrossEntropy(labels.Reshape(-1)))
	return hf.EndWithLoss(g, loss, logits, states)
}

// shiftRight records shift_tokens_right of transformers' Whisper: the decoder's input ids for predicting labels.
func shiftRight(f *frame, ids *tensor) *tensor {
	g := f.FunctionFrame(ids)
	shifted := g.Bind(g.Tape().Filled("new_zeros", trace.I64, ids.Shape()...))
	n := ids.Size(1)
	g.Discard(shifted.Slice(1, 1, n).CopyInPlace(ids.Slice(1, 0, n-1).Clone()))
	shifted.MaskedFillInPlace(shifted.EqScalar())
	return g.Return(shifted)
}
