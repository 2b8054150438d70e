package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/liger"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// Llama4 holds Llama 4's differences from Llama besides its norms and experts.
type Llama4 struct {
	// Enabled reports whether the decoder is a Llama 4.
	Enabled bool
	// QKNorm normalizes queries and keys of rotary layers without a weight. TemperatureTuning scales queries of other
	// layers by their positions (attn_temperature_tuning).
	QKNorm, TemperatureTuning bool
	// Linearized stores experts as lists of linear layers (axolotl's llama4_linearized_experts).
	Linearized bool
	// HasChunkedAttention gives windowed layers chunked attention.
	HasChunkedAttention bool
}

type llama4Attention struct {
	nn.Module
	QProj, KProj, VProj, OProj nn.Layer
	c                          *Config
	rotates                    bool
}

func newLlama4Attention(c *Config, i int) *llama4Attention {
	query, shared := c.Heads*c.HeadSize, c.KVHeads*c.HeadSize
	return &llama4Attention{
		QProj: nn.NewLinear(c.Width, query, c.QKVBias), KProj: nn.NewLinear(c.Width, shared, c.QKVBias),
		VProj: nn.NewLinear(c.Width, shared, c.QKVBias),
		OProj: nn.NewLinear(query, c.Width, c.OutputBias), c: c, rotates: c.hasRotary(i),
	}
}

// call records the module's forward; in.cos holds complex angles.
func (a *llama4Attention) call(f *frame, x *tensor, in inputs) (y, weights *tensor) {
	g := f.ModuleFrame(a, x, in.mask, in.positions, in.cos)
	batch, length := x.Size(0), x.Size(1)
	heads := func(project nn.Layer) *tensor { return g.Call(project, x).View(batch, length, -1, a.c.HeadSize) }
	q := g.Bind(heads(a.QProj))
	k := g.Bind(heads(a.KProj))
	v := g.Bind(heads(a.VProj).Transpose(1, 2))
	if a.rotates {
		turn := a.applyRotary
		if a.c.Liger {
			turn = liger.RotateComplex
		}
		turnedQ, turnedK := turn(g, q, k, in.cos)
		g.Set(&q, turnedQ)
		g.Set(&k, turnedK)
	}
	if a.rotates && a.c.Llama4.QKNorm {
		g.Set(&q, l2Norm(g, q))
		g.Set(&k, l2Norm(g, k))
	}
	if a.c.Llama4.TemperatureTuning && !a.rotates {
		places := g.Bind(g.Tape().Arange(length).AddScalar())
		scales := g.Bind(places.To(trace.F32).AddScalar().DivScalar().Unary("floor").Unary("log1p").
			MulScalar().AddScalar())
		g.Set(&scales, scales.View(1, length, 1, 1).Expand(batch, length, 1, 1))
		g.Set(&q, q.Mul(scales).To(q.DType()))
	}
	g.Set(&q, q.Transpose(1, 2))
	g.Set(&k, k.Transpose(1, 2))
	o := hf.AttentionOptions{
		Causal: true, Groups: a.c.Heads / a.c.KVHeads, KeepsScoreType: true,
		Dropout: hf.DropoutInMode(a, a.c.AttentionDropout),
	}
	k, v = a.c.Cache.Update(g, k, v)
	y, weights = a.c.attendAndProject(g, q, k, v, in, o, a.OProj)
	return g.ReturnPair(y, weights)
}

// applyRotary records apply_rotary_emb of transformers' Llama 4 over query and key [batch, length, heads, size].
func (a *llama4Attention) applyRotary(f *frame, q, k, angles *tensor) (*tensor, *tensor) {
	g := f.FunctionFrame(q, k, angles)
	qs := g.Bind(complexPairs(q))
	ks := g.Bind(complexPairs(k))
	turned := func(x *tensor) *tensor { return g.Bind(x.Mul(angles.Unsqueeze(2)).ViewAsReal().Flatten(3, -1)) }
	qt := turned(qs)
	kt := turned(ks)
	y, z := qt.To(q.DType()), kt.To(k.DType())
	return g.ReturnPair(y, z)
}

