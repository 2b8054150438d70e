package llama

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// DeltaNet says of layers that they have linear attention by the gated delta rule in the
// place of attention.
type DeltaNet struct {
	// Layers says it of each; nil says that none has.
	Layers                                   []bool
	KeyHeads, ValueHeads, KeySize, ValueSize int64
	// Kernel is how many tokens the convolution reaches over.
	Kernel int64
}

// linear reports whether layer i has linear attention.
func (d DeltaNet) linear(i int) bool { return i < len(d.Layers) && d.Layers[i] }

// deltaChunk is how many tokens the rule takes at a time.
const deltaChunk = 64

// deltaNet is Qwen3_5GatedDeltaNet.
type deltaNet struct {
	nn.Module
	DtBias, ALog                         *nn.Parameter
	Conv1d                               *nn.Conv
	Norm                                 *deltaNorm
	OutProj                              nn.Layer
	InProjQkv, InProjZ, InProjB, InProjA nn.Layer
	c                                    *Config
}

func newDeltaNet(c *Config) *deltaNet {
	d := c.DeltaNet
	keys, values := d.KeyHeads*d.KeySize, d.ValueHeads*d.ValueSize
	channels := 2*keys + values
	return &deltaNet{
		DtBias: nn.NewParameter(d.ValueHeads), ALog: nn.NewParameter(d.ValueHeads),
		Conv1d:    nn.NewConv(channels, channels, nn.ConvOptions{Kernel: []int64{d.Kernel}, Padding: []int64{d.Kernel - 1}, Groups: channels, NoBias: true}),
		Norm:      &deltaNorm{Weight: nn.NewParameter(d.ValueSize)},
		OutProj:   nn.NewLinear(values, c.Width, false),
		InProjQkv: nn.NewLinear(c.Width, channels, false), InProjZ: nn.NewLinear(c.Width, values, false),
		InProjB: nn.NewLinear(c.Width, d.ValueHeads, false), InProjA: nn.NewLinear(c.Width, d.ValueHeads, false), c: c,
	}
}

// call maps hidden states to the same shape; mask is that of padded rows, or nil.
func (d *deltaNet) call(f *frame, x, mask *tensor) *tensor {
	g := f.CallFrame(x, mask)
	g.In(d)
	s := d.c.DeltaNet
	batch, length := x.Size(0), x.Size(1)
	keys, values := s.KeyHeads*s.KeySize, s.ValueHeads*s.ValueSize
	g.Set(&x, unpadded(g, x, mask))
	mixed := g.Let(g.Call(d.InProjQkv, x))
	g.Set(&mixed, mixed.Transpose(1, 2))
	z := g.Let(g.Call(d.InProjZ, x))
	g.Set(&z, z.Reshape(batch, length, -1, s.ValueSize))
	b := g.Let(g.Call(d.InProjB, x))
	a := g.Let(g.Call(d.InProjA, x))
	g.Set(&mixed, causalConv(g, mixed, d.Conv1d, true))
	g.Set(&mixed, mixed.Transpose(1, 2))
	parts := g.LetAll(mixed.SplitSizes([]int64{keys, keys, values}, -1))
	for i, size := range []int64{s.KeySize, s.KeySize, s.ValueSize} {
		g.Set(&parts[i], parts[i].Reshape(batch, length, -1, size))
	}
	beta := g.Let(b.Sigmoid())
	decay := g.Let(d.ALog.To(trace.F32).Exp().Neg().Mul(a.To(trace.F32).Add(d.DtBias.Tensor).Softplus()))
	y := g.Let(d.rule(g, parts[0], parts[1], parts[2], decay, beta))
	g.Set(&y, y.Reshape(-1, s.ValueSize))
	g.Set(&z, z.Reshape(-1, s.ValueSize))
	g.Set(&y, d.Norm.call(g, y, z))
	g.Set(&y, y.Reshape(batch, length, -1))
	out := g.Let(g.Call(d.OutProj, y))
	g.End(out)
	return out
}

