package hf

import "github.com/vprof/vprof/profiler/trace"

// BidirectionalMask follows create_bidirectional_mask: the mask [batch, 1, queries, keys] of what each query of x may
// attend to, from the padding mask [batch, keys]. It is boolean; for eager attention, of numbers in the type of x.
// PyTorch reads whether anything is padded and makes no mask if nothing is; padded says so here.
func BidirectionalMask(f *frame, x, padding *tensor, padded, eager bool) *tensor {
	form := maskForm(sdpaMask)
	if eager {
		form = eagerMask(x.DType())
	}
	g := f.FuncFrame(padding)
	g.Set(&padding, padding.To(trace.Bool))
	g.Discard(padding.Any(false)) // all()
	if !padded {
		g.End()
		return nil
	}
	g.Set(&padding, form(g, padding.Size(0), x.Size(1), padding.Size(1), allOf(everyQuery, paddingMask(padding))))
	return g.Return(padding)
}

// CausalMask follows create_causal_mask, given the positions [1 or batch, length] of the tokens and a padding mask
// [batch, length], or nil. A padding mask means that some row is padded. Without one, PyTorch reads from the positions
// whether rows hold several packed sequences and makes no mask if not, since attention kernels are causal by
// themselves; here packed says so.
func CausalMask(f *frame, batch int64, positions, padding *tensor, packed Packing) *tensor {
	return sequenceMask(f, batch, positions, padding, packed, false, causalMask, sdpaMask)
}

// EagerCausalMask follows create_causal_mask for eager attention, which always needs one: additive, in the type of x.
func EagerCausalMask(f *frame, x, positions, padding *tensor, packed Packing) *tensor {
	return sequenceMask(f, x.Size(0), positions, padding, packed, true, causalMask, eagerMask(x.DType()))
}

// EagerWindowMask follows create_sliding_window_causal_mask for eager attention.
func EagerWindowMask(f *frame, x, positions, padding *tensor, packed Packing) *tensor {
	return sequenceMask(f, x.Size(0), positions, padding, packed, true, allOf(withinWindow, causalMask),
		eagerMask(x.DType()))
}

// EagerChunkMask follows create_chunked_causal_mask for eager attention.
func EagerChunkMask(f *frame, x, positions, padding *tensor, packed Packing) *tensor {
	return orderedMask(f, x.Size(0), positions, padding, packed, true, withinChunk, unchangedMask, eagerMask(x.DType()))
}

// WindowMask follows create_sliding_window_causal_mask: tokens attend to earlier ones up to a distance. A sequence of
// that length always needs a mask.
func WindowMask(f *frame, batch int64, positions, padding *tensor, packed Packing, window int64) *tensor {
	return sequenceMask(f, batch, positions, padding, packed, positions.Size(1) >= window,
		allOf(withinWindow, causalMask), sdpaMask)
}

// ChunkMask follows create_chunked_causal_mask: tokens attend to earlier ones of their chunk. A sequence longer than a
// chunk always needs a mask.
func ChunkMask(f *frame, batch int64, positions, padding *tensor, packed Packing, chunk int64) *tensor {
	needed := positions.Size(1) >= chunk
	return orderedMask(f, batch, positions, padding, packed, needed, withinChunk, unchangedMask, sdpaMask)
}

// BlockMask follows create_causal_mask or, with a window above zero, create_sliding_window_causal_mask. blocks [batch,
// length] marks tokens that attend to each other in both directions, which always needs a mask; it may be nil.
func BlockMask(f *frame, batch int64, positions, padding, blocks *tensor, packed Packing, window int64) *tensor {
	switch {
	case blocks == nil && window == 0:
		return CausalMask(f, batch, positions, padding, packed)
	case blocks == nil:
		return WindowMask(f, batch, positions, padding, packed, window)
	}
	mask := causalMask
	if window > 0 {
		mask = allOf(withinWindow, causalMask)
	}
	overlay := func(m maskFunction) maskFunction { return allOf(m, sameBlock(blocks)) }
	return orderedMask(f, batch, positions, padding, packed, true, constantMaker(mask), overlay, sdpaMask)
}

