package nn

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/trace"
)

// TransformerOptions are the arguments of the transformer layers besides sizes.
type TransformerOptions struct {
	// Dropout is the dropout probability of attention weights, activations and results.
	Dropout float64
	// Activation is the activation of the feed-forward block; nil is ReLU.
	Activation Layer
	// NormFirst normalizes before each block instead of after it.
	NormFirst bool
	// BatchFirst means that tensors are [batch, length, embedding] instead of [length, batch, embedding].
	BatchFirst bool
}

func (o TransformerOptions) activation() Layer {
	if o.Activation == nil {
		return NewReLU()
	}
	return o.Activation
}

// TransformerEncoderLayer is torch.nn.TransformerEncoderLayer.
type TransformerEncoderLayer struct {
	Module
	SelfAttn           *MultiheadAttention
	Linear1            *Linear
	Dropout            *Dropout
	Linear2            *Linear
	Norm1, Norm2       *LayerNorm
	Dropout1, Dropout2 *Dropout
	activation         Layer
	normFirst          bool
}

// NewTransformerEncoderLayer returns a layer with a feed-forward block of the given width.
func NewTransformerEncoderLayer(embed, heads, width int64, o TransformerOptions) *TransformerEncoderLayer {
	return &TransformerEncoderLayer{
		SelfAttn: NewMultiheadAttention(embed, heads, MultiheadOptions{Dropout: o.Dropout, BatchFirst: o.BatchFirst}),
		Linear1:  NewLinear(embed, width, true), Dropout: NewDropout(o.Dropout), Linear2: NewLinear(width, embed, true),
		Norm1: NewLayerNorm(embed), Norm2: NewLayerNorm(embed),
		Dropout1: NewDropout(o.Dropout), Dropout2: NewDropout(o.Dropout),
		activation: o.activation(), normFirst: o.NormFirst,
	}
}

// TransformerEncoder is torch.nn.TransformerEncoder without a final norm.
type TransformerEncoder struct {
	Module
	Layers []*TransformerEncoderLayer
}

// NewTransformerEncoder stacks n layers.
func NewTransformerEncoder(n int, embed, heads, width int64, o TransformerOptions) *TransformerEncoder {
	return &TransformerEncoder{Layers: lists.Make(n, func(int) *TransformerEncoderLayer {
		return NewTransformerEncoderLayer(embed, heads, width, o)
	})}
}

// Call calls the layers in order on x with masks.
func (e *TransformerEncoder) Call(f *trace.Frame, x *trace.Tensor, m TransformerMasks) *trace.Tensor {
	g := f.ModuleFrame(e, x, m.Mask, m.KeyPadding)
	m.KeyPadding = canonicalMask(g, m.KeyPadding, x)
	m.Mask = canonicalMask(g, m.Mask, x)
	out := g.Bind(x)
	for _, l := range e.Layers {
		g.Set(&out, l.Call(g, out, m))
	}
	return g.Return(out)
}

// Call calls the layer on x with masks.
func (l *TransformerEncoderLayer) Call(f *trace.Frame, x *trace.Tensor, m TransformerMasks) *trace.Tensor {
	g := f.ModuleFrame(l, x, m.Mask, m.KeyPadding)
	return g.Return(l.ForwardMasked(g, x, m))
}

// TransformerMasks are the masks of one attention.
type TransformerMasks struct {
	// Mask is [queries, keys], KeyPadding [batch, keys]; both are bool or additive.
	Mask, KeyPadding *trace.Tensor
	// IsCausal tells PyTorch that Mask is causal.
	IsCausal bool
}

// Forward calls the layer without masks.
func (l *TransformerEncoderLayer) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return l.ForwardMasked(f, x, TransformerMasks{})
}

// ForwardMasked runs the layer's forward in the frame of a call that already holds x.
func (l *TransformerEncoderLayer) ForwardMasked(f *trace.Frame, x *trace.Tensor, m TransformerMasks) *trace.Tensor {
	m.KeyPadding = canonicalMask(f, m.KeyPadding, x)
	m.Mask = canonicalMask(f, m.Mask, x)
	if w, ok := l.fastPath(x, m); ok {
		return x.TransformerEncoderLayerForward(w)
	}
	src := f.Bind(x) // x = src
	if l.normFirst {
		f.Set(&src, src.Add(selfAttention(f, l.SelfAttn, l.Dropout1, f.Call(l.Norm1, src), m)))
		return f.Set(&src, src.Add(l.feedForward(f, f.Call(l.Norm2, src))))
	}
	f.Set(&src, f.Call(l.Norm1, src.Add(selfAttention(f, l.SelfAttn, l.Dropout1, src, m))))
	return f.Set(&src, f.Call(l.Norm2, src.Add(l.feedForward(f, src))))
}

func (l *TransformerEncoderLayer) feedForward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return feedForward(f, x, l.Linear1, l.activation, l.Dropout, l.Linear2, l.Dropout2)
}

// fastPath reports whether PyTorch computes the whole layer by one operator, and returns its parameters. It does so
// in evaluation mode if nothing requires a gradient.
func (l *TransformerEncoderLayer) fastPath(x *trace.Tensor, m TransformerMasks) (w trace.EncoderLayerWeights, ok bool) {
	if m.Mask != nil || m.KeyPadding != nil || !l.SelfAttn.usesFastPath(x, x, x, MultiheadArgs{}) {
		return w, false
	}
	w = trace.EncoderLayerWeights{
		Attention:   l.SelfAttn.weights(),
		Norm1Weight: l.Norm1.Weight.TensorOrNil(), Norm1Bias: l.Norm1.Bias.TensorOrNil(),
		Norm2Weight: l.Norm2.Weight.TensorOrNil(), Norm2Bias: l.Norm2.Bias.TensorOrNil(),
		Linear1Weight: l.Linear1.Weight.TensorOrNil(), Linear1Bias: l.Linear1.Bias.TensorOrNil(),
		Linear2Weight: l.Linear2.Weight.TensorOrNil(), Linear2Bias: l.Linear2.Bias.TensorOrNil(),
		NormFirst: l.normFirst,
	}
	return w, !x.Tape().RequiresGrad(w.Norm1Weight, w.Norm1Bias, w.Norm2Weight, w.Norm2Bias,
		w.Linear1Weight, w.Linear1Bias, w.Linear2Weight, w.Linear2Bias)
}

// selfAttention records _sa_block.
func selfAttention(f *trace.Frame, a *MultiheadAttention, d *Dropout, x *trace.Tensor,
	m TransformerMasks,
) *trace.Tensor {
	g := f.FunctionFrame(x)
	y, _ := a.Attend(g, x, x, x, MultiheadArgs{AttnMask: m.Mask, KeyPaddingMask: m.KeyPadding, IsCausal: m.IsCausal})
	g.Set(&x, y)
	return g.Return(g.Call(d, x))
}

// feedForward records _ff_block.
func feedForward(f *trace.Frame, x *trace.Tensor, layers ...Layer) *trace.Tensor {
	g := f.FunctionFrame(x)
	y := x
	for i, l := range layers {
		if i == len(layers)-1 { // x = linear2(...); return dropout2(x)
			g.Set(&x, y)
			y = x
		}
		y = g.Call(l, y)
	}
	return g.Return(y)
}
