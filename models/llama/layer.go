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
	if c.crosses(i) {
		return newCrossing(c)
	}
	l := &layer{Names: c.Names, c: c}
	if c.Order == Dbrx {
		l.NormAttnNorm, l.Mlp = newNormAttentionNorm(c), newLoopedExperts(c)
		return l
	}
	switch {
	case c.ShortConv.short(i):
		l.Conv = newShortConv(c)
	case c.Mamba.instead(i), c.Selective.instead(i):
	case c.KDA.linear(i):
	case c.DeltaNet.linear(i):
		l.LinearAttn = newDeltaNet(c)
	default:
		l.SelfAttn = newSelfAttention(c, i)
	}
	if c.SharedInner > 0 {
		l.SharedMlp = newSharedMLP(c)
	}
	switch {
	case c.sparse(i) && c.Llama4.On:
		l.Mlp = newLlama4Experts(c)
	case c.Order == MambaBlock:
	case c.sparse(i) && c.Experts.Routing == RouteChoice:
		l.Mlp = newChoiceExperts(c)
	case c.sparse(i):
		l.Mlp = newSparse(c)
	case c.SharedInner == 0:
		l.Mlp = newMLP(c)
	}
	l.Mamba = newMixing(c, i)
	made := func() nn.Layer { return newNorm(c, c.Width) }
	if c.HalvesNormed {
		l.PostNorm1, l.PostNorm2 = made(), made()
	}
	switch c.Order {
	case PhiParallel, CohereParallel, StableLMParallel, Falcon, MambaBlock:
		l.InputLayernorm = made()
	case NormLast:
		l.PostAttentionLayernorm, l.PostFeedforwardLayernorm = made(), made()
	case NormAround:
		l.PreFeedforwardLayernorm, l.PostFeedforwardLayernorm = made(), made()
		fallthrough
	default:
		l.InputLayernorm, l.PostAttentionLayernorm = made(), made()
	}
	return l
}