// sequenceMask evaluates a mask function for all queries and keys, in the form that attention needs, if rows are padded
// or packed, or if the mask is always needed.
func sequenceMask(
	f *frame, batch int64, positions, padding *tensor, packed Packing, needed bool, mask maskFunction, form maskForm,
) *tensor {
	return orderedMask(f, batch, positions, padding, packed, needed, constantMaker(mask), unchangedMask, form)
}

// constantMaker returns a maskMaker for a function that reads no tensors.
func constantMaker(mask maskFunction) maskMaker {
	return func(*frame, int64, *tensor) maskFunction { return mask }
}

func unchangedMask(mask maskFunction) maskFunction { return mask }

type maskMaker func(f *frame, batch int64, padding *tensor) maskFunction

// orderedMask follows [sequenceMask] for tensors; overlay combines it with others before the padding
// mask is applied.
func orderedMask(
	f *frame, batch int64, positions, padding *tensor, packed Packing, needed bool, of maskMaker,
	overlay func(maskFunction) maskFunction, form maskForm,
) *tensor {
	g := f.CallFrame(positions, padding)
	length := positions.Size(1)
	var sequences *tensor
	if padding != nil {
		g.Set(&padding, padding.To(trace.Bool))
	} else if sequences = packedSequences(g, batch, positions, packed); sequences != nil {
		g.Bind(sequences)
	}
	mask := of(g, batch, padding)
	switch {
	case padding != nil:
		for range 2 {
			if !needed {
				g.Discard(padding.Sum(false).EqScalar()) // fast_all()
			}
		}
		mask = allOf(overlay(mask), paddingMask(padding))
	case sequences != nil:
		if positions.Size(0) != batch {
			g.Set(&positions, positions.Expand(batch, -1))
		}
		if f.Tape().Rules().Libraries.RemapsPositions {
			mask = atPositions(positions, mask)
		}
		mask = overlay(allOf(sameSequence(sequences), mask))
	case !needed:
		g.End()
		return nil
	default:
		mask = overlay(mask)
	}
	return g.Return(form(g, batch, length, length, mask))
}

// packedSequences follows find_packed_sequence_indices: the number of the sequence that each token belongs to.
func packedSequences(f *frame, batch int64, positions *tensor, packed Packing) *tensor {
	rules := &f.Tape().Rules().Libraries
	if packed == UnseenByModel || !rules.ReadsPositions {
		return nil
	}
	g := f.FuncFrame(positions)
	if positions.Size(0) != batch {
		g.Set(&positions, positions.Expand(batch, -1))
	}
	first := g.Bind(positions.Slice(1, 0, 1).AddScalar())
	diff := g.Bind(trace.Cat(1, first, positions).Diff(1))
	sequences := g.Bind(diff.EqScalar().CumSum(-1))
	if rules.SkipsMasks {
		g.Discard(sequences.Select(1, -1).EqScalar().Any(false)) // all()
	}
	if packed != SeveralSequences && rules.SkipsMasks {
		g.End()
		return nil
	}
	return g.Return(sequences)
}

// maskIndices are the arguments of a mask function: positions of batch, query and key, shaped so that they broadcast to
// the mask.
type maskIndices struct{ batch, query, key *tensor }

type maskFunction func(f *frame, i maskIndices) *tensor

// everyQuery follows bidirectional_mask_function.
func everyQuery(_ *frame, i maskIndices) *tensor { return i.query.GtScalar() }

// paddingMask follows padding_mask_function.
func paddingMask(padding *tensor) maskFunction {
	return func(_ *frame, i maskIndices) *tensor { return padding.Index(i.batch, i.key) }
}

// sameSequence follows packed_sequence_mask_function.
func sameSequence(sequences *tensor) maskFunction {
	return func(_ *frame, i maskIndices) *tensor {
		return sequences.Index(i.batch, i.query).Eq(sequences.Index(i.batch, i.key))
	}
}

