package llama

import (
	"errors"

	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/liger"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/peft"
	"github.com/vprof/vprof/profiler/trace"
)

// attention is causal self-attention with rotary embeddings. Several query heads can share one key and value head.
type attention struct {
	nn.Module
	TorchNames
	QkvProj                    nn.Layer // replaces the three
	QProj, KProj, VProj, OProj nn.Layer
	Sinks                      *nn.Parameter
	Bias                       *nn.Buffer // causal masks of all positions
	QNorm, KNorm               nn.Layer
	RotaryEmb                  *rotary
	c                          *Config
	rotates                    bool
	// prompt is LLaMA-Adapter's prompt; nil without it.
	prompt *peft.Prompt
}

func newAttention(c *Config, i int) *attention {
	query, shared := c.Heads*c.HeadSize, c.KVHeads*c.HeadSize
	a := &attention{TorchNames: c.Names, c: c, rotates: c.hasRotary(i)}
	if c.QKV == ThreeProjections {
		a.QProj = nn.NewLinear(c.Width, query, c.QKVBias)
		a.KProj, a.VProj = nn.NewLinear(c.Width, shared, c.QKVBias), nn.NewLinear(c.Width, shared, c.QKVBias)
	} else {
		a.QkvProj = nn.NewLinear(c.Width, query+2*shared, c.QKVBias)
	}
	a.OProj = nn.NewLinear(query, c.Width, c.OutputBias)
	if c.Rotary.Own {
		a.RotaryEmb = newRotary(c)
	}
	if c.Sinks {
		a.Sinks = nn.NewParameter(c.Heads)
	}
	if c.CausalBuffers > 0 {
		a.Bias = nn.NewBuffer(trace.Bool, 1, 1, c.CausalBuffers, c.CausalBuffers)
	}
	if c.AttentionGate {
		a.QProj = nn.NewLinear(c.Width, 2*query, c.QKVBias)
	}
	switch c.QKNorm {
	case NoQKNorm:
	case ViewedNorm:
		a.QNorm, a.KNorm = &norm{Weight: nn.NewParameter(c.Heads, c.HeadSize), kind: c.Norm},
			&norm{Weight: nn.NewParameter(c.KVHeads, c.HeadSize), kind: c.Norm}
	default:
		a.QNorm, a.KNorm = newNorm(c, c.HeadSize), newNorm(c, c.HeadSize)
	}
	return a
}

func (a *attention) call(f *frame, x *tensor, in inputs) (y, weights *tensor) {
	if a.prompt != nil {
		return a.forwardWithPrompt(f, x, in), nil
	}
	return a.forward(f, x, in)
}

// forward records LlamaAttention.forward.
func (a *attention) forward(f *frame, x *tensor, in inputs) (y, weights *tensor) {
	g := f.ModuleFrame(a, x, in.mask, in.positions, in.cos, in.sin)
	x = g.ParallelInput(x)
	var q, k, v, gate *tensor
	if a.c.AttentionGate {
		q, gate = a.projectWithGate(g, x)
		k = g.Bind(a.projectHeads(g, a.KProj, a.KNorm, x))
		v = g.Bind(hf.SplitHeads(g.Call(a.VProj, x), a.c.HeadSize))
	} else {
		q, k, v = a.project(g, x)
	}
	if a.RotaryEmb != nil {
		in.cos, in.sin = a.RotaryEmb.call(g, 0, v, in.positions)
		g.BindEach(in.cos, in.sin)
	}
	if a.rotates {
		a.applyRotary(g, &q, &k, in.cos, in.sin)
	}
	if a.c.QueryScaled {
		g.Set(&q, q.Mul(queryScale(g, in.positions).To(q.DType())))
	}
	k, v = a.c.Cache.Update(g, k, v)
	y, weights = a.computeAttention(g, q, k, v, in)
	g.BindEach(y, weights)
	g.Set(&y, hf.MergeHeads(y))
	if gate != nil {
		g.Set(&y, y.Mul(gate.Sigmoid()))
	}
	g.Set(&y, g.Call(a.OProj, y))
	if a.c.DropoutInside {
		g.Set(&y, y.Dropout(a.c.ResidualDropout, a.Training()))
	}
	return g.ReturnPair(y, weights)
}

// projectWithGate returns the heads of the query and their gate.
func (a *attention) projectWithGate(f *frame, x *tensor) (q, gate *tensor) {
	size := a.c.HeadSize
	parts := f.BindAll(f.Call(a.QProj, x).View(x.Size(0), x.Size(1), -1, 2*size).Chunk(2, -1))
	q, gate = parts[0], parts[1]
	f.Set(&gate, gate.Reshape(x.Size(0), x.Size(1), -1))
	f.Set(&q, f.Call(a.QNorm, q).Transpose(1, 2))
	return q, gate
}

