package gemma

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// gemma3n is Gemma3nTextModel.
type gemma3n struct {
	nn.Module
	EmbedTokens                               *scaledEmbedding
	Layers                                    []*layer3n
	Norm                                      *norm
	Rest                                      *textModel `torch:""`
	AltupProjections, AltupUnembedProjections []nn.Layer
	PerLayerProjectionScale                   *nn.Buffer
	PerLayerInputScale                        *nn.Buffer
	c                                         *Config
}

func newGemma3n(c *Config) *gemma3n {
	m := &gemma3n{
		Rest: newTextModel(c), Norm: newNorm(c, c.Width), PerLayerProjectionScale: nn.NewBuffer(trace.F32),
		PerLayerInputScale: nn.NewBuffer(trace.F32), c: c,
	}
	m.EmbedTokens = m.Rest.embed
	for _, l := range c.Layers {
		m.Layers = append(m.Layers, newLayer3n(c, l))
	}
	for range c.AltUp.Streams - 1 {
		m.AltupProjections = append(m.AltupProjections, nn.NewLinear(c.Width, c.Width, false))
		m.AltupUnembedProjections = append(m.AltupUnembedProjections, nn.NewLinear(c.Width, c.Width, false))
	}
	return m
}

func (m *gemma3n) inner() *textModel { return m.Rest }

// Call implements [hf.Decoder].
func (m *gemma3n) Call(f *frame, ids, padding *tensor, text hf.Text) *tensor {
	g := f.CallFrame(ids, padding)
	in := decoderInputs{embeds: g.Let(m.EmbedTokens.call(g, ids))}
	in.perLayer = g.Let(m.perLayerInputs(g, ids))
	return g.Return(m.run(g, in, padding, text))
}

// perLayerInputs is get_per_layer_inputs.
func (m *gemma3n) perLayerInputs(f *frame, ids *tensor) *tensor {
	g := f.FuncFrame(ids)
	known := g.Let(ids.GtScalar().And(ids.GtScalar()))
	g.Set(&ids, trace.WhereScalar(known, ids))
	return g.Return(m.Rest.EmbedTokensPerLayer.call(g, ids).Reshape(ids.Size(0), ids.Size(1), -1, m.c.PerLayer))
}

// projectPerLayer is project_per_layer_inputs.
func (m *gemma3n) projectPerLayer(f *frame, embeds, perLayer *tensor) *tensor {
	g := f.FuncFrame(embeds, perLayer)
	p := g.Let(g.Call(m.Rest.PerLayerModelProjection, embeds))
	p.MulInPlace(m.PerLayerProjectionScale.To(embeds.DType()))
	g.Set(&p, p.Reshape(embeds.Size(0), embeds.Size(1), -1, m.c.PerLayer))
	g.Set(&p, g.Call(m.Rest.PerLayerProjectionNorm, p))
	return g.Return(p.Add(perLayer).Mul(m.PerLayerInputScale.To(embeds.DType())))
}

func (m *gemma3n) run(g *frame, in decoderInputs, padding *tensor, text hf.Text) *tensor {
	g.Set(&in.perLayer, m.projectPerLayer(g, in.embeds, in.perLayer))
	s := m.Rest.masks(g, in, padding, text)
	first := g.Let(in.embeds)
	var st streams
	x := g.Let(st.stack(g, first.DType(), m.AltupProjections, func(int) *tensor { return first }))
	m.Rest.angles(g, s, x)
	var own *tensor
	for i, l := range m.Layers {
		g.Set(&own, in.perLayer.Select(2, int64(i)))
		kind := l.l.kind()
		forward := func(f *frame, args []*tensor) *tensor { return l.forward(f, args, s) }
		args := []*tensor{x, s.cos[kind], s.sin[kind], own}
		g.Set(&x, text.CallLayer(g, i, l, forward, args, s.keywordArguments(kind)...))
	}
	last := x
	g.Set(&x, st.stack(g, first.DType(), m.AltupUnembedProjections, func(i int) *tensor {
		return last.Select(0, int64(i))
	}))
	g.Set(&x, x.Mean(false, 0))
	return g.Set(&x, g.Call(m.Norm, x))
}

// streams are the names that the model binds where it makes streams of one, and one of
// them: each is projected, and as large as the first.
type streams struct {
	target, projected, x, size *tensor
	list                       []*tensor
}

