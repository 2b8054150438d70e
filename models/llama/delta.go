package llama

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/hf"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// DeltaNet holds the sizes of gated delta rule linear attention, which some layers use.
type DeltaNet struct {
	Layers                                   LayerFlags
	KeyHeads, ValueHeads, KeySize, ValueSize int64
	// Kernel is the kernel size of the convolution over tokens.
	Kernel int64
	// Fused projects query, key, value and gate by one linear layer, and beta and decay by another, ordered by key
	// heads, as Qwen3-Next does.
	Fused bool
}

// deltaChunk is the number of tokens that the delta rule processes at a time.
const deltaChunk = 64

// deltaNet is Qwen3_5GatedDeltaNet.
type deltaNet struct {
	nn.Module
	DtBias, ALog                         *nn.Parameter
	Conv1d                               *nn.Conv
	Norm                                 *deltaNorm
	OutProj                              nn.Layer
	InProjQkv, InProjZ, InProjB, InProjA nn.Layer
	InProjQkvz, InProjBa                 nn.Layer // replace the four
	c                                    *Config
}

func newDeltaNet(c *Config) *deltaNet {
	d := c.DeltaNet
	keys, values := d.KeyHeads*d.KeySize, d.ValueHeads*d.ValueSize
	channels := 2*keys + values
	n := &deltaNet{
		DtBias: nn.NewParameter(d.ValueHeads), ALog: nn.NewParameter(d.ValueHeads),
		Conv1d:  newCausalConv(channels, d.Kernel, false),
		Norm:    &deltaNorm{Weight: nn.NewParameter(d.ValueSize)},
		OutProj: nn.NewLinear(values, c.Width, false), c: c,
	}
	if d.Fused {
		n.InProjQkvz, n.InProjBa = nn.NewLinear(c.Width, channels+values, false),
			nn.NewLinear(c.Width, 2*d.ValueHeads, false)
		return n
	}
	n.InProjQkv, n.InProjZ = nn.NewLinear(c.Width, channels, false), nn.NewLinear(c.Width, values, false)
	n.InProjB, n.InProjA = nn.NewLinear(c.Width, d.ValueHeads, false), nn.NewLinear(c.Width, d.ValueHeads, false)
	return n
}

// call records the module's forward; mask is the padding mask, or nil.
func (d *deltaNet) call(f *frame, x, mask *tensor) *tensor {
	g := f.ModuleFrame(d, x, mask)
	s := d.c.DeltaNet
	batch, length := x.Size(0), x.Size(1)
	keys, values := s.KeyHeads*s.KeySize, s.ValueHeads*s.ValueSize
	g.Set(&x, zeroPadding(g, x, mask))
	mixed, z, b, a := d.project(g, x)
	g.Set(&mixed, causalConv(g, mixed, d.Conv1d))
	g.Set(&mixed, mixed.Transpose(1, 2))
	parts := g.BindAll(mixed.SplitSizes([]int64{keys, keys, values}, -1))
	for i, size := range []int64{s.KeySize, s.KeySize, s.ValueSize} {
		g.Set(&parts[i], parts[i].Reshape(batch, length, -1, size))
	}
	beta := g.Bind(b.Sigmoid())
	decay := g.Bind(d.ALog.To(trace.F32).Exp().Neg().Mul(a.To(trace.F32).Add(d.DtBias.Tensor).Softplus()))
	rule := d.chunkDeltaRule
	if !g.Tape().Rules().Libraries.SolvesDelta {
		rule = d.oldChunkDeltaRule
		if each := s.ValueHeads / s.KeyHeads; each > 1 {
			g.Set(&parts[0], parts[0].RepeatInterleave(each, 2))
			g.Set(&parts[1], parts[1].RepeatInterleave(each, 2))
		}
	}
	y := g.Bind(rule(g, parts[0], parts[1], parts[2], decay, beta))
	g.Set(&y, y.Reshape(-1, s.ValueSize))
	g.Set(&z, z.Reshape(-1, s.ValueSize))
	g.Set(&y, d.Norm.call(g, y, z))
	g.Set(&y, y.Reshape(batch, length, -1))
	return g.Return(g.Bind(g.Call(d.OutProj, y)))
}