// forward takes hidden states, a mask, positions, cosines and sines, the mask of padded
// rows, and the tensors of a block mask.
func (l *layer) forward(f *frame, args []*tensor) *tensor {
	l.c.seen = args[6:]
	attend := func(x *tensor) *tensor {
		y, weights := l.SelfAttn.call(f, x, args[1], args[2], args[3], args[4])
		if weights != nil {
			f.Let(weights)
		}
		return y
	}
	if l.LinearAttn != nil {
		attend = func(x *tensor) *tensor { return l.LinearAttn.call(f, x, args[5]) }
	}
	if l.SelfAttn == nil && l.Mamba != nil {
		attend = func(x *tensor) *tensor { return l.Mamba.call(f, x, args[5]) }
	}
	x := args[0]
	switch l.c.Order {
	case NormAround, NormLast:
		return l.normLast(f, x, attend)
	case PhiParallel, CohereParallel, StableLMParallel:
		return l.parallel(f, x, attend)
	case StableLM:
		return l.stable(f, x, attend)
	case NeoX, NeoXParallel:
		return l.neox(f, x, attend)
	case FalconH1:
		return l.falconH1(f, x, args[5], attend)
	case Falcon, FalconTwice:
		return l.falcon(f, x, attend)
	case MPT:
		return l.mpt(f, x, attend)
	case LFM2:
		return l.lfm2(f, x, args[5], attend)
	case Llama4Order:
		return l.llama4(f, x, args)
	case MambaBlock:
		return l.block(f, x, args[5])
	case Dbrx:
		return l.dbrx(f, x, args[1], args[3], args[4])
	case NemotronBlock:
		return l.nemotron(f, x, args[5], attend)
	}
	residual := f.Let(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	f.Set(&x, attend(x))
	if l.c.HalvesNormed {
		f.Set(&x, f.Call(l.PostNorm1, x))
	}
	f.Set(&x, residual.Add(l.scaled(l.drop(x))))
	f.Set(&residual, x)
	f.Set(&x, f.Call(l.PostAttentionLayernorm, x))
	f.Set(&x, l.fed(f, x))
	if l.c.HalvesNormed {
		f.Set(&x, f.Call(l.PostNorm2, x))
	}
	f.Set(&x, residual.Add(l.scaled(l.drop(x))))
	return x
}

// fed is what the feed-forward half gives: the experts, what stands beside them, or both.
func (l *layer) fed(f *frame, x *tensor) *tensor {
	switch {
	case l.SharedMlp == nil:
		return f.Call(l.Mlp, x)
	case l.Mlp == nil:
		return f.Call(l.SharedMlp, x)
	}
	return f.Let(f.Call(l.Mlp, x)).Add(f.Call(l.SharedMlp, x))
}

// normLast is Gemma2DecoderLayer.forward, and that of OLMo 2.
func (l *layer) normLast(f *frame, x *tensor, attend func(*tensor) *tensor) *tensor {
	residual := f.Let(x)
	if l.c.Order == NormAround {
		f.Set(&x, f.Call(l.InputLayernorm, x))
	}
	f.Set(&x, attend(x))
	f.Set(&x, f.Call(l.PostAttentionLayernorm, x))
	f.Set(&x, residual.Add(x))
	f.Set(&residual, x)
	if l.c.Order == NormAround {
		f.Set(&x, f.Call(l.PreFeedforwardLayernorm, x))
	}
	f.Set(&x, f.Call(l.Mlp, x))
	f.Set(&x, f.Call(l.PostFeedforwardLayernorm, x))
	f.Set(&x, residual.Add(x))
	return x
}

// parallel is PhiDecoderLayer.forward, and that of Cohere.
func (l *layer) parallel(f *frame, x *tensor, attend func(*tensor) *tensor) *tensor {
	residual := f.Let(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	attended := f.Let(attend(x))
	if l.c.Order == PhiParallel {
		f.Set(&attended, l.drop(attended))
	}
	fed := f.Let(l.drop(f.Call(l.Mlp, x)))
	if l.c.Order == PhiParallel {
		f.Set(&x, attended.Add(fed).Add(residual))
	} else {
		f.Set(&x, residual.Add(attended).Add(fed))
	}
	return x
}

// stable is StableLmDecoderLayer.forward.
func (l *layer) stable(f *frame, x *tensor, attend func(*tensor) *tensor) *tensor {
	residual := f.Let(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	attended := f.Let(attend(x))
	f.Set(&residual, residual.Add(attended))
	fed := f.Let(f.Call(l.Mlp, f.Call(l.PostAttentionLayernorm, residual)))
	f.Set(&fed, l.drop(fed))
	f.Set(&x, residual.Add(fed))
	return x
}

// neox is GPTNeoXLayer.forward.
func (l *layer) neox(f *frame, x *tensor, attend func(*tensor) *tensor) *tensor {
	attended := f.Let(attend(f.Call(l.InputLayernorm, x)))
	f.Set(&attended, l.drop(attended))
	if l.c.Order == NeoXParallel {
		fed := f.Let(f.Call(l.Mlp, f.Call(l.PostAttentionLayernorm, x)))
		f.Set(&fed, l.drop(fed))
		f.Set(&x, fed.Add(attended).Add(x))
		return x
	}
	f.Set(&attended, attended.Add(x))
	fed := f.Let(f.Call(l.Mlp, f.Call(l.PostAttentionLayernorm, attended)))
	f.Set(&fed, l.drop(fed))
	f.Set(&x, fed.Add(attended))
	return x
}

// falconH1 is FalconH1DecoderLayer.forward; rows is the mask of padded rows.
func (l *layer) falconH1(f *frame, x, rows *tensor, attend func(*tensor) *tensor) *tensor {
	residual := f.Let(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	mixed := f.Let(l.Mamba.call(f, x, rows))
	f.Set(&mixed, mixed.MulScalar())
	attended := f.Let(attend(x.MulScalar()))
	f.Set(&attended, attended.MulScalar())
	f.Set(&x, mixed.Add(attended))
	f.Set(&x, residual.Add(x))
	f.Set(&residual, x)
	f.Set(&x, f.Call(l.PostAttentionLayernorm, x))
	f.Set(&x, f.Call(l.Mlp, x))
	f.Set(&x, residual.Add(x))
	return x
}

// falcon is FalconDecoderLayer.forward.
func (l *layer) falcon(f *frame, x *tensor, attend func(*tensor) *tensor) *tensor {
	residual := f.Let(x)
	seen := f.Let(f.Call(l.InputLayernorm, x))
	fed := seen
	if l.c.Order == FalconTwice {
		fed = f.Let(f.Call(l.PostAttentionLayernorm, x))
	}
	attended := f.Let(attend(seen))
	y := f.Let(f.Call(l.Mlp, fed))
	y.AddInPlace(attended)
	g := f.FuncFrame(y, residual)
	out := g.Let(y.Dropout(l.c.ResidualDropout, l.Training()))
	g.Set(&out, residual.Add(out))
	return g.Return(out)
}

// lfm2 is Lfm2DecoderLayer.forward; rows is the mask of padded rows.
func (l *layer) lfm2(f *frame, x, rows *tensor, attend func(*tensor) *tensor) *tensor {
	residual := f.Let(x)
	if l.Conv != nil {
		f.Set(&x, l.Conv.call(f, f.Call(l.InputLayernorm, x), rows))
	} else {
		f.Set(&x, attend(f.Call(l.InputLayernorm, x)))
	}
	f.Set(&x, x.Add(residual))
	f.Set(&x, x.Add(f.Call(l.Mlp, f.Call(l.PostAttentionLayernorm, x))))
	return x
}

// drop is the layer's dropout.
func (l *layer) drop(x *tensor) *tensor {
	if l.c.DropoutInside {
		return x
	}
	return x.Dropout(l.c.ResidualDropout, l.Training())
}

// scaled is what goes to the residual stream.
func (l *layer) scaled(x *tensor) *tensor {
	if !l.c.ResidualScaled {
		return x
	}
	return x.MulScalar()
}