// stack gives the streams in one tensor [streams, batch, length, width].
func (st *streams) stack(g *frame, d trace.DType, projections []nn.Layer, of func(i int) *tensor) *tensor {
	g.Set(&st.target, of(0).Pow(2).Mean(true, -1).Pow(0.5))
	g.SetAll(&st.list, []*tensor{of(0)})
	for i, p := range projections {
		g.Set(&st.projected, g.Call(p, of(i+1)))
		g.Set(&st.x, st.projected.To(d))
		g.Set(&st.size, st.x.Pow(2).Mean(true, -1))
		g.Set(&st.size, st.size.ClampMin().Sqrt())
		g.Set(&st.x, st.x.Mul(st.target).Div(st.size))
		st.list = append(st.list, g.Let(st.x))
	}
	return trace.Stack(0, st.list...)
}

// layer3n is Gemma3nTextDecoderLayer.
type layer3n struct {
	nn.Module
	SelfAttn                                          *attention
	Mlp                                               *mlp
	InputLayernorm, PostAttentionLayernorm            *norm
	PreFeedforwardLayernorm, PostFeedforwardLayernorm *norm
	ActFn                                             *nn.Func
	Altup                                             *altUp
	Laurel                                            *laurel
	PerLayerInputGate, PerLayerProjection             nn.Layer
	PostPerLayerInputNorm                             *norm
	c                                                 *Config
	l                                                 Layer
}

func newLayer3n(c *Config, l Layer) *layer3n {
	made := func() *norm { return newNorm(c, c.Width) }
	return &layer3n{
		SelfAttn: newAttention(c, l), Mlp: newMLP(c, l), InputLayernorm: made(), PostAttentionLayernorm: made(),
		PreFeedforwardLayernorm: made(), PostFeedforwardLayernorm: made(), ActFn: hf.Activation(c.Activation),
		Altup: newAltUp(c), Laurel: newLaurel(c),
		PerLayerInputGate:  nn.NewLinear(c.Width, c.PerLayer, false),
		PerLayerProjection: nn.NewLinear(c.PerLayer, c.Width, false), PostPerLayerInputNorm: made(), c: c, l: l,
	}
}

// forward takes all streams [streams, batch, length, width], cosines, sines and the embeddings of
// the layer by place, and what a state names.
func (l *layer3n) forward(f *frame, args []*tensor, s *state) *tensor {
	x, cos, sin, perLayer, mask := args[0], args[1], args[2], args[3], args[4]
	predictions := f.Let(l.Altup.predict(f, x))
	active := f.Let(predictions.Select(0, 0))
	normed := f.Let(f.Call(l.InputLayernorm, active))
	learned := f.Let(f.Call(l.Laurel, normed))
	attended, weights := l.SelfAttn.call(f, normed, mask, cos, sin, s.shared[l.l.kind()])
	f.LetEach(attended, weights)
	f.Set(&attended, f.Call(l.PostAttentionLayernorm, attended))
	gated := f.Let(active.Add(attended))
	joined := f.Let(gated.Add(learned).DivScalar())
	fed := f.Let(f.Call(l.PreFeedforwardLayernorm, joined))
	fed = f.Let(f.Call(l.Mlp, fed))
	fed = f.Let(f.Call(l.PostFeedforwardLayernorm, fed))
	activated := f.Let(joined.Add(fed))
	corrected := f.Let(l.Altup.correct(f, predictions, activated))
	first := f.Let(corrected.Select(0, 0).Clone())
	if l.c.AltUp.Scaled {
		f.Set(&first, l.Altup.scaleCorrected(f, first))
	}
	f.Pass(&first, l.PerLayerInputGate, l.ActFn)
	f.Set(&first, first.Mul(perLayer))
	f.Pass(&first, l.PerLayerProjection, l.PostPerLayerInputNorm)
	others := f.Let(corrected.Slice(0, 1, corrected.Size(0)).AddInPlace(first))
	f.Discard(corrected.Slice(0, 1, corrected.Size(0)).CopyInPlace(others))
	return corrected
}

// laurel is Gemma3nTextLaurelBlock.
type laurel struct {
	nn.Module
	LinearLeft, LinearRight nn.Layer
	PostLaurelNorm          *norm
}

func newLaurel(c *Config) *laurel {
	rank := c.AltUp.Rank
	return &laurel{
		LinearLeft: nn.NewLinear(c.Width, rank, false), LinearRight: nn.NewLinear(rank, c.Width, false),
		PostLaurelNorm: newNorm(c, c.Width),
	}
}

func (l *laurel) Forward(f *frame, x *tensor) *tensor {
	y := f.Let(f.Call(l.LinearLeft, x))
	f.Set(&y, f.Call(l.LinearRight, y))
	return x.Add(f.Let(f.Call(l.PostLaurelNorm, y)))
}

