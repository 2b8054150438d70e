package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/peft"
	"github.com/vprof/vprof/profiler/trace"
)

// attentions are the modules that LLaMA-Adapter's prompts can be put at; none of models that peft knows no way for.
func (m *Model) attentions() (all []peft.Attention) {
	for _, l := range m.Layers {
		if a, ok := l.SelfAttn.(*attention); ok && m.c.AdaptionPrompts {
			all = append(all, a)
		}
	}
	return all
}

// AddPrompt implements [peft.Attention].
func (a *attention) AddPrompt(p *peft.Prompt) { a.prompt = p }

// adapted is AdaptedAttention.forward: what the tokens of a prompt add to the attention module's result.
func (a *attention) adapted(f *frame, x *tensor, in inputs) *tensor {
	g := f.CallFrame(x, in.mask, in.positions, in.cos, in.sin)
	inner := inputs{x: x, mask: in.mask, positions: in.positions, cos: in.cos, sin: in.sin}
	y, _ := a.plain(g, x, inner)
	g.Let(y)
	rows, n, groups := y.Size(0), a.prompt.Tokens(), a.c.Heads/a.c.KVHeads
	key := g.Let(g.Call(a.KProj, a.prompt.Weight.T()))
	value := g.Let(g.Call(a.VProj, a.prompt.Weight.T()))
	spread := func(x *tensor) *tensor {
		return x.View(1, n, a.c.KVHeads, a.c.HeadSize).Repeat(rows, 1, 1, 1).Transpose(1, 2)
	}
	k, v := g.Let(spread(key)), g.Let(spread(value))
	g.Set(&k, k.RepeatInterleave(groups, 1))
	g.Set(&v, v.RepeatInterleave(groups, 1))
	query := g.Let(a.queryAgain(g, x, in))
	scores := g.Let(query.Matmul(k.Transpose(2, 3).To(query.DType())).DivScalar())
	shares := scores.SoftmaxTo(-1, trace.F32).To(query.DType())
	g.Set(&scores, a.prompt.Gate.T().Mul(shares))
	more := g.Let(scores.Matmul(v).Transpose(1, 2).Reshape(rows, x.Size(1), -1))
	g.Set(&more, g.Call(a.OProj, more))
	g.Set(&y, y.Add(more))
	g.Set(&y, y.To(query.DType()))
	return g.Return(y)
}

// queryAgain is llama_compute_query_states.
func (a *attention) queryAgain(f *frame, x *tensor, in inputs) *tensor {
	g := f.FuncFrame()
	q := g.Let(hf.Heads(g.Call(a.QProj, x), a.c.HeadSize))
	g.Let(hf.Heads(g.Call(a.VProj, x), a.c.HeadSize))
	cos, sin := g.Let(in.cos.Unsqueeze(1)), g.Let(in.sin.Unsqueeze(1))
	turned := q.Mul(cos)
	return g.Return(turned.Add(hf.RotateHalf(g, q).Mul(sin)))
}