// l2Norm records Llama4TextL2Norm.
func l2Norm(f *frame, x *tensor) *tensor {
	g := f.CallFrame(x)
	return g.Return(hf.GemmaNormalize(g, x.To(trace.F32)).To(x.DType()))
}

// llama4Forward records Llama4TextDecoderLayer.forward.
func (l *layer) llama4Forward(f *frame, in inputs) *tensor {
	x := in.x
	residual := f.Bind(x)
	f.Set(&x, f.Call(l.InputLayernorm, x))
	attended, other := l.SelfAttn.call(f, x, in)
	f.Bind(attended) // a variable until the end
	f.BindEach(other)
	f.Set(&x, residual.Add(attended))
	f.Set(&residual, x)
	f.Set(&x, f.Call(l.PostAttentionLayernorm, x))
	if s, ok := l.Mlp.(*llama4Experts); ok {
		y, scores := s.call(f, x)
		f.Set(&other, scores)
		f.Set(&x, y)
	} else {
		f.Set(&x, f.Call(l.Mlp, x))
	}
	return f.Set(&x, residual.Add(x.View(residual.Shape()...)))
}

// llama4Experts is Llama4TextMoe, in which every expert processes every token, scaled by the token's weight for it.
type llama4Experts struct {
	nn.Module
	Experts      llama4ExpertLayers
	Router       *llama4Router
	SharedExpert *mlp
	c            *Config
}

func newLlama4Experts(c *Config) *llama4Experts {
	s := &llama4Experts{
		Router:       &llama4Router{Weight: nn.NewParameter(c.Experts.Count, c.Width), c: c},
		SharedExpert: newMLPOf(c, c.Experts.Inner), c: c,
	}
	if c.Llama4.Linearized {
		s.Experts = newLinearExperts(c)
	} else {
		s.Experts = newBatchedExperts(c)
	}
	return s
}

func (s *llama4Experts) Forward(f *frame, x *tensor) *tensor {
	y, _ := s.call(f, x)
	return y
}

// call returns the output for hidden states [batch, length, width], as rows, and the router's logits.
func (s *llama4Experts) call(f *frame, x *tensor) (y, scores *tensor) {
	g := f.ModuleFrame(s, x)
	e := s.c.Experts
	g.Set(&x, x.Reshape(-1, x.Size(-1)))
	weights, scores := s.Router.call(g, x)
	g.BindAll([]*tensor{weights, scores})
	routed := g.Bind(x.Repeat(e.Count, 1))
	g.Set(&routed, routed.Mul(weights.Transpose(0, 1).Reshape(-1, 1)))
	made := g.Bind(s.Experts.call(g, routed))
	y = g.Bind(g.Call(s.SharedExpert, x))
	y.AddInPlace(made.Reshape(e.Count, -1, x.Size(-1)).Sum(false, 0))
	return g.ReturnPair(y, scores)
}

// llama4Router is Llama4Router, a linear layer with two results, which is not quantized.
type llama4Router struct {
	nn.Module
	Weight *nn.Parameter
	c      *Config
}

// call returns the weights of all experts for tokens x [tokens, width], zero for experts that are not chosen, and the
// router's logits.
func (s *llama4Router) call(f *frame, x *tensor) (weights, scores *tensor) {
	g := f.ModuleFrame(s, x)
	scores = g.Bind(x.Linear(s.Weight.Tensor, nil))
	best, chosen := scores.TopK(s.c.Experts.PerToken, 1)
	g.BindAll([]*tensor{best, chosen})
	weights = g.Bind(scores.FilledLike("full_like", scores.DType()).ScatterFromInPlace(chosen, best))
	g.Set(&weights, weights.To(trace.F32).Sigmoid().To(weights.DType()))
	return g.ReturnPair(weights, scores)
}

// llama4ExpertLayers is all experts of a layer. Their input has the shape [experts * tokens, width], by expert.
type llama4ExpertLayers interface {
	call(f *frame, x *tensor) *tensor
}

