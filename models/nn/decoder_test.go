package nn

import "github.com/vprof/vprof/profiler/trace"

// TransformerDecoderLayer is torch.nn.TransformerDecoderLayer.
type TransformerDecoderLayer struct {
	Module
	SelfAttn, MultiheadAttn      *MultiheadAttention
	Linear1                      *Linear
	Dropout                      *Dropout
	Linear2                      *Linear
	Norm1, Norm2, Norm3          *LayerNorm
	Dropout1, Dropout2, Dropout3 *Dropout
	activation                   Layer
	normFirst                    bool
}

// NewTransformerDecoderLayer returns a layer with a feed-forward block of the given width.
func NewTransformerDecoderLayer(embed, heads, width int64, o TransformerOptions) *TransformerDecoderLayer {
	attention := MultiheadOptions{Dropout: o.Dropout, BatchFirst: o.BatchFirst}
	return &TransformerDecoderLayer{
		SelfAttn:      NewMultiheadAttention(embed, heads, attention),
		MultiheadAttn: NewMultiheadAttention(embed, heads, attention),
		Linear1:       NewLinear(embed, width, true), Dropout: NewDropout(o.Dropout),
		Linear2: NewLinear(width, embed, true),
		Norm1:   NewLayerNorm(embed), Norm2: NewLayerNorm(embed), Norm3: NewLayerNorm(embed),
		Dropout1: NewDropout(o.Dropout), Dropout2: NewDropout(o.Dropout), Dropout3: NewDropout(o.Dropout),
		activation: o.activation(), normFirst: o.NormFirst,
	}
}

// Decode runs the layer over a target and the memory it attends to, both bound in f, as arguments of a call are.
func (l *TransformerDecoderLayer) Decode(f *trace.Frame, target, memory *trace.Tensor, self,
	cross TransformerMasks,
) *trace.Tensor {
	x := f.Bind(target) // x = tgt
	if l.normFirst {
		f.Set(&x, x.Add(selfAttention(f, l.SelfAttn, l.Dropout1, f.Call(l.Norm1, x), self)))
		f.Set(&x, x.Add(crossAttention(f, l.MultiheadAttn, l.Dropout2, f.Call(l.Norm2, x), memory, cross)))
		f.Set(&x, x.Add(l.feedForward(f, f.Call(l.Norm3, x))))
		return x
	}
	f.Set(&x, f.Call(l.Norm1, x.Add(selfAttention(f, l.SelfAttn, l.Dropout1, x, self))))
	f.Set(&x, f.Call(l.Norm2, x.Add(crossAttention(f, l.MultiheadAttn, l.Dropout2, x, memory, cross))))
	f.Set(&x, f.Call(l.Norm3, x.Add(l.feedForward(f, x))))
	return x
}

func (l *TransformerDecoderLayer) feedForward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	return feedForward(f, x, l.Linear1, l.activation, l.Dropout, l.Linear2, l.Dropout3)
}

// crossAttention records _mha_block: x attends to memory.
func crossAttention(f *trace.Frame, a *MultiheadAttention, d *Dropout, x, memory *trace.Tensor,
	m TransformerMasks,
) *trace.Tensor {
	g := f.FunctionFrame(x, memory)
	y, _ := a.Attend(g, x, memory, memory,
		MultiheadArgs{AttnMask: m.Mask, KeyPaddingMask: m.KeyPadding, IsCausal: m.IsCausal})
	g.Set(&x, y)
	return g.Return(g.Call(d, x))
}