// project returns query, key and value in one tensor [batch, channels, length], the gate z [batch, length, value
// heads, size], and beta b and decay a [batch, length, value heads].
func (d *deltaNet) project(f *frame, x *tensor) (mixed, z, b, a *tensor) {
	s, batch, length := d.c.DeltaNet, x.Size(0), x.Size(1)
	if s.Fused {
		return d.projectFused(f, x)
	}
	mixed = f.Bind(f.Call(d.InProjQkv, x))
	f.Set(&mixed, mixed.Transpose(1, 2))
	z = f.Bind(f.Call(d.InProjZ, x))
	f.Set(&z, z.Reshape(batch, length, -1, s.ValueSize))
	b = f.Bind(f.Call(d.InProjB, x))
	return mixed, z, b, f.Bind(f.Call(d.InProjA, x))
}

// projectFused projects as Qwen3-Next does (fix_query_key_value_ordering).
func (d *deltaNet) projectFused(f *frame, x *tensor) (mixed, z, b, a *tensor) {
	s, batch, length := d.c.DeltaNet, x.Size(0), x.Size(1)
	all := f.Bind(f.Call(d.InProjQkvz, x))
	others := f.Bind(f.Call(d.InProjBa, x))
	each := s.ValueHeads / s.KeyHeads
	g := f.FunctionFrame(all, others)
	g.Set(&all, all.View(batch, length, s.KeyHeads, 2*s.KeySize+2*each*s.ValueSize))
	g.Set(&others, others.View(batch, length, s.KeyHeads, 2*each))
	parts := g.BindAll(all.SplitSizes([]int64{s.KeySize, s.KeySize, each * s.ValueSize, each * s.ValueSize}, 3))
	pair := g.BindAll(others.SplitSizes([]int64{each, each}, 3))
	for _, p := range []**tensor{&parts[2], &parts[3]} {
		g.Set(p, (*p).Reshape(batch, length, -1, s.ValueSize))
	}
	for i := range pair {
		g.Set(&pair[i], pair[i].Reshape(batch, length, s.ValueHeads))
	}
	g.End(append(parts, pair...)...)
	z, b, a = f.Bind(parts[3]), f.Bind(pair[0]), f.Bind(pair[1])
	qkv := f.BindAll(parts[:3])
	rebindAll(f, func(x *tensor) *tensor { return x.Reshape(batch, length, -1) }, &qkv[0], &qkv[1], &qkv[2])
	mixed = f.Bind(trace.Cat(-1, qkv...))
	f.Set(&mixed, mixed.Transpose(1, 2))
	for i := range qkv { // variables that are rebound soon after
		f.Del(&qkv[i])
	}
	return mixed, z, b, a
}

// chunkDeltaRule records torch_chunk_gated_delta_rule over query and key [batch, length, key heads, size], value
// [batch, length, value heads, size], decay and beta [batch, length, value heads].
func (d *deltaNet) chunkDeltaRule(f *frame, query, key, value, decay, beta *tensor) *tensor {
	g := f.FunctionFrame(query, key, value, decay, beta)
	s, dtype, length := d.c.DeltaNet, query.DType(), query.Size(1)
	if s.KeyHeads != s.ValueHeads {
		g.Set(&query, query.RepeatInterleave(s.ValueHeads/s.KeyHeads, 2))
		g.Set(&key, key.RepeatInterleave(s.ValueHeads/s.KeyHeads, 2))
	}
	rebindAll(g, func(x *tensor) *tensor {
		return x.Transpose(1, 2).ToContiguous(trace.F32)
	}, &query, &key, &value, &beta, &decay)
	g.Set(&query, l2Normalize(g, query))
	g.Set(&key, l2Normalize(g, key))
	g.Set(&query, query.MulScalar())
	pad := (deltaChunk - length%deltaChunk) % deltaChunk
	rebindAll(g, func(x *tensor) *tensor { return x.Pad(0, 0, 0, pad) }, &query, &key, &value)
	rebindAll(g, func(x *tensor) *tensor { return x.Pad(0, pad) }, &beta, &decay)
	values := g.Bind(value.Mul(beta.Unsqueeze(-1)))
	keys := g.Bind(key.Mul(beta.Unsqueeze(-1)))
	rebindAll(g, func(x *tensor) *tensor {
		return x.Reshape(x.Size(0), x.Size(1), -1, deltaChunk, x.Size(-1))
	}, &query, &key, &keys, &values)
	g.Set(&decay, decay.Reshape(decay.Size(0), decay.Size(1), -1, deltaChunk))
	y := d.runChunks(g, &query, &key, keys, values, decay)
	g.Set(&y, y.Reshape(y.Size(0), y.Size(1), -1, s.ValueSize))
	g.Set(&y, y.Slice(2, 0, length))
	return g.Return(g.Set(&y, y.Transpose(1, 2).ToContiguous(dtype)))
}