// batchedExperts is Llama4TextExperts.
type batchedExperts struct {
	nn.Module
	GateUpProj, DownProj *nn.Parameter
	Wrappers             *nn.ParamWrappers `torch:""`
	ActFn                *nn.FuncLayer
	c                    *Config
}

func newBatchedExperts(c *Config) *batchedExperts {
	e := c.Experts
	return &batchedExperts{
		GateUpProj: nn.NewParameter(e.Count, c.Width, 2*e.Inner), DownProj: nn.NewParameter(e.Count, e.Inner, c.Width),
		ActFn: hf.Activation(c.Activation), c: c,
	}
}

func (e *batchedExperts) QuantizeParameters(pack func(*nn.Parameter) *nn.Parameter) {
	e.GateUpProj, e.DownProj = pack(e.GateUpProj), pack(e.DownProj)
}

// WrapParameters implements [nn.ParameterWrappable]; peft treats the weights as [experts, out, in].
func (e *batchedExperts) WrapParameters(wrap nn.WrapParameter) {
	e.Wrappers = e.Wrappers.AddOuter(wrap("gate_up_proj", e.GateUpProj, true))
	e.Wrappers = e.Wrappers.AddOuter(wrap("down_proj", e.DownProj, true))
}

func (e *batchedExperts) call(f *frame, x *tensor) *tensor {
	return e.Wrappers.RunForward(f, []*tensor{x}, func(f *frame) []*tensor { return []*tensor{e.runBatched(f, x)} })[0]
}

func (e *batchedExperts) runBatched(f *frame, x *tensor) *tensor {
	g := f.ModuleFrame(e, x)
	g.Set(&x, x.View(e.c.Experts.Count, -1, e.c.Width))
	up := e.GateUpProj.ReadAttribute(g)
	both := g.Bind(x.BMM(up))
	parts := g.BindAll(both.Chunk(2, -1))
	down := e.DownProj.ReadAttribute(g)
	y := g.Bind(parts[1].Mul(g.Call(e.ActFn, parts[0])).BMM(down))
	g.Set(&y, y.View(-1, e.c.Width))
	nn.EndAttributeReads(f.Tape(), []*nn.Parameter{e.GateUpProj, e.DownProj}, []*tensor{up, down})
	return g.Return(y)
}

// linearExperts is axolotl's replacement of Llama4TextExperts.
type linearExperts struct {
	nn.Module
	GateProjs, UpProjs, DownProjs []nn.Layer
	ActFn                         *nn.FuncLayer
	c                             *Config
}

func newLinearExperts(c *Config) *linearExperts {
	l := &linearExperts{ActFn: hf.Activation(c.Activation), c: c}
	for range c.Experts.Count {
		l.GateProjs = append(l.GateProjs, nn.NewLinear(c.Width, c.Experts.Inner, false))
		l.UpProjs = append(l.UpProjs, nn.NewLinear(c.Width, c.Experts.Inner, false))
		l.DownProjs = append(l.DownProjs, nn.NewLinear(c.Experts.Inner, c.Width, false))
	}
	return l
}

func (e *linearExperts) call(f *frame, x *tensor) *tensor {
	g := f.ModuleFrame(e, x)
	g.Set(&x, x.View(e.c.Experts.Count, -1, e.c.Width))
	y := g.Bind(x.ZerosLike())
	var seen, gate, up *tensor
	for i := range e.GateProjs {
		g.Set(&seen, x.Select(0, int64(i)))
		g.Set(&gate, g.Call(e.GateProjs[i], seen))
		g.Set(&up, g.Call(e.UpProjs[i], seen))
		g.Discard(y.Select(0, int64(i)).CopyInPlace(g.Call(e.DownProjs[i], up.Mul(g.Call(e.ActFn, gate)))))
	}
	return g.Return(y.View(-1, e.c.Width))
}

// llama4Forward records Llama4TextRMSNorm.forward.
func (n *norm) llama4Forward(f *frame, x *tensor) *tensor {
	y := f.Bind(hf.GemmaNormalize(f, x.To(trace.F32)).To(x.DType()))
	return y.Mul(n.Weight.Tensor)
}
