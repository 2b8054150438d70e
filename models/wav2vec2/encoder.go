package wav2vec2

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
)

// attention is Wav2Vec2Attention.
type attention struct {
	nn.Module
	KProj, VProj, QProj, OutProj nn.Layer
	headSize                     int64
	dropout                      float64
}

func newAttention(c Config) *attention {
	linear := func() *nn.Linear { return nn.NewLinear(c.Width, c.Width, true) }
	return &attention{
		KProj: linear(), VProj: linear(), QProj: linear(), OutProj: linear(),
		headSize: c.Width / c.Heads, dropout: c.AttentionDropout,
	}
}

func (a *attention) Forward(f *frame, x *tensor) *tensor {
	y, _ := hf.SelfAttention(f, a, x, nil, a.QProj, a.KProj, a.VProj, a.headSize, a.dropout, false)
	return f.Set(&y, f.Call(a.OutProj, y))
}

func newFeedForward(c Config) *nn.NamedModule {
	return nn.NewChain().
		Add("intermediate_dense", nn.NewLinear(c.Width, c.Inner, true)).
		Add("intermediate_act_fn", hf.Activation(c.Activation)).
		Add("intermediate_dropout", nn.NewDropout(c.ActivationDropout)).
		Add("output_dense", nn.NewLinear(c.Inner, c.Width, true)).
		Add("output_dropout", nn.NewDropout(c.HiddenDropout))
}

// encoderLayer is Wav2Vec2EncoderLayer, or with StableLayerNorm Wav2Vec2EncoderLayerStableLayerNorm.
type encoderLayer struct {
	nn.Module
	Attention      *attention
	Dropout        *nn.Dropout
	LayerNorm      *nn.LayerNorm
	FeedForward    *nn.NamedModule
	FinalLayerNorm *nn.LayerNorm
	stable         bool
}

func newEncoderLayer(c Config) *encoderLayer {
	return &encoderLayer{
		Attention: newAttention(c), Dropout: nn.NewDropout(c.HiddenDropout), LayerNorm: nn.NewLayerNorm(c.Width),
		FeedForward: newFeedForward(c), FinalLayerNorm: nn.NewLayerNorm(c.Width), stable: c.StableLayerNorm,
	}
}

// forward records the layer's forward; args are the hidden states.
func (l *encoderLayer) forward(f *frame, args []*tensor) *tensor {
	x := args[0]
	residual := f.Bind(x)
	if l.stable {
		f.Set(&x, f.Call(l.LayerNorm, x))
	}
	f.Pass(&x, l.Attention, l.Dropout)
	f.Set(&x, residual.Add(x))
	if l.stable {
		return f.Set(&x, x.Add(f.Call(l.FeedForward, f.Call(l.FinalLayerNorm, x))))
	}
	f.Set(&x, f.Call(l.LayerNorm, x))
	f.Set(&x, x.Add(f.Call(l.FeedForward, x)))
	return f.Set(&x, f.Call(l.FinalLayerNorm, x))
}

// encoder is Wav2Vec2Encoder or Wav2Vec2EncoderStableLayerNorm.
type encoder struct {
	nn.Module
	PosConvEmbed *positionalConv
	LayerNorm    *nn.LayerNorm
	Dropout      *nn.Dropout
	Layers       []*encoderLayer
	stable       bool
}

func newEncoder(c Config) *encoder {
	return &encoder{
		PosConvEmbed: newPositionalConv(c), LayerNorm: nn.NewLayerNorm(c.Width),
		Dropout: nn.NewDropout(c.HiddenDropout),
		stable:  c.StableLayerNorm,
		Layers:  lists.Make(c.Layers, func(int64) *encoderLayer { return newEncoderLayer(c) }),
	}
}

func (e *encoder) call(f *frame, x *tensor, checkpointing bool) *tensor {
	g := f.CallFrame(x)
	positionEmbeds := g.Bind(g.Call(e.PosConvEmbed, x))
	g.Set(&x, x.Add(positionEmbeds))
	if !e.stable {
		g.Set(&x, g.Call(e.LayerNorm, x))
	}
	g.Set(&x, g.Call(e.Dropout, x))
	for _, l := range e.Layers {
		g.Set(&x, hf.CallLayer(g, l, checkpointing, l.forward, x))
	}
	if e.stable {
		g.Set(&x, g.Call(e.LayerNorm, x))
	}
	return g.Return(x)
}

// Model is Wav2Vec2Model.
type Model struct {
	nn.Module
	FeatureExtractor  *featureEncoder
	FeatureProjection *featureProjection
	MaskedSpecEmbed   *nn.Parameter
	Encoder           *encoder
}

// New returns the modules of Wav2Vec2Model.
func New(c Config) *Model {
	channels := c.Conv[len(c.Conv)-1].Width
	m := &Model{
		FeatureExtractor: newFeatureEncoder(c),
		FeatureProjection: &featureProjection{
			LayerNorm: nn.NewLayerNorm(channels), Projection: nn.NewLinear(channels, c.Width, true),
			Dropout: nn.NewDropout(c.FeatureDropout),
		},
		Encoder: newEncoder(c),
	}
	if c.MaskVector {
		m.MaskedSpecEmbed = nn.NewParameter(c.Width)
	}
	return m
}

// Call maps audio samples [batch, time] to hidden states [batch, frames, width], and returns normalized features.
func (m *Model) Call(f *frame, samples *tensor, checkpointing bool) (hidden, features *tensor) {
	g := f.CallFrame(samples)
	features = g.Bind(m.FeatureExtractor.call(g, samples, checkpointing))
	g.Set(&features, features.Transpose(1, 2))
	projected, normed := m.FeatureProjection.call(g, features)
	x := g.Bind(projected)
	g.Set(&features, normed)
	g.Set(&x, m.Encoder.call(g, x, checkpointing))
	return g.ReturnPair(x, features)
}

// recognizer is Wav2Vec2ForCTC.
type recognizer struct {
	nn.Module
	Wav2vec2 *Model
	Dropout  *nn.Dropout
	LmHead   nn.Layer
}

func newRecognizer(c Config) *recognizer {
	return &recognizer{
		Wav2vec2: New(c), Dropout: nn.NewDropout(c.FinalDropout),
		LmHead: nn.NewLinear(c.Width, c.Vocab, true),
	}
}

// call returns logits [batch, frames, labels].
func (m *recognizer) call(f *frame, samples *tensor, checkpointing bool) *tensor {
	g := f.ModuleFrame(m, samples)
	samples = g.Argument(samples)
	x, features := m.Wav2vec2.Call(g, samples, checkpointing)
	g.BindEach(x, features)
	y := g.Bind(g.Call(m.Dropout, x))
	return g.Return(g.Call(m.LmHead, y))
}