// rebindAll records "a, b = (made(x) for x in (a, b))", which computes all results before it rebinds a name.
func rebindAll(f *frame, made func(x *tensor) *tensor, names ...**tensor) {
	fresh := lists.Map(names, func(x **tensor) *tensor { return f.Bind(made(*x)) })
	for i, x := range names {
		f.Set(x, fresh[i])
		f.Del(&fresh[i])
	}
}

// runChunks records the two phases of the delta rule: within chunks, and from each chunk to the next. Its variables
// stay in the frame of the rule.
func (d *deltaNet) runChunks(f *frame, query, key **tensor, keys, values, decay *tensor) *tensor {
	s, t := d.c.DeltaNet, f.Tape()
	mask := f.Bind(t.Filled("ones", trace.Bool, deltaChunk, deltaChunk).Triu())
	summed := f.Bind(decay.CumSum(3))
	pairs := f.Bind(summed.Unsqueeze(4).Sub(summed.Unsqueeze(3)))
	f.Set(&pairs, pairs.MaskedFill(mask))
	f.Set(&pairs, pairs.Exp())
	system := f.Bind(keys.Matmul((*key).Transpose(-1, -2)).Mul(pairs))
	within := f.Bind((*query).Matmul((*key).Transpose(-1, -2)).Mul(pairs))
	decayed := f.Bind(keys.Mul(summed.Exp().Unsqueeze(-1)))
	fresh := f.Bind(ops.SolveTriangular(system, values, true))
	read := f.Bind(ops.SolveTriangular(system, decayed, true))
	state := f.Bind(t.Zeros(trace.F32, (*query).Size(0), s.ValueHeads, s.KeySize, s.ValueSize))
	y := f.Bind(fresh.ZerosLike())
	f.Set(query, (*query).Mul(summed.Exp().Unsqueeze(-1)))
	f.Set(key, (*key).Mul(summed.Slice(-1, summed.Size(-1)-1, summed.Size(-1)).Sub(summed).Exp().Unsqueeze(-1)))
	last := f.Bind(summed.Select(-1, summed.Size(-1)-1).Exp().Unsqueeze(-1).Unsqueeze(-1))
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

// l2Normalize records l2norm of transformers' modeling_qwen3_next.py: x * rsqrt(sum(x*x) + eps).
func l2Normalize(f *frame, x *tensor) *tensor {
	g := f.FunctionFrame(x)
	inverse := g.Bind(x.Mul(x).Sum(true, -1).AddScalar().Rsqrt())
	return g.Return(x.Mul(inverse))
}

// deltaNorm is Qwen3_5RMSNormGated.
type deltaNorm struct {
	nn.Module
	Weight *nn.Parameter
}

func (n *deltaNorm) call(f *frame, x, gate *tensor) *tensor {
	g := f.ModuleFrame(n, x, gate)
	d := x.DType()
	hf.RMSNormalize(g, &x)
	g.Set(&x, n.Weight.Mul(x.To(d)))
	g.Set(&x, x.Mul(gate.To(trace.F32).SiLU()))
	return g.Return(x.To(d))
}

// oldChunkDeltaRule records torch_chunk_gated_delta_rule before transformers 5.17 over the tensors of
// [deltaNet.chunkDeltaRule], in which query and key have as many heads as value.
func (d *deltaNet) oldChunkDeltaRule(f *frame, query, key, value, decay, beta *tensor) *tensor {
	g, dtype, length := f.FunctionFrame(query, key, value, decay, beta), query.DType(), query.Size(1)
	g.Set(&query, l2Normalize(g, query))
	g.Set(&key, l2Normalize(g, key))
	rebindAll(g, func(x *tensor) *tensor {
		return x.Transpose(1, 2).Contiguous().To(trace.F32)
	}, &query, &key, &value, &beta, &decay)
	pad := (deltaChunk - length%deltaChunk) % deltaChunk
	for _, x := range []**tensor{&query, &key, &value} {
		g.Set(x, (*x).Pad(0, 0, 0, pad))
	}
	g.Set(&beta, beta.Pad(0, pad))
	g.Set(&decay, decay.Pad(0, pad))
	g.Set(&query, query.MulScalar())
	values := g.Bind(value.Mul(beta.Unsqueeze(-1)))
	keys := g.Bind(key.Mul(beta.Unsqueeze(-1)))
	rebindAll(g, func(x *tensor) *tensor {
		return x.Reshape(x.Size(0), x.Size(1), -1, deltaChunk, x.Size(-1))
	}, &query, &key, &value, &keys, &values)
	g.Set(&decay, decay.Reshape(decay.Size(0), decay.Size(1), -1, deltaChunk))
	y := d.runOldChunks(g, query, key, value, keys, values, decay)
	g.Set(&y, y.Reshape(y.Size(0), y.Size(1), -1, y.Size(-1)))
	g.Set(&y, y.Slice(2, 0, length))
	return g.Return(g.Set(&y, y.Transpose(1, 2).Contiguous().To(dtype)))
}

// runOldChunks processes chunks of tokens: it inverts each chunk's triangular matrix by rows and computes the states.
func (d *deltaNet) runOldChunks(f *frame, query, key, value, keys, values, decay *tensor) *tensor {
	t := f.Tape()
	mask := f.Bind(t.Filled("ones", trace.Bool, deltaChunk, deltaChunk).Triu())
	f.Set(&decay, decay.CumSum(3))
	pairs := f.Bind(decay.Unsqueeze(-1).Sub(decay.Unsqueeze(-2)).Tril().Exp().Tril())
	attn := f.Bind(keys.Matmul(key.Transpose(-1, -2)).Mul(pairs).Neg().MaskedFill(mask))
	var row, sub *tensor
	for i := range int64(deltaChunk - 1) {
		at := func() *tensor { return attn.Select(3, i+1).Slice(-1, 0, i+1) }
		f.Set(&row, at().Clone())
		f.Set(&sub, attn.Slice(3, 0, i+1).Slice(4, 0, i+1).Clone())
		f.Discard(at().CopyInPlace(row.Add(row.Unsqueeze(-1).Mul(sub).Sum(false, -2))))
	}
	f.Set(&attn, attn.Add(t.Filled("eye", trace.F32, deltaChunk, deltaChunk)))
	f.Set(&value, attn.Matmul(values))
	read := f.Bind(attn.Matmul(keys.Mul(decay.Exp().Unsqueeze(-1))))
	state := f.Bind(t.Zeros(trace.F32, query.Size(0), query.Size(1), query.Size(-1), value.Size(-1)))
	y := f.Bind(value.ZerosLike())
	f.Set(&mask, t.Filled("ones", trace.Bool, deltaChunk, deltaChunk).Triu())
	var q, k, v, seen, fresh, across *tensor
	for i := range query.Size(2) {
		f.Set(&q, query.Select(2, i))
		f.Set(&k, key.Select(2, i))
		f.Set(&v, value.Select(2, i))
		f.Set(&attn, q.Matmul(k.Transpose(-1, -2)).Mul(pairs.Select(2, i)))
		f.Set(&seen, read.Select(2, i).Matmul(state))
		f.Set(&fresh, v.Sub(seen))
		f.Set(&across, q.Mul(decay.Select(2, i).Unsqueeze(-1).Exp()).Matmul(state))
		f.Discard(y.Select(2, i).CopyInPlace(across.Add(attn.Matmul(fresh))))
		last := func() *tensor { return decay.Select(2, i).Select(2, -1).Unsqueeze(-1) }
		f.Set(&state, state.Mul(last().Unsqueeze(-1).Exp()).Add(
			k.Mul(last().Sub(decay.Select(2, i)).Exp().Unsqueeze(-1)).Transpose(-1, -2).Matmul(fresh)))
	}
	f.Del(&state)
	return y
}
