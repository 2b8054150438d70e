package llama

import "github.com/vprof/vprof/models/nn"

type layer struct {
	nn.Module
	TorchNames
	SelfAttn                               selfAttention
	Mamba                                  *mambaMixer
	LinearAttn                             *deltaNet
	CrossAttn                              *crossAttention
	CrossAttnAttnGate, CrossAttnMlpGate    *nn.Parameter
	Mlp                                    nn.Layer
	InputLayernorm, PostAttentionLayernorm nn.Layer
	// Layers that also normalize attention's and the feed-forward layer's results have two more norms.
	PreFeedforwardLayernorm, PostFeedforwardLayernorm nn.Layer
	c                                                 *Config
}

func newLayer(c *Config, i int) *layer {
	if kind, ok := c.blockKind(i); ok {
		return newBlock(c, i, kind)
	}
	if c.CrossAttention.isSet(i) {
		return newCrossAttentionLayer(c)
	}
	l := &layer{TorchNames: c.Names, c: c}
	if c.DeltaNet.Layers.isSet(i) {
		l.LinearAttn = newDeltaNet(c)
	} else {
		l.SelfAttn = newSelfAttention(c, i)
	}
	switch {
	case c.isMoELayer(i) && c.Llama4.Enabled:
		l.Mlp = newLlama4Experts(c)
	case c.isMoELayer(i) && c.Experts.Listed:
		l.Mlp = newExpertList(c)
	case c.isMoELayer(i):
		l.Mlp = newSparseMoEBlock(c)
	default:
		l.Mlp = newMLP(c)
	}
	layerStructures[c.Order].norms(l, func() nn.Layer { return newNorm(c, c.Width) })
	return l
}

// inputs are a decoder layer's arguments: hidden states x [batch, length, width] and, each possibly nil, the
// attention mask, position ids, cosines and sines, the padding mask rows, and a flex_attention block mask's tensors.
type inputs struct {
	x, mask, positions, cos, sin, rows *tensor
	blocks                             []*tensor
}

// An order is the structure of a decoder layer: its norms and its forward.
type layerStructure struct {
	norms   func(l *layer, norm func() nn.Layer)
	forward func(l *layer, f *frame, in inputs) *tensor
}

// layerStructures holds the structure of every [Order] with attention and a feed-forward layer.
var layerStructures = map[Order]layerStructure{
	NormFirst:      {addTwoNorms, (*layer).llamaForward},
	NormAround:     {addFourNorms, (*layer).gemma2Forward},
	CohereParallel: {addOneNorm, (*layer).cohereForward},
	NeoX:           {addTwoNorms, (*layer).neoxForward},
	NeoXParallel:   {addTwoNorms, (*layer).neoxForward},
	Llama4Order:    {addTwoNorms, (*layer).llama4Forward},
	NemotronBlock:  {addOneNorm, (*layer).nemotronForward},
}

func addOneNorm(l *layer, norm func() nn.Layer) { l.InputLayernorm = norm() }

func addTwoNorms(l *layer, norm func() nn.Layer) {
	l.InputLayernorm, l.PostAttentionLayernorm = norm(), norm()
}

func addFourNorms(l *layer, norm func() nn.Layer) {
	addTwoNorms(l, norm)
	l.PreFeedforwardLayernorm, l.PostFeedforwardLayernorm = norm(), norm()
}

// SelfContained reports whether the layer returns only its output. Mixtures also return router logits for a loss.
func (l *layer) SelfContained() bool { return l.c.Experts.Count == 0 }

// runAttention runs the layer's attention or linear attention on x. The layer's frame keeps the attention weights.
func (l *layer) runAttention(f *frame, x *tensor, in inputs) *tensor {
	if l.LinearAttn != nil {
		return l.LinearAttn.call(f, x, in.rows)
	}
	y, weights := l.SelfAttn.call(f, x, in)
	f.BindEach(weights)
	return y
}

func (l *layer) llamaForward(f *frame, in inputs) *tensor {
	x := in.x
	residual := f.Bind(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	f.Set(&x, l.runAttention(f, x, in))
	f.Set(&x, residual.Add(l.scaleResidual(l.applyDropout(x))))
	f.Set(&residual, x)
	f.Set(&x, f.Call(l.PostAttentionLayernorm, x))
	f.Set(&x, f.Call(l.Mlp, x))
	return f.Set(&x, residual.Add(l.scaleResidual(l.applyDropout(x))))
}

func (l *layer) gemma2Forward(f *frame, in inputs) *tensor {
	x := in.x
	residual := f.Bind(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	f.Set(&x, l.runAttention(f, x, in))
	f.Set(&x, f.Call(l.PostAttentionLayernorm, x))
	f.Set(&x, residual.Add(x))
	f.Set(&residual, x)
	f.Set(&x, f.Call(l.PreFeedforwardLayernorm, x))
	f.Pass(&x, l.Mlp, l.PostFeedforwardLayernorm)
	return f.Set(&x, residual.Add(x))
}

func (l *layer) cohereForward(f *frame, in inputs) *tensor {
	x := in.x
	residual := f.Bind(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	attended := f.Bind(l.runAttention(f, x, in))
	fed := f.Bind(f.Call(l.Mlp, x))
	return f.Set(&x, residual.Add(attended).Add(fed))
}

// neoxForward records GPTNeoXLayer.forward.
func (l *layer) neoxForward(f *frame, in inputs) *tensor {
	x := in.x
	attended := f.Bind(l.runAttention(f, f.Call(l.InputLayernorm, x), in))
	f.Set(&attended, l.applyDropout(attended))
	if l.c.Order == NeoXParallel {
		fed := f.Bind(f.Call(l.Mlp, f.Call(l.PostAttentionLayernorm, x)))
		f.Set(&fed, l.applyDropout(fed))
		return f.Set(&x, fed.Add(attended).Add(x))
	}
	f.Set(&attended, attended.Add(x))
	fed := f.Bind(f.Call(l.Mlp, f.Call(l.PostAttentionLayernorm, attended)))
	f.Set(&fed, l.applyDropout(fed))
	return f.Set(&x, fed.Add(attended))
}

func (l *layer) applyDropout(x *tensor) *tensor {
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
