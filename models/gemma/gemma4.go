package gemma

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/liger"
	"github.com/vprof/vprof/models/llama"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// gemma4 is Gemma4TextModel of transformers.
type gemma4 struct {
	nn.Module
	EmbedTokens *scaledEmbedding
	Layers      []*layer4
	Norm        *norm
	Rest        *textModel `torch:""`
	c           *Config
}

func newGemma4(c *Config) *gemma4 {
	m := &gemma4{Rest: newTextModel(c), Norm: newNorm(c, c.Width), c: c}
	m.EmbedTokens = m.Rest.embed
	m.Layers = lists.Map(c.Layers, func(l Layer) *layer4 { return newLayer4(c, l) })
	return m
}

func (m *gemma4) Call(f *frame, ids, padding *tensor, text hf.Text) *tensor {
	g := f.CallFrame(ids, padding)
	in := decoderInputs{embeds: g.Bind(m.EmbedTokens.call(g, ids))}
	if m.c.PerLayer > 0 {
		in.perLayer = g.Bind(m.Rest.perLayerInputs(g, ids))
	}
	return g.Return(m.run(g, in, padding, text))
}

func (m *gemma4) run(g *frame, in decoderInputs, padding *tensor, text hf.Text) *tensor {
	if m.c.PerLayer > 0 {
		g.Set(&in.perLayer, m.Rest.projectPerLayer(g, in.embeds, in.perLayer))
	}
	s := m.Rest.prepare(g, in, padding, text)
	x := g.Bind(in.embeds)
	m.Rest.rotaryAngles(g, s, x)
	var own *tensor
	for i, l := range m.Layers {
		inputs := []*tensor{x}
		if in.perLayer != nil {
			g.Set(&own, in.perLayer.Select(2, int64(i)))
			inputs = append(inputs, own)
		}
		forward := func(f *frame, args []*tensor) *tensor { return l.forward(f, args, s) }
		g.Set(&x, text.CallLayer(g, i, l, forward, inputs, s.keywordArguments(l.l.kind())...))
	}
	return g.Set(&x, g.Call(m.Norm, x))
}

// layer4 is Gemma4TextDecoderLayer of transformers.
type layer4 struct {
	nn.Module
	SelfAttn                                          *attention
	Mlp                                               *mlp
	InputLayernorm, PostAttentionLayernorm            *norm
	PreFeedforwardLayernorm, PostFeedforwardLayernorm *norm
	LayerScalar                                       *nn.Buffer
	ActFn                                             *nn.FuncLayer
	PerLayerInputGate, PerLayerProjection             nn.Layer
	PostPerLayerInputNorm                             *norm
	Router                                            *router
	Experts                                           *llama.ExpertWeights
	PostFeedforwardLayernorm1                         *norm `torch:"post_feedforward_layernorm_1"`
	PostFeedforwardLayernorm2                         *norm `torch:"post_feedforward_layernorm_2"`
	PreFeedforwardLayernorm2                          *norm `torch:"pre_feedforward_layernorm_2"`
	c                                                 *Config
	l                                                 Layer
}

func newLayer4(c *Config, l Layer) *layer4 {
	made := func() *norm { return newNorm(c, c.Width) }
	y := &layer4{
		SelfAttn: newAttention(c, l), Mlp: newMLP(c, l), InputLayernorm: made(), PostAttentionLayernorm: made(),
		PreFeedforwardLayernorm: made(), PostFeedforwardLayernorm: made(),
		LayerScalar: nn.NewBufferOfWeights(1), c: c, l: l,
	}
	if c.PerLayer > 0 {
		y.ActFn = hf.Activation(c.Activation)
		y.PerLayerInputGate, y.PerLayerProjection = nn.NewLinear(c.Width, c.PerLayer, false),
			nn.NewLinear(c.PerLayer, c.Width, false)
		y.PostPerLayerInputNorm = made()
	}
	if e := c.Experts; e.Count > 0 {
		y.Router = newRouter(c)
		y.Experts = llama.NewExperts(&llama.Config{
			Sizes: llama.Sizes{Width: c.Width}, Activation: c.Activation,
			Experts: llama.Experts{Count: e.Count, PerToken: e.PerToken, Inner: e.Inner},
		})
		y.PostFeedforwardLayernorm1, y.PostFeedforwardLayernorm2, y.PreFeedforwardLayernorm2 = made(), made(), made()
	}
	return y
}

