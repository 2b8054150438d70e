package llama

import "github.com/vprof/vprof/models/nn"

// layer is a decoder layer.
type layer struct {
	nn.Module
	TorchNames
	SelfAttn                               selfAttention
	Mamba                                  *mixer
	LinearAttn                             *deltaNet
	CrossAttn                              *crossAttention
	CrossAttnAttnGate, CrossAttnMlpGate    *nn.Parameter
	Mlp                                    nn.Layer
	InputLayernorm, PostAttentionLayernorm nn.Layer
	// Layers that also normalize the result of each half have two more.
	PreFeedforwardLayernorm, PostFeedforwardLayernorm nn.Layer
	c                                                 *Config
}

func newLayer(c *Config, i int) *layer {
	if kind, ok := c.blocks(i); ok {
		return newBlock(c, i, kind)
	}
	if c.CrossAttention.has(i) {
		return newCrossing(c)
	}
	l := &layer{TorchNames: c.Names, c: c}
	if c.DeltaNet.Layers.has(i) {
		l.LinearAttn = newDeltaNet(c)
	} else {
		l.SelfAttn = newSelfAttention(c, i)
	}
	switch {
	case c.sparse(i) && c.Llama4.Enabled:
		l.Mlp = newLlama4Experts(c)
	case c.sparse(i) && c.Experts.Listed:
		l.Mlp = newExpertList(c)
	case c.sparse(i):
		l.Mlp = newSparseExperts(c)
	default:
		l.Mlp = newMLP(c)
	}
	orders[c.Order].norms(l, func() nn.Layer { return newNorm(c, c.Width) })
	return l
}

// inputs are the arguments of a decoder layer: hidden states [batch, length, width], and, each possibly nil, the
// attention mask, the positions of tokens, cosines and sines, the padding mask, and the tensors of a flex_attention
// block mask.
type inputs struct {
	x, mask, positions, cos, sin, rows *tensor
	blocks                             []*tensor
}

// An order is the structure of a decoder layer in transformers: its norms and its forward pass.
type order struct {
	norms   func(l *layer, norm func() nn.Layer)
	forward func(l *layer, f *frame, in inputs) *tensor
}

// orders has a row for every [Order] of layers with attention and a feed-forward half.
var orders = map[Order]order{
	NormFirst:      {twoNorms, (*layer).normFirst},
	NormAround:     {fourNorms, (*layer).normAround},
	CohereParallel: {oneNorm, (*layer).parallel},
	NeoX:           {twoNorms, (*layer).neox},
	NeoXParallel:   {twoNorms, (*layer).neox},
	Llama4Order:    {twoNorms, (*layer).llama4},
	NemotronBlock:  {oneNorm, (*layer).nemotron},
}

func oneNorm(l *layer, norm func() nn.Layer) { l.InputLayernorm = norm() }

func twoNorms(l *layer, norm func() nn.Layer) {
	l.InputLayernorm, l.PostAttentionLayernorm = norm(), norm()
}

func fourNorms(l *layer, norm func() nn.Layer) {
	twoNorms(l, norm)
	l.PreFeedforwardLayernorm, l.PostFeedforwardLayernorm = norm(), norm()
}

// SelfContained reports whether calls return only their output. Routers also return their logits, which a loss may use.
func (l *layer) SelfContained() bool { return l.c.Experts.Count == 0 }

// attend mixes the tokens of x by the layer's attention or, in some layers, by linear attention. The layer's frame
// holds the attention weights.
func (l *layer) attend(f *frame, x *tensor, in inputs) *tensor {
	if l.LinearAttn != nil {
		return l.LinearAttn.call(f, x, in.rows)
	}
	y, weights := l.SelfAttn.call(f, x, in)
	f.BindEach(weights)
	return y
}

// normFirst follows LlamaDecoderLayer.forward.
func (l *layer) normFirst(f *frame, in inputs) *tensor {
	x := in.x
	residual := f.Bind(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	f.Set(&x, l.attend(f, x, in))
	f.Set(&x, residual.Add(l.scaleResidual(l.dropout(x))))
	f.Set(&residual, x)
	f.Set(&x, f.Call(l.PostAttentionLayernorm, x))
	f.Set(&x, f.Call(l.Mlp, x))
	return f.Set(&x, residual.Add(l.scaleResidual(l.dropout(x))))
}

// normAround follows Gemma2DecoderLayer.forward.
func (l *layer) normAround(f *frame, in inputs) *tensor {
	x := in.x
	residual := f.Bind(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	f.Set(&x, l.attend(f, x, in))
	f.Set(&x, f.Call(l.PostAttentionLayernorm, x))
	f.Set(&x, residual.Add(x))
	f.Set(&residual, x)
	f.Set(&x, f.Call(l.PreFeedforwardLayernorm, x))
	f.Pass(&x, l.Mlp, l.PostFeedforwardLayernorm)
	return f.Set(&x, residual.Add(x))
}

// parallel follows CohereDecoderLayer.forward.
func (l *layer) parallel(f *frame, in inputs) *tensor {
	x := in.x
	residual := f.Bind(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	attended := f.Bind(l.attend(f, x, in))
	fed := f.Bind(f.Call(l.Mlp, x))
	return f.Set(&x, residual.Add(attended).Add(fed))
}

// neox follows GPTNeoXLayer.forward.
func (l *layer) neox(f *frame, in inputs) *tensor {
	x := in.x
	attended := f.Bind(l.attend(f, f.Call(l.InputLayernorm, x), in))
	f.Set(&attended, l.dropout(attended))
	if l.c.Order == NeoXParallel {
		fed := f.Bind(f.Call(l.Mlp, f.Call(l.PostAttentionLayernorm, x)))
		f.Set(&fed, l.dropout(fed))
		return f.Set(&x, fed.Add(attended).Add(x))
	}
	f.Set(&attended, attended.Add(x))
	fed := f.Bind(f.Call(l.Mlp, f.Call(l.PostAttentionLayernorm, attended)))
	f.Set(&fed, l.dropout(fed))
	return f.Set(&x, fed.Add(attended))
}

func (l *layer) dropout(x *tensor) *tensor {
	if l.c.DropoutInside {
		return x
	}
	return x.Dropout(l.c.ResidualDropout, l.Training())
}

func (l *layer) scaleResidual(x *tensor) *tensor {
	if !l.c.ResidualScaled {
		return x
	}
	return x.MulScalar()
}