// rule is torch_chunk_gated_delta_rule over query and key [batch, length, key heads, size],
// value [batch, length, value heads, size], decay and beta [batch, length, value heads].
func (d *deltaNet) rule(f *frame, query, key, value, decay, beta *tensor) *tensor {
	g := f.FuncFrame(query, key, value, decay, beta)
	s, dtype, length := d.c.DeltaNet, query.DType(), query.Size(1)
	if s.KeyHeads != s.ValueHeads {
		g.Set(&query, query.RepeatInterleave(s.ValueHeads/s.KeyHeads, 2))
		g.Set(&key, key.RepeatInterleave(s.ValueHeads/s.KeyHeads, 2))
	}
	// A list is made of all before the names are bound anew.
	all := []**tensor{&query, &key, &value, &beta, &decay}
	fresh := make([]*tensor, len(all))
	for i, x := range all {
		fresh[i] = g.Let((*x).Transpose(1, 2).To(trace.F32).Contiguous())
	}
	for i, x := range all {
		g.Set(x, fresh[i])
		g.Del(&fresh[i])
	}
	g.Set(&query, unitLength(g, query))
	g.Set(&key, unitLength(g, key))
	g.Set(&query, query.MulScalar())
	pad := (deltaChunk - length%deltaChunk) % deltaChunk
	rebound(g, func(x *tensor) *tensor { return x.Pad(0, 0, 0, pad) }, &query, &key, &value)
	rebound(g, func(x *tensor) *tensor { return x.Pad(0, pad) }, &beta, &decay)
	values := g.Let(value.Mul(beta.Unsqueeze(-1)))
	keys := g.Let(key.Mul(beta.Unsqueeze(-1)))
	rebound(g, func(x *tensor) *tensor { return x.Reshape(x.Size(0), x.Size(1), -1, deltaChunk, x.Size(-1)) }, &query, &key, &keys, &values)
	g.Set(&decay, decay.Reshape(decay.Size(0), decay.Size(1), -1, deltaChunk))
	y := g.Let(d.chunks(g, &query, &key, keys, values, decay))
	g.Set(&y, y.Reshape(y.Size(0), y.Size(1), -1, s.ValueSize))
	g.Set(&y, y.Slice(2, 0, length))
	g.Set(&y, y.Transpose(1, 2).To(dtype).Contiguous())
	g.End(y)
	return y
}

// rebound is "a, b = (made(x) for x in (a, b))": all are made before a name is bound.
func rebound(f *frame, made func(x *tensor) *tensor, names ...**tensor) {
	fresh := make([]*tensor, len(names))
	for i, x := range names {
		fresh[i] = f.Let(made(*x))
	}
	for i, x := range names {
		f.Set(x, fresh[i])
		f.Del(&fresh[i])
	}
}

// chunks are the two phases of the rule, within chunks and from each to the next. Its names
// live on in the frame of the rule.
func (d *deltaNet) chunks(f *frame, query, key **tensor, keys, values, decay *tensor) *tensor {
	s, t := d.c.DeltaNet, f.Tape()
	mask := f.Let(t.Filled("ones", trace.Bool, deltaChunk, deltaChunk).Triu())
	summed := f.Let(decay.CumSum(3))
	pairs := f.Let(summed.Unsqueeze(4).Sub(summed.Unsqueeze(3)))
	f.Set(&pairs, pairs.MaskedFill(mask))
	f.Set(&pairs, pairs.Exp())
	system := f.Let(keys.Matmul((*key).Transpose(-1, -2)).Mul(pairs))
	within := f.Let((*query).Matmul((*key).Transpose(-1, -2)).Mul(pairs))
	decayed := f.Let(keys.Mul(summed.Exp().Unsqueeze(-1)))
	fresh := f.Let(system.SolveTriangular(values, true))
	read := f.Let(system.SolveTriangular(decayed, true))
	state := f.Let(t.Zeros(trace.F32, (*query).Size(0), s.ValueHeads, s.KeySize, s.ValueSize))
	y := f.Let(fresh.ZerosLike())
	f.Set(query, (*query).Mul(summed.Exp().Unsqueeze(-1)))
	f.Set(key, (*key).Mul(summed.Slice(-1, summed.Size(-1)-1, summed.Size(-1)).Sub(summed).Exp().Unsqueeze(-1)))
	last := f.Let(summed.Select(-1, summed.Size(-1)-1).Exp().Unsqueeze(-1).Unsqueeze(-1))
	var v, across *tensor
	for i := range (*query).Size(2) {
		f.Set(&v, fresh.Select(2, i).Sub(read.Select(2, i).Matmul(state)))
		f.Set(&across, (*query).Select(2, i).Matmul(state))
		f.Discard(y.Select(2, i).CopyInPlace(across.Add(within.Select(2, i).Matmul(v))))
		f.Set(&state, state.Mul(last.Select(2, i)).Add((*key).Select(2, i).Transpose(-1, -2).Matmul(v)))
	}
	f.Del(&state)
	return y
}

// unitLength is l2norm.
func unitLength(f *frame, x *tensor) *tensor {
	g := f.FuncFrame(x)
	inverse := g.Let(x.Mul(x).Sum(true, -1).AddScalar().Rsqrt())
	y := x.Mul(inverse)
	g.End(y)
	return y
}

// deltaNorm is Qwen3_5RMSNormGated.
type deltaNorm struct {
	nn.Module
	Weight *nn.Parameter
}

func (n *deltaNorm) call(f *frame, x, gate *tensor) *tensor {
	g := f.CallFrame(x, gate)
	g.In(n)
	d := x.DType()
	g.Set(&x, x.To(trace.F32))
	variance := g.Let(x.Pow(2).Mean(true, -1))
	g.Set(&x, x.Mul(variance.AddScalar().Rsqrt()))
	g.Set(&x, n.Weight.Mul(x.To(d)))
	g.Set(&x, x.Mul(gate.To(trace.F32).SiLU()))
	y := x.To(d)
	g.End(y)
	return y
}