// computeAttention computes the attention of the layer, with sinks if the model has them.
func (a *attention) computeAttention(f *frame, q, k, v *tensor, in inputs) (y, weights *tensor) {
	mask, o := in.mask, hf.AttentionOptions{
		Causal: true, Groups: q.Size(1) / k.Size(1), RepeatKV: a.c.RepeatKV, Flash: a.c.Flash,
		Dropout: hf.DropoutInMode(a, a.c.AttentionDropout),
	}
	if a.c.Context.IsActive() {
		if a.c.Eager {
			f.Tape().Raise(errors.New("context parallelism (cp) needs FlashAttention, and this model's attention is " +
				"eager; add --set flash=1"))
		}
		return a.c.Context.Attention(f, q, k, v, mask, o), nil
	}
	if a.c.Eager && a.Sinks != nil {
		return hf.SinkAttention(f, q, k, v, mask, a.Sinks.Tensor, o)
	}
	return a.c.attend(f, q, k, v, in, o)
}

// attend computes attention without sinks. weights is nil unless attention is eager.
func (c *Config) attend(f *frame, q, k, v *tensor, in inputs, o hf.AttentionOptions) (y, weights *tensor) {
	switch {
	case c.Eager:
		return hf.EagerAttention(f, q, k, v, in.mask, o, c.AttentionCap)
	case c.Flex:
		return hf.FlexAttention(f, q, k, v, in.blocks, o)
	}
	return hf.Attention(f, q, k, v, in.mask, o), nil
}

// attendAndProject computes attention and the output projection in the attention module's frame.
func (c *Config) attendAndProject(f *frame, q, k, v *tensor, in inputs, o hf.AttentionOptions, output nn.Layer) (y,
	weights *tensor,
) {
	y, weights = c.attend(f, q, k, v, in, o)
	f.BindEach(y, weights)
	f.Set(&y, hf.MergeHeads(y))
	f.Set(&y, f.Call(output, y))
	return y, weights
}

// project returns the heads of query, key and value.
func (a *attention) project(f *frame, x *tensor) (q, k, v *tensor) {
	c := a.c
	switch c.QKV {
	case OneProjection:
		all := f.Bind(f.Call(a.QkvProj, x))
		query, shared := c.Heads*c.HeadSize, c.KVHeads*c.HeadSize
		q = f.Bind(all.Slice(-1, 0, query))
		k = f.Bind(all.Slice(-1, query, query+shared))
		v = f.Bind(all.Slice(-1, query+shared, query+2*shared))
		for _, y := range []**tensor{&q, &k, &v} {
			f.Set(y, hf.SplitHeads(*y, c.HeadSize))
		}
	case HeadsProjection:
		all := f.Bind(hf.SplitHeads(f.Call(a.QkvProj, x), 3*c.HeadSize))
		parts := f.BindAll(all.Chunk(3, -1))
		q, k, v = parts[0], parts[1], parts[2]
	default:
		if c.QKNorm == ViewedNorm {
			return a.projectAndNormalize(f, x)
		}
		q = f.Bind(a.projectHeads(f, a.QProj, a.QNorm, x))
		k = f.Bind(a.projectHeads(f, a.KProj, a.KNorm, x))
		v = f.Bind(hf.SplitHeads(f.Call(a.VProj, x), c.HeadSize))
		if c.QKNorm == TransposedNorm {
			f.Set(&q, f.Call(a.QNorm, q))
			f.Set(&k, f.Call(a.KNorm, k))
		}
	}
	return q, k, v
}

// projectAndNormalize projects x to query, key and value, and clamps them (OLMo) or normalizes query and key (Cohere).
func (a *attention) projectAndNormalize(f *frame, x *tensor) (q, k, v *tensor) {
	q, k, v = f.Bind(f.Call(a.QProj, x)), f.Bind(f.Call(a.KProj, x)), f.Bind(f.Call(a.VProj, x))
	f.Set(&q, f.Call(a.QNorm, q.View(q.Size(0), q.Size(1), -1, a.c.HeadSize)).View(q.Size(0), q.Size(1), -1))
	f.Set(&k, f.Call(a.KNorm, k.View(k.Size(0), k.Size(1), -1, a.c.HeadSize)).View(k.Size(0), k.Size(1), -1))
	for _, y := range []**tensor{&q, &k, &v} {
		f.Set(y, hf.SplitHeads(*y, a.c.HeadSize))
	}
	return q, k, v
}

