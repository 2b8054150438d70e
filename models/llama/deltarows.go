package llama

import "github.com/vprof/vprof/profiler/trace"

// ruleByRows follows torch_chunk_gated_delta_rule of releases before transformers 5.17 over the tensors of
// [deltaNet.rule], where query and key have the heads of the value.
func (d *deltaNet) ruleByRows(f *frame, query, key, value, decay, beta *tensor) *tensor {
	g, dtype, length := f.FuncFrame(query, key, value, decay, beta), query.DType(), query.Size(1)
	g.Set(&query, l2Normalize(g, query))
	g.Set(&key, l2Normalize(g, key))
	rebind(g, func(x *tensor) *tensor {
		return x.Transpose(1, 2).Contiguous().To(trace.F32)
	}, &query, &key, &value, &beta, &decay)
	pad := (deltaChunk - length%deltaChunk) % deltaChunk
	for _, x := range []**tensor{&query, &key, &value} {
		g.Set(x, (*x).Pad(0, 0, 0, pad))
	}
	g.Set(&beta, beta.Pad(0, pad))
	g.Set(&decay, decay.Pad(0, pad))
	g.Set(&query, query.MulScalar())
	values := g.Let(value.Mul(beta.Unsqueeze(-1)))
	keys := g.Let(key.Mul(beta.Unsqueeze(-1)))
	rebind(g, func(x *tensor) *tensor {
		return x.Reshape(x.Size(0), x.Size(1), -1, deltaChunk, x.Size(-1))
	}, &query, &key, &value, &keys, &values)
	g.Set(&decay, decay.Reshape(decay.Size(0), decay.Size(1), -1, deltaChunk))
	y := d.rows(g, query, key, value, keys, values, decay)
	g.Set(&y, y.Reshape(y.Size(0), y.Size(1), -1, y.Size(-1)))
	g.Set(&y, y.Slice(2, 0, length))
	return g.Return(g.Set(&y, y.Transpose(1, 2).Contiguous().To(dtype)))
}

// rows computes chunks of tokens: the inverse of each chunk's system, a row after the other, and the states.
func (d *deltaNet) rows(f *frame, query, key, value, keys, values, decay *tensor) *tensor {
	t := f.Tape()
	mask := f.Let(t.Filled("ones", trace.Bool, deltaChunk, deltaChunk).Triu())
	f.Set(&decay, decay.CumSum(3))
	pairs := f.Let(decay.Unsqueeze(-1).Sub(decay.Unsqueeze(-2)).Tril().Exp().Tril())
	attn := f.Let(keys.Matmul(key.Transpose(-1, -2)).Mul(pairs).Neg().MaskedFill(mask))
	var row, sub *tensor
	for i := range int64(deltaChunk - 1) {
		at := func() *tensor { return attn.Select(3, i+1).Slice(-1, 0, i+1) }
		f.Set(&row, at().Clone())
		f.Set(&sub, attn.Slice(3, 0, i+1).Slice(4, 0, i+1).Clone())
		f.Discard(at().CopyInPlace(row.Add(row.Unsqueeze(-1).Mul(sub).Sum(false, -2))))
	}
	f.Set(&attn, attn.Add(t.Filled("eye", trace.F32, deltaChunk, deltaChunk)))
	f.Set(&value, attn.Matmul(values))
	read := f.Let(attn.Matmul(keys.Mul(decay.Exp().Unsqueeze(-1))))
	state := f.Let(t.Zeros(trace.F32, query.Size(0), query.Size(1), query.Size(-1), value.Size(-1)))
	y := f.Let(value.ZerosLike())
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
