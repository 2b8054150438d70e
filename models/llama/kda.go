package llama

import (
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// KDA says of layers that they have Kimi's delta attention in the place of attention: linear
// attention whose decay is that of every channel.
type KDA struct {
	Layers LayerFlags
	// Heads is how many heads there are, Size how wide they are, Kernel how many tokens the
	// convolution reaches over.
	Heads, Size, Kernel int64
}

// kimiDelta is KimiLinearDeltaAttention.
type kimiDelta struct {
	nn.Module
	QProj, KProj, VProj   nn.Layer
	Conv1d                *nn.Conv
	ForgetGate            *forgetGate
	BProj, GAProj, GBProj nn.Layer
	ONorm                 *kimiNorm
	OProj                 nn.Layer
	c                     *Config
}

// forgetGate is KimiLinearForgetGate.
type forgetGate struct {
	nn.Module
	FAProj, FBProj nn.Layer
	DtBias, ALog   *nn.Parameter
	size           int64
}

func newKimiDelta(c *Config) *kimiDelta {
	s := c.KDA
	all := s.Heads * s.Size
	linear := func(in, out int64) nn.Layer { return nn.NewLinear(in, out, false) }
	return &kimiDelta{
		QProj: linear(c.Width, all), KProj: linear(c.Width, all), VProj: linear(c.Width, all),
		Conv1d: newCausalConv(3*all, s.Kernel, false),
		ForgetGate: &forgetGate{
			FAProj: linear(c.Width, s.Size), FBProj: linear(s.Size, all),
			DtBias: nn.NewParameter(all), ALog: nn.NewParameter(1, 1, s.Heads, 1), size: s.Size,
		},
		BProj: linear(c.Width, s.Heads), GAProj: linear(c.Width, s.Size), GBProj: linear(s.Size, all),
		ONorm: &kimiNorm{Weight: nn.NewParameter(s.Size)}, OProj: linear(all, c.Width), c: c,
	}
}

// call maps hidden states to the same shape; mask is that of padded rows, or nil.
func (d *kimiDelta) call(f *frame, x, mask *tensor) *tensor {
	g := f.ModuleFrame(d, x, mask)
	s, batch, length := d.c.KDA, x.Size(0), x.Size(1)
	all := s.Heads * s.Size
	g.Set(&x, unpadded(g, x, mask))
	mixed := g.Let(trace.Cat(-1, g.Call(d.QProj, x), g.Call(d.KProj, x), g.Call(d.VProj, x)).Transpose(1, 2))
	g.Set(&mixed, causalConv(g, mixed, d.Conv1d, true))
	g.Set(&mixed, mixed.Slice(2, 0, length))
	parts := g.LetAll(mixed.Transpose(1, 2).SplitSizes([]int64{all, all, all}, -1))
	for i := range parts {
		g.Set(&parts[i], parts[i].View(batch, length, -1, s.Size))
	}
	decay := g.Let(d.ForgetGate.call(g, x))
	beta := g.Let(g.Call(d.BProj, x).Sigmoid())
	core := g.Let(d.rule(g, parts[0], parts[1], parts[2], decay, beta))
	gate := g.Let(g.Call(d.GBProj, g.Call(d.GAProj, x)).View(batch, length, -1, s.Size))
	y := g.Let(d.ONorm.call(g, core, gate).Reshape(batch, length, -1))
	return g.Return(g.Set(&y, g.Call(d.OProj, y)))
}

func (n *forgetGate) call(f *frame, x *tensor) *tensor {
	g := f.ModuleFrame(n, x)
	forget := g.Let(g.Call(n.FBProj, g.Call(n.FAProj, x)))
	inner := g.Let(forget.To(trace.F32).Add(n.DtBias.To(trace.F32).View(1, 1, -1)).View(x.Size(0),
		x.Size(1), -1, n.size))
	log := g.Let(n.ALog.To(trace.F32))
	rate := g.Let(log.Exp())
	soft := g.Let(trace.Where(inner.GtScalar(), inner, inner.Exp().AddScalar().Log()))
	return g.Return(rate.Neg().Mul(soft))
}

// rule is chunk_kimi_delta_attention in PyTorch, over query, key, value and decay [batch,
// length, heads, size] and beta [batch, length, heads].
func (d *kimiDelta) rule(f *frame, query, key, value, decay, beta *tensor) *tensor {
	g := f.FuncFrame(query, key, value, decay, beta)
	s, dtype, length := d.c.KDA, query.DType(), query.Size(1)
	rebind(g, func(x *tensor) *tensor {
		return x.Transpose(1, 2).Contiguous().To(trace.F32)
	}, &query, &key, &value, &beta, &decay)
	g.Set(&query, unitRoot(g, query))
	g.Set(&key, unitRoot(g, key))
	pad := (deltaChunk - length%deltaChunk) % deltaChunk
	g.Set(&query, query.Pad(0, 0, 0, pad).MulScalar())
	for _, x := range []**tensor{&key, &value, &decay} {
		g.Set(x, (*x).Pad(0, 0, 0, pad))
	}
	g.Set(&beta, beta.Pad(0, pad))
	values := g.Let(value.Mul(beta.Unsqueeze(-1)))
	keys := g.Let(key.Mul(beta.Unsqueeze(-1)))
	rebind(g, func(x *tensor) *tensor {
		return x.Reshape(x.Size(0), x.Size(1), -1, deltaChunk, x.Size(-1))
	}, &query, &key, &value, &decay, &keys, &values)
	g.Set(&beta, beta.Reshape(beta.Size(0), beta.Size(1), -1, deltaChunk))
	g.Set(&decay, decay.CumSum(-2))
	y := d.chunks(g, query, key, &value, decay, keys, values)
	g.Set(&y, y.Reshape(y.Size(0), y.Size(1), -1, s.Size))
	g.Set(&y, y.Slice(2, 0, length))
	return g.Return(g.Set(&y, y.Transpose(1, 2).Contiguous().To(dtype)))
}

// chunks binds what comes of chunks, and from each to the next; its names live on in the frame
// of the rule.
func (d *kimiDelta) chunks(f *frame, query, key *tensor, value **tensor, decay, keys, values *tensor) *tensor {
	t := f.Tape()
	triangle := func() *tensor { return t.Filled("ones", trace.Bool, deltaChunk, deltaChunk).Triu() }
	mask := f.Let(triangle())
	strict := f.Let(triangle())
	pairs := f.Let(decay.Unsqueeze(-2).Sub(decay.Unsqueeze(-3)).MaskedFill(strict.Unsqueeze(-1)).Exp())
	within := f.Let(keys.Unsqueeze(-2).Mul(key.Unsqueeze(-3)).Mul(pairs).Sum(false, -1).MaskedFill(mask).Neg())
	var row, sub *tensor
	for i := int64(1); i < deltaChunk; i++ {
		f.Set(&row, within.Select(-2, i).Slice(-1, 0, i).Clone())
		f.Set(&sub, within.Slice(-2, 0, i).Slice(-1, 0, i).Clone())
		f.Discard(within.Select(-2, i).Slice(-1, 0, i).CopyInPlace(row.Add(row.Unsqueeze(-1).Mul(sub).Sum(false, -2))))
	}
	f.Set(&within, within.Add(t.Filled("eye", trace.F32, deltaChunk, deltaChunk)))
	f.Set(value, within.Matmul(values))
	decayed := f.Let(within.Matmul(keys.Mul(decay.Exp())))
	state := f.Let(t.Zeros((*value).DType(), query.Size(0), d.c.KDA.Heads, d.c.KDA.Size, d.c.KDA.Size))
	y := f.Let((*value).ZerosLike())
	f.Set(&mask, triangle())
	var now [4]*tensor
	var across, inside, old, fresh *tensor
	for i := range query.Size(2) {
		for k, x := range []*tensor{query, key, *value, decay} {
			f.Set(&now[k], x.Select(2, i))
		}
		q, k, v, g := now[0], now[1], now[2], now[3]
		f.Set(&across, q.Mul(g.Exp()).Matmul(state))
		f.Set(&inside, q.Unsqueeze(-2).Mul(k.Unsqueeze(-3)).Mul(pairs.Select(2, i)).Sum(false, -1).MaskedFill(mask))
		f.Set(&old, decayed.Select(2, i).Matmul(state))
		f.Set(&fresh, v.Sub(old))
		f.Discard(y.Select(2, i).CopyInPlace(across.Add(inside.Matmul(fresh))))
		kept := state.Mul(g.Select(2, deltaChunk-1).Exp().Unsqueeze(-1))
		f.Set(&state,
			kept.Add(k.Mul(g.Slice(2, deltaChunk-1, deltaChunk).Sub(g).Exp()).Transpose(-1, -2).Matmul(fresh)))
	}
	f.Del(&state)
	return y
}

// unitRoot is l2norm by a root.
func unitRoot(f *frame, x *tensor) *tensor {
	g := f.FuncFrame(x)
	root := g.Let(x.Mul(x).Sum(true, -1).AddScalar().Sqrt())
	return g.Return(x.Div(root))
}

// kimiNorm is KimiLinearRMSNormGated.
type kimiNorm struct {
	nn.Module
	Weight *nn.Parameter
}

func (n *kimiNorm) call(f *frame, x, gate *tensor) *tensor {
	g := f.ModuleFrame(n, x, gate)
	d := x.DType()
	hf.RMSNormalize(g, &x)
	g.Set(&x, n.Weight.To(trace.F32).Mul(x))
	g.Set(&x, x.Mul(gate.To(trace.F32).Sigmoid()))
	return g.Return(x.To(d))
}
