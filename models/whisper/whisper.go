// Package whisper is Whisper as in transformers, trained to transcribe audio clips. Linear layers are fields of type
// Layer, so that adapters can replace them.
package whisper

import (
	"cmp"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// Config has the fields of WhisperConfig that affect memory.
type Config struct {
	Vocab, Width, MelBins            int64
	EncoderLayers, DecoderLayers     int64
	EncoderHeads, DecoderHeads       int64
	EncoderInner, DecoderInner       int64
	SourcePositions, TargetPositions int64
	// Dropout probabilities: of the residual stream, of attention weights, and after the activation.
	Dropout, AttentionDropout, ActivationDropout float64
	// Activation is the name of an activation function, see [hf.Activations].
	Activation string
	// Untied reports whether the output layer has a weight of its own.
	Untied bool
	// TrainedPositions trains the encoder's position embeddings, which transformers freezes.
	TrainedPositions bool
}

// attention is WhisperAttention: self-attention, or cross-attention to the encoder's output.
type attention struct {
	nn.Module
	KProj, VProj, QProj, OutProj nn.Layer
	heads                        int64
	causal                       bool
	dropout                      float64
}

func newAttention(c Config, heads int64, causal bool) *attention {
	linear := func(bias bool) *nn.Linear { return nn.NewLinear(c.Width, c.Width, bias) }
	return &attention{
		KProj: linear(false), VProj: linear(true), QProj: linear(true), OutProj: linear(true),
		heads: heads, causal: causal, dropout: c.AttentionDropout,
	}
}

// call computes attention from x to states, or to x itself if states is nil.
func (a *attention) call(f *frame, x, states, mask *tensor) *tensor {
	g := f.ModuleFrame(a, x, states, mask)
	size := x.Size(-1) / a.heads
	q := g.Bind(hf.SplitHeads(g.Call(a.QProj, x).MulScalar(), size).Contiguous())
	states = cmp.Or(states, x)
	k := g.Bind(hf.SplitHeads(g.Call(a.KProj, states), size).Contiguous())
	v := g.Bind(hf.SplitHeads(g.Call(a.VProj, states), size).Contiguous())
	o := hf.AttentionOptions{Causal: a.causal, Dropout: hf.DropoutInMode(a, a.dropout)}
	y := g.Bind(hf.Attention(g, q, k, v, mask, o))
	g.Set(&y, hf.MergeHeads(y))
	return g.Return(g.Set(&y, g.Call(a.OutProj, y)))
}

// layer is WhisperEncoderLayer, or WhisperDecoderLayer if EncoderAttn is set.
type layer struct {
	nn.Module
	SelfAttn             *attention
	SelfAttnLayerNorm    *nn.LayerNorm
	EncoderAttn          *attention
	EncoderAttnLayerNorm *nn.LayerNorm
	ActivationFn         *nn.FuncLayer
	Fc1, Fc2             nn.Layer
	FinalLayerNorm       *nn.LayerNorm
	c                    Config
}

func newDecoderLayer(c Config) *layer {
	l := newLayer(c, c.DecoderHeads, c.DecoderInner, true)
	l.EncoderAttn, l.EncoderAttnLayerNorm = newAttention(c, c.DecoderHeads, false), nn.NewLayerNorm(c.Width)
	return l
}

func newLayer(c Config, heads, inner int64, causal bool) *layer {
	return &layer{
		SelfAttn: newAttention(c, heads, causal), SelfAttnLayerNorm: nn.NewLayerNorm(c.Width),
		ActivationFn: hf.Activation(c.Activation),
		Fc1:          nn.NewLinear(c.Width, inner, true), Fc2: nn.NewLinear(inner, c.Width, true),
		FinalLayerNorm: nn.NewLayerNorm(c.Width), c: c,
	}
}

// forward records the layer's forward; args are hidden states, a mask, and the encoder's output.
func (l *layer) forward(f *frame, args []*tensor) *tensor {
	x, mask, states := args[0], args[1], args[2]
	residual := f.Bind(x)
	// add records the end of a residual branch: dropout, and the sum with the branch's input.
	add := func() {
		f.Set(&x, x.Dropout(l.c.Dropout, l.Training()))
		f.Set(&x, residual.Add(x))
	}
	f.Set(&x, f.Call(l.SelfAttnLayerNorm, x))
	f.Set(&x, l.SelfAttn.call(f, x, nil, mask))
	add()
	if l.EncoderAttn != nil {
		f.Set(&residual, x)
		f.Set(&x, f.Call(l.EncoderAttnLayerNorm, x))
		f.Set(&x, l.EncoderAttn.call(f, x, states, nil))
		add()
	}
	f.Set(&residual, x)
	f.Set(&x, f.Call(l.FinalLayerNorm, x))
	f.Set(&x, f.Call(l.ActivationFn, f.Call(l.Fc1, x)))
	f.Set(&x, x.Dropout(l.c.ActivationDropout, l.Training()))
	f.Set(&x, f.Call(l.Fc2, x))
	add()
	return x
}

const positionsSetting = "encoder-positions"

// PositionsSetting returns the setting that trains the encoder's position embeddings.
func PositionsSetting() models.Setting {
	return models.SwitchSetting(positionsSetting, 1, "1 if the encoder's positions are trained with all other "+
		"parameters, 0 if they stay sinusoids, as transformers leaves them")
}

// Transcription returns the task of transcribing audio clips.
func Transcription(c Config, k models.Case) train.Adaptable {
	text := hf.TextOf(k)
	c.TrainedPositions = k.IsSwitchOn(positionsSetting)
	net := newConditionalGeneration(c)
	return &train.SupervisedTask{
		Net: net, Last: net.ProjOut, Embeddings: []nn.Layer{net.ProjOut},
		RequireGrads: func() {
			net.Model.Encoder.requireGrads = true
			net.Model.Decoder.EmbedTokens.RequireGrads()
		},
		Sample: func(t *trace.Tape, n int64) (features, labels *tensor) {
			return t.New("randn", program.Batch, trace.F32, n, c.MelBins, 2*c.SourcePositions),
				t.New("randint", program.Batch, trace.I64, n, text.Length)
		},
		Learn: func(f *frame, features, labels *tensor, loss **tensor) {
			f.Set(loss, net.call(f, features, labels, text.Packed, text.Checkpointing))
			f.Tape().Mark("forward")
		},
	}
}