// sameBlock follows blockwise_overlay.
func sameBlock(blocks *tensor) maskFunction {
	return func(f *frame, i maskIndices) *tensor {
		g := f.FuncFrame(i.batch, i.query, i.key)
		query := g.Bind(blocks.Index(i.batch, i.query))
		key := g.Bind(blocks.Index(i.batch, i.key))
		return g.Return(query.Eq(key).And(query.GtScalar()))
	}
}

// atPositions follows remap_positions_for_packed_sequence: the mask function gets positions within sequences.
func atPositions(positions *tensor, mask maskFunction) maskFunction {
	return func(f *frame, i maskIndices) *tensor {
		query, key := positions.Index(i.batch, i.query), positions.Index(i.batch, i.key)
		g := f.FuncFrame(query, key)
		return g.Return(mask(g, maskIndices{i.batch, query, key}))
	}
}

// causalMask follows causal_mask_function.
func causalMask(_ *frame, i maskIndices) *tensor { return i.key.Gt(i.query) }

// withinWindow follows sliding_window_overlay.
func withinWindow(_ *frame, i maskIndices) *tensor { return i.key.Gt(i.query.AddScalar()) }

// withinChunk follows chunked_causal_mask_function. Chunks begin after a row's padding on the left.
func withinChunk(f *frame, batch int64, padding *tensor) maskFunction {
	left := f.Bind(leftPadding(f, batch, padding))
	chunk := func(i maskIndices, of *tensor) *tensor {
		return of.Sub(left.Index(i.batch)).FloorDivide(trace.IntNumber)
	}
	return allOf(func(_ *frame, i maskIndices) *tensor { return chunk(i, i.key).Eq(chunk(i, i.query)) }, causalMask)
}

// leftPadding returns how many tokens of each row are padding on the left [batch].
func leftPadding(f *frame, batch int64, padding *tensor) *tensor {
	if padding == nil {
		return f.Tape().Zeros(trace.I64, batch)
	}
	return padding.CumSum(-1).Eq(padding.ZerosLike()).Sum(false, -1)
}

// allOf follows and_masks, which combines masks one by one, and or_masks, which allocates the same.
func allOf(masks ...maskFunction) maskFunction {
	return func(f *frame, i maskIndices) *tensor {
		g := f.FuncFrame(i.batch, i.query, i.key)
		result := g.Bind(g.Tape().Filled("new_ones", trace.Bool))
		for _, mask := range masks {
			g.Set(&result, result.And(mask(g, i)))
		}
		return g.Return(result)
	}
}

// maskForm makes the mask of a function for a kind of attention.
type maskForm func(f *frame, batch, queries, keys int64, mask maskFunction) *tensor

// eagerMask follows eager_mask: the mask of sdpaMask as an additive one of the given type.
func eagerMask(d trace.DType) maskForm {
	return func(f *frame, batch, queries, keys int64, mask maskFunction) *tensor {
		g := f.FuncFrame()
		m := g.Bind(sdpaMask(g, batch, queries, keys, mask))
		return g.Return(g.Bind(trace.WhereScalar(m, g.Tape().Zeros(d))))
	}
}

// sdpaMask follows sdpa_mask: a boolean mask with the function's value for every query and key.
func sdpaMask(f *frame, batch, queries, keys int64, mask maskFunction) *tensor {
	g := f.FuncFrame()
	t := g.Tape()
	b := g.Bind(t.Arange(batch))
	g.Bind(t.Arange(1))
	q := g.Bind(t.Arange(queries).AddScalar())
	k := g.Bind(t.Arange(keys).AddScalar())
	i := maskIndices{b.View(batch, 1, 1, 1), q.View(1, 1, queries, 1), k.View(1, 1, 1, keys)}
	h := g.FuncFrame(i.batch, i.query, i.key)
	all := h.Return(mask(h, i))
	return g.Return(all.Expand(batch, -1, queries, keys))
}
