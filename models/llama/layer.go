package llama

import (
	"github.com/vprof/vprof/models/nn"
)

// layer is a decoder layer.
type layer struct {
	nn.Module
	Names
	SelfAttn                               selfAttention
	Mamba                                  mixing
	Conv                                   *shortConv
	LinearAttn                             *deltaNet
	NormAttnNorm                           *normAttentionNorm
	CrossAttn                              *crossAttention
	CrossAttnAttnGate, CrossAttnMlpGate    *nn.Parameter
	Mlp, SharedMlp                         nn.Layer
	InputLayernorm, PostAttentionLayernorm nn.Layer
	// Those that normalize what each half makes, too, have two more.
	PreFeedforwardLayernorm, PostFeedforwardLayernorm nn.Layer
	PostNorm1                                         nn.Layer `torch:"post_norm1"`
	PostNorm2                                         nn.Layer `torch:"post_norm2"`
	c                                                 *Config
}

func newLayer(c *Config, i int) *layer {
	if kind, ok := c.blocks(i); ok {
		return newBlock(c, i, kind)
	}
	if c.CrossAttention.has(i) {
		return newCrossing(c)
	}
	l := &layer{Names: c.Names, c: c}
	if c.Order == Dbrx {
		l.NormAttnNorm, l.Mlp = newNormAttentionNorm(c), newLoopedExperts(c)
		return l
	}
	switch {
	case c.ShortConv.Layers.has(i):
		l.Conv = newShortConv(c)
	case c.Mamba.Layers.has(i), c.Selective.Layers.has(i):
	case c.KDA.Layers.has(i):
	case c.DeltaNet.Layers.has(i):
		l.LinearAttn = newDeltaNet(c)
	default:
		l.SelfAttn = newSelfAttention(c, i)
	}
	if c.SharedInner > 0 {
		l.SharedMlp = newSharedMLP(c)
	}
	switch {
	case c.sparse(i) && c.Llama4.Enabled:
		l.Mlp = newLlama4Experts(c)
	case c.Order == MambaBlock:
	case c.sparse(i) && c.Experts.Routing == RouteTokenChoice:
		l.Mlp = newChoiceExperts(c)
	case c.sparse(i):
		l.Mlp = newSparse(c)
	case c.SharedInner == 0:
		l.Mlp = newMLP(c)
	}
	l.Mamba = newMixing(c, i)
	orders[c.Order].norms(l, func() nn.Layer { return newNorm(c, c.Width) })
	return l
}

// inputs are the arguments of a decoder layer: hidden states [batch, length, width], and, each nil
// where there is none, the attention mask, the positions of tokens, cosines and sines, the mask of
// padded rows, and the tensors of a block mask of flex_attention.
type inputs struct {
	x, mask, positions, cos, sin, rows *tensor
	blocks                             []*tensor
}

// An order is how a decoder layer of transformers is laid out: which norms it has and its forward
// pass.
type order struct {
	norms   func(l *layer, norm func() nn.Layer)
	forward func(l *layer, f *frame, in inputs) *tensor
}

// orders has a row for every [Order] of layers with attention and a feed-forward half.
var orders = map[Order]order{
	NormFirst:        {twoNorms, (*layer).normFirst},
	NormAround:       {fourNorms, (*layer).normLast},
	NormLast:         {normsAfter, (*layer).normLast},
	PhiParallel:      {oneNorm, (*layer).parallel},
	CohereParallel:   {oneNorm, (*layer).parallel},
	StableLM:         {twoNorms, (*layer).stable},
	StableLMParallel: {oneNorm, (*layer).parallel},
	NeoX:             {twoNorms, (*layer).neox},
	NeoXParallel:     {twoNorms, (*layer).neox},
	FalconH1:         {twoNorms, (*layer).falconH1},
	Falcon:           {oneNorm, (*layer).falcon},
	FalconTwice:      {twoNorms, (*layer).falcon},
	MPT:              {twoNorms, (*layer).mpt},
	LFM2:             {twoNorms, (*layer).lfm2},
	Llama4Order:      {twoNorms, (*layer).llama4},
	MambaBlock:       {oneNorm, (*layer).block},
	NemotronBlock:    {oneNorm, (*layer).nemotron},
	Dbrx:             {func(*layer, func() nn.Layer) {}, (*layer).dbrx}, // its norms are in one module with attention
}