// altUp is Gemma3nTextAltUp.
type altUp struct {
	nn.Module
	CorrectOutputScale                               *nn.Parameter
	CorrectionCoefs, PredictionCoefs, ModalityRouter nn.Layer
	RouterNorm                                       *norm
	RouterInputScale                                 *nn.Buffer
	coefs                                            *nn.Linear
	a                                                AltUp
}

func newAltUp(c *Config) *altUp {
	n := c.AltUp.Streams
	coefs := nn.NewLinear(n, n, false)
	return &altUp{
		CorrectOutputScale: nn.NewParameter(c.Width), CorrectionCoefs: coefs, coefs: coefs,
		PredictionCoefs: nn.NewLinear(n, n*n, false),
		ModalityRouter:  nn.NewLinear(c.Width, n, false), RouterNorm: newNorm(c, c.Width),
		RouterInputScale: nn.NewBuffer(trace.F32), a: c.AltUp,
	}
}

// modalities is compute_router_modalities.
func (m *altUp) modalities(f *frame, x *tensor) *tensor {
	g := f.FuncFrame(x)
	inputs := g.Let(g.Call(m.RouterNorm, x).Mul(m.RouterInputScale.Tensor))
	routed := g.Let(g.Call(m.ModalityRouter, inputs))
	return g.Return(routed.To(trace.F32).Tanh().To(x.DType()))
}

func (m *altUp) predict(f *frame, x *tensor) *tensor {
	g := f.FuncFrame(x)
	n := m.a.Streams
	modalities := g.Let(m.modalities(g, x.Select(0, 0)))
	coefs := g.Let(g.Call(m.PredictionCoefs, modalities).Reshape(x.Size(1), x.Size(2), n, n).Permute(0, 1, 3, 2))
	y := g.Let(x.Permute(1, 2, 3, 0).Matmul(coefs))
	g.Set(&y, y.Permute(3, 0, 1, 2))
	y.AddInPlace(x)
	return g.Return(y.Contiguous().To(x.DType()))
}

func (m *altUp) correct(f *frame, predictions, activated *tensor) *tensor {
	g := f.FuncFrame(predictions, activated)
	modalities := g.Let(m.modalities(g, activated))
	innovation := g.Let(activated.Sub(predictions.Select(0, 0)))
	g.Set(&innovation, innovation.Repeat(m.a.Streams, 1, 1, 1))
	var coefs *tensor
	if m.a.Clipped && m.Training() && m.coefs.Weight.Tensor != nil {
		weight := g.Let(m.coefs.Weight.Clamp())
		coefs = g.Let(modalities.Linear(weight, nil).AddScalar())
	} else {
		coefs = g.Let(g.Call(m.CorrectionCoefs, modalities).AddScalar())
	}
	g.Set(&coefs, coefs.Permute(2, 0, 1).Unsqueeze(-1))
	y := g.Let(innovation.Mul(coefs))
	y.AddInPlace(predictions)
	return g.Return(y.Contiguous().To(activated.DType()))
}

// scaleCorrected is scale_corrected_output.
func (m *altUp) scaleCorrected(f *frame, x *tensor) *tensor {
	g := f.FuncFrame(x)
	return g.Return(x.To(m.CorrectOutputScale.DType).Mul(m.CorrectOutputScale.Tensor).To(x.DType()))
}

// gemma3n is Gemma3nTextMLP.forward.
func (m *mlp) gemma3n(f *frame, x *tensor) *tensor {
	gate := f.Let(f.Call(m.GateProj, x))
	if m.sparse {
		f.Set(&gate, gaussianTopK(f, gate))
	}
	activations := f.Let(f.Call(m.ActFn, gate))
	up := f.Let(f.Call(m.UpProj, x))
	return f.Let(f.Call(m.DownProj, activations.Mul(up)))
}

// gaussianTopK is _gaussian_topk.
func gaussianTopK(f *frame, x *tensor) *tensor {
	g := f.FuncFrame(x)
	t := g.Tape()
	target := g.Let(t.Filled("tensor", trace.F32))
	factor := g.Let(target.MulScalar().AddScalar().MulScalar().MulScalar().AddScalar())
	g.Set(&factor, factor.To(x.DType()))
	mean := g.Let(x.Mean(true, -1))
	deviation := g.Let(x.Std(true, -1))
	bound := g.Let(mean.Add(deviation.Mul(factor)))
	return g.Return(x.Sub(bound).ReLU())
}