// forward records the layer's forward of args: hidden states, and the layer's embeddings if there are any.
func (l *layer4) forward(f *frame, args []*tensor, s *layerArguments) *tensor {
	x, perLayer, named := args[0], (*tensor)(nil), args[1:]
	if l.c.PerLayer > 0 {
		perLayer, named = args[1], args[2:]
	}
	residual := f.Bind(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	attended, weights := l.SelfAttn.call(f, x, named[0], named[2], named[3], s.shared[l.l.kind()])
	f.Set(&x, attended)
	f.BindEach(weights)
	f.Set(&x, f.Call(l.PostAttentionLayernorm, x))
	f.Set(&x, residual.Add(x))
	f.Set(&residual, x)
	f.Pass(&x, l.PreFeedforwardLayernorm, l.Mlp)
	if l.Router != nil {
		f.Set(&x, l.addExperts(f, x, residual))
	}
	f.Set(&x, f.Call(l.PostFeedforwardLayernorm, x))
	f.Set(&x, residual.Add(x))
	if perLayer != nil {
		f.Set(&residual, x)
		f.Pass(&x, l.PerLayerInputGate, l.ActFn)
		f.Set(&x, x.Mul(perLayer))
		f.Pass(&x, l.PerLayerProjection, l.PostPerLayerInputNorm)
		f.Set(&x, residual.Add(x))
	}
	return x.MulInPlace(l.LayerScalar.Tensor)
}

// addExperts adds the experts' output, computed from the residual stream, to the output of the feed-forward part.
func (l *layer4) addExperts(f *frame, x, residual *tensor) *tensor {
	first := f.Bind(f.Call(l.PostFeedforwardLayernorm1, x))
	flat := f.Bind(residual.Reshape(-1, residual.Size(-1)))
	probabilities, weights, chosen := l.Router.call(f, flat)
	f.BindAll([]*tensor{probabilities, weights, chosen})
	second := f.Bind(f.Call(l.PreFeedforwardLayernorm2, flat))
	f.Set(&second, l.Experts.Call(f, second, chosen, weights))
	f.Set(&second, second.Reshape(residual.Shape()...))
	f.Set(&second, f.Call(l.PostFeedforwardLayernorm2, second))
	return first.Add(second)
}

// router is Gemma4TextRouter of transformers.
type router struct {
	nn.Module
	Norm                  *norm
	Proj                  nn.Layer
	Scale, PerExpertScale *nn.Parameter
	each                  int64
}

func newRouter(c *Config) *router {
	return &router{
		Norm: &norm{}, Proj: nn.NewLinear(c.Width, c.Experts.Count, false),
		Scale: nn.NewParameter(c.Width), PerExpertScale: nn.NewParameter(c.Experts.Count), each: c.Experts.PerToken,
	}
}

// call returns the probabilities of all experts for tokens [tokens, width], and weights and indices of the chosen.
func (r *router) call(f *frame, x *tensor) (probabilities, weights, chosen *tensor) {
	g := f.ModuleFrame(r, x)
	g.Set(&x, g.Call(r.Norm, x))
	g.Set(&x, x.Mul(r.Scale.Tensor).MulScalar())
	scores := g.Bind(g.Call(r.Proj, x))
	probabilities = g.Bind(scores.SoftmaxTo(-1, trace.F32))
	weights, chosen = probabilities.TopK(r.each, -1)
	g.BindAll([]*tensor{weights, chosen})
	weights.DivInPlace(weights.Sum(true, -1))
	g.Set(&weights, weights.Mul(r.PerExpertScale.Index(chosen)))
	g.End(probabilities, weights, chosen)
	return probabilities, weights, chosen
}

// mlp is Gemma4TextMLP of transformers.
type mlp struct {
	nn.Module
	GateProj, UpProj, DownProj nn.Layer
	ActFn                      *nn.FuncLayer
	c                          *Config
}

func newMLP(c *Config, l Layer) *mlp {
	return &mlp{
		GateProj: nn.NewLinear(c.Width, l.Inner, false), UpProj: nn.NewLinear(c.Width, l.Inner, false),
		DownProj: nn.NewLinear(l.Inner, c.Width, false),
		ActFn:    hf.Activation(c.Activation), c: c,
	}
}

func (m *mlp) Forward(f *frame, x *tensor) *tensor {
	if m.c.Liger {
		return f.Call(m.DownProj, liger.GatedProduct(f, f.Call(m.GateProj, x), f.Call(m.UpProj, x)))
	}
	return f.Bind(f.Call(m.DownProj, f.Call(m.ActFn, f.Call(m.GateProj, x)).Mul(f.Call(m.UpProj, x))))
}