func oneNorm(l *layer, norm func() nn.Layer) { l.InputLayernorm = norm() }

func twoNorms(l *layer, norm func() nn.Layer) {
	l.InputLayernorm, l.PostAttentionLayernorm = norm(), norm()
	if l.c.OutputNorms {
		l.PostNorm1, l.PostNorm2 = norm(), norm()
	}
}

func normsAfter(l *layer, norm func() nn.Layer) {
	l.PostAttentionLayernorm, l.PostFeedforwardLayernorm = norm(), norm()
}

func fourNorms(l *layer, norm func() nn.Layer) {
	twoNorms(l, norm)
	l.PreFeedforwardLayernorm, l.PostFeedforwardLayernorm = norm(), norm()
}

// SelfContained reports whether calls give nothing but their output, unlike those of routers, whose scores
// a loss may read.
func (l *layer) SelfContained() bool { return l.c.Experts.Count == 0 }

func (l *layer) forward(f *frame, in inputs) *tensor { return orders[l.c.Order].forward(l, f, in) }

// attend returns what mixes the tokens of x in this layer: attention, whose weights the layer's frame
// holds, or what stands in its place.
func (l *layer) attend(f *frame, x *tensor, in inputs) *tensor {
	switch {
	case l.LinearAttn != nil:
		return l.LinearAttn.call(f, x, in.rows)
	case l.SelfAttn == nil:
		return l.Mamba.call(f, x, in.rows)
	}
	y, weights := l.SelfAttn.call(f, x, in)
	f.LetEach(weights)
	return y
}

