package hf

import "github.com/vprof/vprof/profiler/trace"

// BidirectionalMask records transformers' create_bidirectional_mask: the mask [batch, 1, queries, keys] for the queries
// of x and a padding mask [batch, keys]. It is bool, or additive in x's data type for eager attention. transformers
// makes no mask if nothing is padded, which it reads from the GPU; padded is the answer.
func BidirectionalMask(f *frame, x, padding *tensor, padded, eager bool) *tensor {
	form := maskInterface(sdpaMask)
	if eager {
		form = eagerMask(x.DType())
	}
	g := f.FunctionFrame(padding)
	g.Set(&padding, padding.To(trace.Bool))
	g.Discard(padding.Any(false)) // all()
	if !padded {
		g.End()
		return nil
	}
	g.Set(&padding,
		form(g, padding.Size(0), x.Size(1), padding.Size(1), andMasks(bidirectionalMask, paddingMask(padding))))
	return g.Return(padding)
}

// CausalMask records transformers' create_causal_mask for positions [1 or batch, length] and a padding mask [batch,
// length], which is nil unless some row is padded. Without a padding mask, transformers reads from the positions
// whether rows hold several packed sequences, and otherwise makes no mask, since attention kernels are causal by
// themselves; packed is the answer.
func CausalMask(f *frame, batch int64, positions, padding *tensor, packed Packing) *tensor {
	return sequenceMask(f, batch, positions, padding, packed, false, causalMask, sdpaMask)
}

// EagerCausalMask records transformers' create_causal_mask for eager attention: always an additive mask in x's dtype.
func EagerCausalMask(f *frame, x, positions, padding *tensor, packed Packing) *tensor {
	return sequenceMask(f, x.Size(0), positions, padding, packed, true, causalMask, eagerMask(x.DType()))
}

// EagerWindowMask records transformers' create_sliding_window_causal_mask for eager attention.
func EagerWindowMask(f *frame, x, positions, padding *tensor, packed Packing) *tensor {
	return sequenceMask(f, x.Size(0), positions, padding, packed, true, andMasks(windowMask, causalMask),
		eagerMask(x.DType()))
}

// EagerChunkMask records transformers' create_chunked_causal_mask for eager attention.
func EagerChunkMask(f *frame, x, positions, padding *tensor, packed Packing) *tensor {
	return positionMask(f, x.Size(0), positions, padding, packed, true, chunkMask, unchangedMask, eagerMask(x.DType()))
}

// WindowMask records transformers' create_sliding_window_causal_mask: tokens attend to earlier ones up to a distance. A
// sequence of that length or more always needs a mask.
func WindowMask(f *frame, batch int64, positions, padding *tensor, packed Packing, window int64) *tensor {
	return sequenceMask(f, batch, positions, padding, packed, positions.Size(1) >= window,
		andMasks(windowMask, causalMask), sdpaMask)
}

// ChunkMask records transformers' create_chunked_causal_mask: tokens attend to earlier ones of their chunk. A sequence
// longer than a chunk always needs a mask.
func ChunkMask(f *frame, batch int64, positions, padding *tensor, packed Packing, chunk int64) *tensor {
	needed := positions.Size(1) >= chunk
	return positionMask(f, batch, positions, padding, packed, needed, chunkMask, unchangedMask, sdpaMask)
}

// BlockMask records transformers' create_causal_mask or, if window is not zero, create_sliding_window_causal_mask.
// blocks [batch, length] marks tokens that attend to each other in both directions, which needs a mask; it can be nil.
func BlockMask(f *frame, batch int64, positions, padding, blocks *tensor, packed Packing, window int64) *tensor {
	switch {
	case blocks == nil && window == 0:
		return CausalMask(f, batch, positions, padding, packed)
	case blocks == nil:
		return WindowMask(f, batch, positions, padding, packed, window)
	}
	mask := causalMask
	if window > 0 {
		mask = andMasks(windowMask, causalMask)
	}
	overlay := func(m maskFunction) maskFunction { return andMasks(m, blockOverlay(blocks)) }
	return positionMask(f, batch, positions, padding, packed, true, fixedMask(mask), overlay, sdpaMask)
}

// sequenceMask evaluates a mask function over all queries and keys if rows are padded or packed, or if the mask is
// always needed; else it returns nil.
func sequenceMask(
	f *frame, batch int64, positions, padding *tensor, packed Packing, needed bool, mask maskFunction,
	form maskInterface,
) *tensor {
	return positionMask(f, batch, positions, padding, packed, needed, fixedMask(mask), unchangedMask, form)
}

func fixedMask(mask maskFunction) maskMaker {
	return func(*frame, int64, *tensor) maskFunction { return mask }
}

func unchangedMask(mask maskFunction) maskFunction { return mask }

type maskMaker func(f *frame, batch int64, padding *tensor) maskFunction

// positionMask records [sequenceMask] for position tensors. overlay changes the mask function before padding is masked.
func positionMask(
	f *frame, batch int64, positions, padding *tensor, packed Packing, needed bool, of maskMaker,
	overlay func(maskFunction) maskFunction, form maskInterface,
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
		mask = andMasks(overlay(mask), paddingMask(padding))
	case sequences != nil:
		if positions.Size(0) != batch {
			g.Set(&positions, positions.Expand(batch, -1))
		}
		if f.Tape().Rules().Libraries.RemapsPositions {
			mask = remapPositions(positions, mask)
		}
		mask = overlay(andMasks(packedSequenceMask(sequences), mask))
	case !needed:
		g.End()
		return nil
	default:
		mask = overlay(mask)
	}
	return g.Return(form(g, batch, length, length, mask))
}

