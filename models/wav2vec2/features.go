// Package wav2vec2 is wav2vec 2.0 as in transformers, trained to recognize speech with the CTC loss. Linear layers are
// fields of type Layer, so that adapters can replace them.
package wav2vec2

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

type (
	frame  = trace.Frame
	tensor = trace.Tensor
)

// Config has the fields of Wav2Vec2Config that affect memory.
type Config struct {
	Vocab, Width, Layers, Heads, Inner int64
	// Conv are the convolutions that turn audio samples into features.
	Conv     []ConvLayer
	ConvBias bool
	// LayerNorms has a layer norm after every convolution; otherwise the first has a group norm, the others none.
	LayerNorms bool
	// StableLayerNorm has norms before attention and feed-forward part of an encoder layer instead of after.
	StableLayerNorm bool
	// PositionKernel and PositionGroups are the sizes of the convolution that computes position embeddings.
	PositionKernel, PositionGroups int64
	// Dropout probabilities: of the residual stream, of attention weights, after the activation, of projected features,
	// of the model's output.
	HiddenDropout, AttentionDropout, ActivationDropout, FeatureDropout, FinalDropout float64
	// FeatureActivation and Activation are names of activation functions, see [hf.Activations].
	FeatureActivation, Activation string
	// MaskVector adds the parameter that SpecAugment substitutes for masked frames. No frame is masked here.
	MaskVector bool
}

// ConvLayer holds the sizes of a convolution over time.
type ConvLayer struct{ Width, Kernel, Stride int64 }

// convLayer is Wav2Vec2GroupNormConvLayer, Wav2Vec2LayerNormConvLayer or Wav2Vec2NoLayerNormConvLayer. Norms that the
// class lacks are nil.
type convLayer struct {
	nn.Module
	Conv       *nn.Conv
	Activation *nn.FuncLayer
	GroupNorm  *nn.GroupNorm `torch:"layer_norm"`
	LayerNorm  *nn.LayerNorm
}

func newConvLayer(c Config, i int) *convLayer {
	in := int64(1)
	if i > 0 {
		in = c.Conv[i-1].Width
	}
	l := c.Conv[i]
	layer := &convLayer{
		Conv: nn.NewConv(in, l.Width,
			nn.ConvOptions{Kernel: []int64{l.Kernel}, Stride: []int64{l.Stride}, NoBias: !c.ConvBias}),
		Activation: hf.Activation(c.FeatureActivation),
	}
	switch {
	case c.LayerNorms:
		layer.LayerNorm = nn.NewLayerNorm(l.Width)
	case i == 0:
		layer.GroupNorm = nn.NewGroupNorm(l.Width, l.Width)
	}
	return layer
}

// forward records the layer's forward; args are features [batch, channels, time].
func (l *convLayer) forward(f *frame, args []*tensor) *tensor {
	x := args[0]
	f.Set(&x, f.Call(l.Conv, x))
	switch {
	case l.LayerNorm != nil:
		f.Set(&x, x.Transpose(-2, -1))
		f.Set(&x, f.Call(l.LayerNorm, x))
		f.Set(&x, x.Transpose(-2, -1))
	case l.GroupNorm != nil:
		f.Set(&x, f.Call(l.GroupNorm, x))
	}
	return f.Set(&x, f.Call(l.Activation, x))
}

type featureEncoder struct {
	nn.Module
	ConvLayers []*convLayer
}

func newFeatureEncoder(c Config) *featureEncoder {
	return &featureEncoder{ConvLayers: lists.Make(len(c.Conv), func(i int) *convLayer { return newConvLayer(c, i) })}
}

// call maps audio samples [batch, time] to features [batch, channels, frames]. In training the input requires
// gradients, since reentrant checkpointing needs that.
func (e *featureEncoder) call(f *frame, samples *tensor, checkpointing bool) *tensor {
	g := f.CallFrame(samples)
	x := g.Bind(samples.Unsqueeze(1))
	if e.Training() {
		x.Leaf()
	}
	for _, l := range e.ConvLayers {
		g.Set(&x, hf.CallLayer(g, l, checkpointing, l.forward, x))
	}
	return g.Return(x)
}

type featureProjection struct {
	nn.Module
	LayerNorm  *nn.LayerNorm
	Projection nn.Layer
	Dropout    *nn.Dropout
}

// call returns the projected features, and the normalized features before the projection.
func (p *featureProjection) call(f *frame, x *tensor) (projected, normed *tensor) {
	g := f.CallFrame(x)
	normed = g.Bind(g.Call(p.LayerNorm, x))
	g.Set(&x, g.Call(p.Projection, normed))
	g.Set(&x, g.Call(p.Dropout, x))
	return g.ReturnPair(x, normed)
}

// positionalConv is Wav2Vec2PositionalConvEmbedding.
type positionalConv struct {
	nn.Module
	Conv       *nn.WeightParametrization
	Activation *nn.FuncLayer
	surplus    int64 // frames that an even kernel adds
}

func newPositionalConv(c Config) *positionalConv {
	conv := nn.NewConv(c.Width, c.Width, nn.ConvOptions{
		Kernel: []int64{c.PositionKernel}, Padding: []int64{c.PositionKernel / 2}, Groups: c.PositionGroups,
	})
	return &positionalConv{
		Conv: nn.NewWeightParametrization(conv, 2), Activation: hf.Activation(c.FeatureActivation),
		surplus: 1 - c.PositionKernel%2,
	}
}

func (p *positionalConv) Forward(f *frame, x *tensor) *tensor {
	f.Set(&x, x.Transpose(1, 2))
	f.Set(&x, f.Call(p.Conv, x))
	if p.surplus > 0 {
		f.Set(&x, x.Slice(2, 0, x.Size(2)-p.surplus))
	}
	f.Set(&x, f.Call(p.Activation, x))
	return f.Set(&x, x.Transpose(1, 2))
}