// normFirst is LlamaDecoderLayer.forward.
func (l *layer) normFirst(f *frame, in inputs) *tensor {
	x := in.x
	residual := f.Let(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	f.Set(&x, l.attend(f, x, in))
	if l.c.OutputNorms {
		f.Set(&x, f.Call(l.PostNorm1, x))
	}
	f.Set(&x, residual.Add(l.scaleResidual(l.dropout(x))))
	f.Set(&residual, x)
	f.Set(&x, f.Call(l.PostAttentionLayernorm, x))
	f.Set(&x, l.feedForward(f, x))
	if l.c.OutputNorms {
		f.Set(&x, f.Call(l.PostNorm2, x))
	}
	return f.Set(&x, residual.Add(l.scaleResidual(l.dropout(x))))
}

// feedForward returns what the feed-forward half gives: the experts, the shared feed-forward layer, or both.
func (l *layer) feedForward(f *frame, x *tensor) *tensor {
	switch {
	case l.SharedMlp == nil:
		return f.Call(l.Mlp, x)
	case l.Mlp == nil:
		return f.Call(l.SharedMlp, x)
	}
	return f.Let(f.Call(l.Mlp, x)).Add(f.Call(l.SharedMlp, x))
}

// normLast is Gemma2DecoderLayer.forward, and that of OLMo 2.
func (l *layer) normLast(f *frame, in inputs) *tensor {
	x := in.x
	residual := f.Let(x)
	if l.c.Order == NormAround {
		f.Set(&x, f.Call(l.InputLayernorm, x))
	}
	f.Set(&x, l.attend(f, x, in))
	f.Set(&x, f.Call(l.PostAttentionLayernorm, x))
	f.Set(&x, residual.Add(x))
	f.Set(&residual, x)
	if l.c.Order == NormAround {
		f.Set(&x, f.Call(l.PreFeedforwardLayernorm, x))
	}
	f.Pass(&x, l.Mlp, l.PostFeedforwardLayernorm)
	return f.Set(&x, residual.Add(x))
}

// parallel is PhiDecoderLayer.forward, and that of Cohere.
func (l *layer) parallel(f *frame, in inputs) *tensor {
	x := in.x
	residual := f.Let(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	attended := f.Let(l.attend(f, x, in))
	if l.c.Order == PhiParallel {
		f.Set(&attended, l.dropout(attended))
	}
	fed := f.Let(l.dropout(f.Call(l.Mlp, x)))
	if l.c.Order == PhiParallel {
		f.Set(&x, attended.Add(fed).Add(residual))
	} else {
		f.Set(&x, residual.Add(attended).Add(fed))
	}
	return x
}

// stable is StableLmDecoderLayer.forward.
func (l *layer) stable(f *frame, in inputs) *tensor {
	x := in.x
	residual := f.Let(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	attended := f.Let(l.attend(f, x, in))
	f.Set(&residual, residual.Add(attended))
	fed := f.Let(f.Call(l.Mlp, f.Call(l.PostAttentionLayernorm, residual)))
	f.Set(&fed, l.dropout(fed))
	return f.Set(&x, residual.Add(fed))
}

// neox is GPTNeoXLayer.forward.
func (l *layer) neox(f *frame, in inputs) *tensor {
	x := in.x
	attended := f.Let(l.attend(f, f.Call(l.InputLayernorm, x), in))
	f.Set(&attended, l.dropout(attended))
	if l.c.Order == NeoXParallel {
		fed := f.Let(f.Call(l.Mlp, f.Call(l.PostAttentionLayernorm, x)))
		f.Set(&fed, l.dropout(fed))
		return f.Set(&x, fed.Add(attended).Add(x))
	}
	f.Set(&attended, attended.Add(x))
	fed := f.Let(f.Call(l.Mlp, f.Call(l.PostAttentionLayernorm, attended)))
	f.Set(&fed, l.dropout(fed))
	return f.Set(&x, fed.Add(attended))
}

// falconH1 is FalconH1DecoderLayer.forward.
func (l *layer) falconH1(f *frame, in inputs) *tensor {
	x := in.x
	residual := f.Let(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	mixed := f.Let(l.Mamba.call(f, x, in.rows))
	f.Set(&mixed, mixed.MulScalar())
	attended := f.Let(l.attend(f, x.MulScalar(), in))
	f.Set(&attended, attended.MulScalar())
	f.Set(&x, mixed.Add(attended))
	f.Set(&x, residual.Add(x))
	f.Set(&residual, x)
	f.Pass(&x, l.PostAttentionLayernorm, l.Mlp)
	return f.Set(&x, residual.Add(x))
}

// falcon is FalconDecoderLayer.forward.
func (l *layer) falcon(f *frame, in inputs) *tensor {
	x := in.x
	residual := f.Let(x)
	seen := f.Let(f.Call(l.InputLayernorm, x))
	fed := seen
	if l.c.Order == FalconTwice {
		fed = f.Let(f.Call(l.PostAttentionLayernorm, x))
	}
	attended := f.Let(l.attend(f, seen, in))
	y := f.Let(f.Call(l.Mlp, fed))
	y.AddInPlace(attended)
	g := f.FuncFrame(y, residual)
	out := g.Let(y.Dropout(l.c.ResidualDropout, l.Training()))
	return g.Return(g.Set(&out, residual.Add(out)))
}

// lfm2 is Lfm2DecoderLayer.forward.
func (l *layer) lfm2(f *frame, in inputs) *tensor {
	x := in.x
	residual := f.Let(x)
	if l.Conv != nil {
		f.Set(&x, l.Conv.call(f, f.Call(l.InputLayernorm, x), in.rows))
	} else {
		f.Set(&x, l.attend(f, f.Call(l.InputLayernorm, x), in))
	}
	f.Set(&x, x.Add(residual))
	return f.Set(&x, x.Add(f.Call(l.Mlp, f.Call(l.PostAttentionLayernorm, x))))
}

func (l *layer) dropout(x *tensor) *tensor {
	if l.c.DropoutInside {
		return x
	}
	return x.Dropout(l.c.ResidualDropout, l.Training())
}

// scaleResidual returns what goes to the residual stream.
func (l *layer) scaleResidual(x *tensor) *tensor {
	if !l.c.ResidualScaled {
		return x
	}
	return x.MulScalar()
}
