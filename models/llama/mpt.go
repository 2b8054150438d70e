package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// biasedAttention is MptAttention: eager, with biases by distance (ALiBi) in the place of
// rotary positions.
type biasedAttention struct {
	nn.Module
	QkvProj nn.Layer `torch:"Wqkv"`
	OutProj nn.Layer
	c       *Config
}

func newBiasedAttention(c *Config) *biasedAttention {
	return &biasedAttention{
		QkvProj: nn.NewLinear(c.Width, 3*c.Width, false),
		OutProj: nn.NewLinear(c.Width, c.Width, false), c: c,
	}
}

// call takes the biases [heads, 1, longest] in the place of cosines.
func (a *biasedAttention) call(f *frame, x *tensor, in inputs) (y, weights *tensor) {
	g := f.ModuleFrame(a, x, in.mask, in.cos)
	bias := in.cos
	batch, length := x.Size(0), x.Size(1)
	mixed := g.Let(g.Call(a.QkvProj, x))
	if a.c.Clipped {
		g.Set(&mixed, mixed.Clamp())
	}
	parts := g.LetAll(mixed.Chunk(3, 2))
	for i := range parts {
		g.Set(&parts[i], parts[i].Reshape(batch, length, a.c.Heads, a.c.HeadSize).Transpose(1, 2))
	}
	parts[1], parts[2] = a.c.Cache.Update(g, parts[1], parts[2])
	scores := g.Let(parts[0].Matmul(parts[1].Transpose(-1, -2)).MulScalar())
	g.Set(&bias, bias.Slice(2, bias.Size(2)-length, bias.Size(2)))
	g.Set(&scores, scores.Add(bias))
	g.Set(&scores, scores.MaskedFill(in.mask))
	weights = g.Let(scores.To(trace.F32).Softmax(-1).To(parts[2].DType()))
	g.Set(&weights, weights.Dropout(a.c.AttentionDropout, a.Training()))
	states := g.Let(weights.Matmul(parts[2]))
	g.Set(&states, states.Permute(0, 2, 1, 3).Contiguous().View(batch, length, -1))
	y = g.Let(g.Call(a.OutProj, states))
	g.End(y, weights)
	return y, weights
}

// distances is build_mpt_alibi_tensor: a slope for each head times distances, [heads, 1,
// longest].
func (c *Config) distances(f *frame) *tensor {
	g := f.FuncFrame()
	t, heads := g.Tape(), int64(1)
	for heads < c.Heads {
		heads *= 2
	}
	far := g.Let(t.Filled("arange", trace.I32, c.ALiBi).View(1, 1, 1, c.ALiBi))
	base := g.Let(t.Arange(heads).To(trace.F32))
	g.Set(&base, base.MulScalar())
	slopes := g.Let(trace.ScalarPow(base).RDivScalar())
	g.Set(&slopes, slopes.View(1, heads, 1, 1))
	if heads != c.Heads {
		g.Set(&slopes, trace.Cat(1, slopes.SliceStep(1, 1, heads, 2), slopes.SliceStep(1, 0, heads, 2)).
			Slice(1, 0, c.Heads))
	}
	g.Set(&far, far.Mul(slopes))
	return g.Return(far.Squeeze(0))
}

// mpt is MptBlock.forward.
func (l *layer) mpt(f *frame, in inputs) *tensor {
	x := in.x
	seen := f.Let(f.Call(l.InputLayernorm, x))
	residual := f.Let(x)
	attended := f.Let(l.attend(f, seen, in))
	f.Set(&x, l.drop(attended).Add(residual))
	f.Set(&seen, f.Call(l.PostAttentionLayernorm, x))
	f.Set(&residual, x)
	out := f.Let(f.Call(l.Mlp, seen))
	f.Set(&out, l.drop(out).Add(residual))
	return out
}

// hidden is the causal mask as MPT takes it: of what is not seen.
func hidden(f *frame, words, positions, padding *tensor, packed hf.Packing) *tensor {
	return f.Let(hf.EagerCausalMask(f, words, positions, padding, packed).To(trace.Bool))
}