// projectHeads projects x, and normalizes the projection if the model does so before it is split into heads.
func (a *attention) projectHeads(f *frame, project, norm nn.Layer, x *tensor) *tensor {
	y := f.Call(project, x)
	if a.c.QKNorm == HeadsNorm {
		return f.Call(norm, y.View(y.Size(0), y.Size(1), -1, a.c.HeadSize)).Transpose(1, 2)
	}
	return hf.SplitHeads(y, a.c.HeadSize)
}

// applyRotary replaces query and key by their results after the rotary embedding.
func (a *attention) applyRotary(f *frame, q, k **tensor, cos, sin *tensor) {
	if a.c.Liger {
		turnedQ, turnedK := liger.Rotate(f, *q, *k, cos, sin)
		f.Set(q, turnedQ)
		f.Set(k, turnedK)
		return
	}
	turnedQ, turnedK := a.c.Rotary.rotate(f, *q, *k, cos, sin)
	f.Set(q, turnedQ)
	f.Set(k, turnedK)
}

// queryScale records get_llama_4_attn_scale of transformers' Ministral 3.
func queryScale(f *frame, positions *tensor) *tensor {
	g := f.FunctionFrame(positions)
	scaling := g.Bind(positions.DivScalar().Unary("floor").AddScalar().Log().MulScalar().AddScalar())
	return g.Return(scaling.Unsqueeze(1).Unsqueeze(-1))
}

// promptAttentions returns the attention modules to which LLaMA-Adapter adds prompts; nil where peft supports none.
func (m *Model) promptAttentions() (all []peft.Attention) {
	for _, l := range m.Layers {
		if a, ok := l.SelfAttn.(*attention); ok && m.c.AdaptionPrompts {
			all = append(all, a)
		}
	}
	return all
}

func (a *attention) AddPrompt(p *peft.Prompt) { a.prompt = p }

// forwardWithPrompt records AdaptedAttention.forward, which adds attention to prompt tokens to the module's result.
func (a *attention) forwardWithPrompt(f *frame, x *tensor, in inputs) *tensor {
	g := f.CallFrame(x, in.mask, in.positions, in.cos, in.sin)
	inner := inputs{x: x, mask: in.mask, positions: in.positions, cos: in.cos, sin: in.sin}
	y, _ := a.forward(g, x, inner)
	g.Bind(y)
	rows, n, groups := y.Size(0), a.prompt.Weight.Dims[1], a.c.Heads/a.c.KVHeads
	key := g.Bind(g.Call(a.KProj, a.prompt.Weight.TensorOrNil()))
	value := g.Bind(g.Call(a.VProj, a.prompt.Weight.TensorOrNil()))
	spread := func(x *tensor) *tensor {
		return x.View(1, n, a.c.KVHeads, a.c.HeadSize).Repeat(rows, 1, 1, 1).Transpose(1, 2)
	}
	k, v := g.Bind(spread(key)), g.Bind(spread(value))
	g.Set(&k, k.RepeatInterleave(groups, 1))
	g.Set(&v, v.RepeatInterleave(groups, 1))
	query := g.Bind(a.promptQuery(g, x, in))
	scores := g.Bind(query.Matmul(k.Transpose(2, 3).To(query.DType())).DivScalar())
	shares := scores.SoftmaxTo(-1, trace.F32).To(query.DType())
	g.Set(&scores, a.prompt.Gate.TensorOrNil().Mul(shares))
	more := g.Bind(scores.Matmul(v).Transpose(1, 2).Reshape(rows, x.Size(1), -1))
	g.Set(&more, g.Call(a.OProj, more))
	g.Set(&y, y.Add(more))
	return g.Return(g.Set(&y, y.To(query.DType())))
}

// promptQuery records llama_compute_query_states of peft's adaption_prompt/utils.py.
func (a *attention) promptQuery(f *frame, x *tensor, in inputs) *tensor {
	g := f.FunctionFrame()
	q := g.Bind(hf.SplitHeads(g.Call(a.QProj, x), a.c.HeadSize))
	g.Bind(hf.SplitHeads(g.Call(a.VProj, x), a.c.HeadSize))
	cos, sin := g.Bind(in.cos.Unsqueeze(1)), g.Bind(in.sin.Unsqueeze(1))
	turned := q.Mul(cos)
	return g.Return(turned.Add(hf.RotateHalf(g, q).Mul(sin)))
}