// packedSequences records transformers' find_packed_sequence_indices: the index of each token's sequence in its row.
func packedSequences(f *frame, batch int64, positions *tensor, packed Packing) *tensor {
	rules := &f.Tape().Rules().Libraries
	if packed == UncheckedPacking || !rules.ReadsPositions {
		return nil
	}
	g := f.FunctionFrame(positions)
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

// maskIndices are a mask function's arguments: indices of batch, query and key, shaped to broadcast to the mask.
type maskIndices struct{ batch, query, key *tensor }

type maskFunction func(f *frame, i maskIndices) *tensor

func bidirectionalMask(_ *frame, i maskIndices) *tensor { return i.query.GtScalar() }

func paddingMask(padding *tensor) maskFunction {
	return func(_ *frame, i maskIndices) *tensor { return padding.Index(i.batch, i.key) }
}

func packedSequenceMask(sequences *tensor) maskFunction {
	return func(_ *frame, i maskIndices) *tensor {
		return sequences.Index(i.batch, i.query).Eq(sequences.Index(i.batch, i.key))
	}
}

// blockOverlay returns blockwise_overlay of transformers' masking_utils.py.
func blockOverlay(blocks *tensor) maskFunction {
	return func(f *frame, i maskIndices) *tensor {
		g := f.FunctionFrame(i.batch, i.query, i.key)
		query := g.Bind(blocks.Index(i.batch, i.query))
		key := g.Bind(blocks.Index(i.batch, i.key))
		return g.Return(query.Eq(key).And(query.GtScalar()))
	}
}

// remapPositions records transformers' remap_positions_for_packed_sequence, which passes positions within sequences to
// the mask function.
func remapPositions(positions *tensor, mask maskFunction) maskFunction {
	return func(f *frame, i maskIndices) *tensor {
		query, key := positions.Index(i.batch, i.query), positions.Index(i.batch, i.key)
		g := f.FunctionFrame(query, key)
		return g.Return(mask(g, maskIndices{i.batch, query, key}))
	}
}

func causalMask(_ *frame, i maskIndices) *tensor { return i.key.Gt(i.query) }

// windowMask returns sliding_window_overlay of transformers' masking_utils.py.
func windowMask(_ *frame, i maskIndices) *tensor { return i.key.Gt(i.query.AddScalar()) }

// chunkMask returns transformers' chunked_causal_mask_function. Chunks begin after a row's padding on the left.
func chunkMask(f *frame, batch int64, padding *tensor) maskFunction {
	left := f.Bind(leftPadding(f, batch, padding))
	chunk := func(i maskIndices, of *tensor) *tensor {
		return of.Sub(left.Index(i.batch)).FloorDivide(trace.IntNumber)
	}
	return andMasks(func(_ *frame, i maskIndices) *tensor { return chunk(i, i.key).Eq(chunk(i, i.query)) }, causalMask)
}

// leftPadding returns the number of padding tokens on the left of each row [batch].
func leftPadding(f *frame, batch int64, padding *tensor) *tensor {
	if padding == nil {
		return f.Tape().Zeros(trace.I64, batch)
	}
	return padding.CumSum(-1).Eq(padding.ZerosLike()).Sum(false, -1)
}

// andMasks records transformers' and_masks, which combines masks one by one, and or_masks, which allocates the same.
func andMasks(masks ...maskFunction) maskFunction {
	return func(f *frame, i maskIndices) *tensor {
		g := f.FunctionFrame(i.batch, i.query, i.key)
		result := g.Bind(g.Tape().Filled("new_ones", trace.Bool))
		for _, mask := range masks {
			g.Set(&result, result.And(mask(g, i)))
		}
		return g.Return(result)
	}
}

// maskInterface evaluates a mask function as a kind of attention requires: as a bool, additive or block mask.
type maskInterface func(f *frame, batch, queries, keys int64, mask maskFunction) *tensor

// eagerMask records transformers' eager_mask: sdpaMask's mask as an additive one of the given type.
func eagerMask(d trace.DType) maskInterface {
	return func(f *frame, batch, queries, keys int64, mask maskFunction) *tensor {
		g := f.FunctionFrame()
		m := g.Bind(sdpaMask(g, batch, queries, keys, mask))
		return g.Return(g.Bind(trace.WhereScalar(m, g.Tape().Zeros(d))))
	}
}

// sdpaMask records transformers' sdpa_mask: a bool mask with the function's value for every query and key.
func sdpaMask(f *frame, batch, queries, keys int64, mask maskFunction) *tensor {
	g := f.FunctionFrame()
	t := g.Tape()
	b := g.Bind(t.Arange(batch))
	g.Bind(t.Arange(1))
	q := g.Bind(t.Arange(queries).AddScalar())
	k := g.Bind(t.Arange(keys).AddScalar())
	i := maskIndices{b.View(batch, 1, 1, 1), q.View(1, 1, queries, 1), k.View(1, 1, 1, keys)}
	h := g.FunctionFrame(i.batch, i.query, i.key)
	all := h.Return(mask(h, i))
	return g.Return(all.Expand(batch, -1, queries, keys))
}
