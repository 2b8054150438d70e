package hf

import "github.com/vprof/vprof/profiler/trace"

// BidirectionalMask is create_bidirectional_mask: the boolean mask [batch, 1,
// queries, keys] of what each query may look at, from the padding mask [batch,
// keys]. PyTorch reads whether anything is padded and makes no mask if nothing
// is; padded says so here.
func BidirectionalMask(f *frame, queries int64, padding *tensor, padded bool) *tensor {
	g := f.FuncFrame(padding)
	g.Set(&padding, padding.To(trace.Bool))
	g.Discard(padding.Any(false)) // all()
	if !padded {
		g.End()
		return nil
	}
	g.Set(&padding, sdpaMask(g, queries, padding))
	g.End(padding)
	return padding
}

// sdpaMask is sdpa_mask for a bidirectional mask and padding.
func sdpaMask(f *frame, queries int64, padding *tensor) *tensor {
	g := f.FuncFrame(padding)
	t := g.Tape()
	batch, keys := padding.Size(0), padding.Size(1)
	b := g.Let(t.Arange(batch))
	g.Let(t.Arange(1))
	q := g.Let(t.Arange(queries).AddScalar())
	k := g.Let(t.Arange(keys).AddScalar())
	mask := andMasks(g, q.View(1, 1, queries, 1),
		func(h *frame) *tensor { return q.View(1, 1, queries, 1).GtScalar() },
		func(h *frame) *tensor { return padding.Index(b.View(batch, 1, 1, 1), k.View(1, 1, 1, keys)) })
	y := mask.Expand(batch, 1, queries, keys)
	g.End(y)
	return y
}

// andMasks is what and_masks returns, called: it joins masks one by one.
func andMasks(f *frame, q *tensor, masks ...func(*frame) *tensor) *tensor {
	g := f.FuncFrame(q)
	result := g.Let(g.Tape().Filled("new_ones", trace.Bool))
	for _, mask := range masks {
		g.Set(&result, result.And(mask(g)))
	}
	g.End(result)
	return result
}
