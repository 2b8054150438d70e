package nn_test

import (
	"github.com/vprof/vprof/profiler/aten/opvectors"
	"github.com/vprof/vprof/profiler/trace"
)

// shapeOperators are views, copies and joins.
func shapeOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"view":         unary(func(x *tensor) *tensor { return x.View(x.Size(0), -1) }),
		"reshape_view": unary(func(x *tensor) *tensor { return x.Reshape(x.Size(0), -1) }),
		"permute":      unary(func(x *tensor) *tensor { return x.Permute(0, 2, 3, 1) }),
		"permute_contiguous": unary(func(x *tensor) *tensor {
			return x.Permute(0, 2, 3, 1).Contiguous()
		}),
		"permute_contiguous_big": unary(func(x *tensor) *tensor {
			return x.Permute(0, 2, 3, 1).Contiguous()
		}),
		"movedim": unary(func(x *tensor) *tensor { return x.MoveDim(1, -1).Contiguous() }),
		"transpose_reshape": unary(func(x *tensor) *tensor {
			y := x.Transpose(1, 2)
			return y.Reshape(y.Size(0), y.Size(1), -1)
		}),
		"flatten_noncontig": unary(func(x *tensor) *tensor { return x.Transpose(1, 2).Flatten(1, -1) }),
		"squeeze_unsq":      unary(func(x *tensor) *tensor { return x.Unsqueeze(1).Squeeze(1) }),
		"expand":            unary(func(x *tensor) *tensor { return x.Expand(16, -1, -1) }),
		"expand_contig":     unary(func(x *tensor) *tensor { return x.Expand(16, -1, -1).Contiguous() }),
		"expand_cat": binary(func(x, token *tensor) *tensor {
			return trace.Cat(1, token.Expand(x.Size(0), -1, -1), x)
		}),
		"narrow":     unary(func(x *tensor) *tensor { return x.Narrow(1, 5, 11) }),
		"slice0":     unary(func(x *tensor) *tensor { return x.Select(1, 0) }),
		"slice_step": unary(func(x *tensor) *tensor { return x.SliceStep(1, 0, x.Size(1), 2) }),
		"select_two": unary(func(x *tensor) *tensor { return x.Select(2, 0).Add(x.Select(2, 1)) }),
		"split":      some(func(x *tensor) []*tensor { return x.Split(16, 1) }),
		"split_one":  unary(func(x *tensor) *tensor { return x.Split(16, 1)[0] }),
		"chunk":      some(func(x *tensor) []*tensor { return x.Chunk(3, -1) }),
		"chunk2_mul": func(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
			halves := f.LetAll(in[0].Chunk(2, 1))
			return []*tensor{halves[0].Mul(halves[1].Sigmoid())}
		},
		"unbind": some(func(x *tensor) []*tensor { return x.Unbind(0) }),
		"unfold": unary(func(x *tensor) *tensor { return x.Unfold(2, 5, 2) }),
		"diff":   unary(func(x *tensor) *tensor { return x.Diff(1) }),
		"flip":   unary(func(x *tensor) *tensor { return x.Flip(1) }),
		"roll":   unary(func(x *tensor) *tensor { return x.Roll(1) }),
		"roll2":  unary(func(x *tensor) *tensor { return x.Roll(1, 2) }),
		"tril":   unary((*tensor).Tril),
		"repeat": unary(func(x *tensor) *tensor { return x.Repeat(3, 2) }),
		"tile":   unary(func(x *tensor) *tensor { return x.Tile(2, 3) }),
		"repeat_interleave": unary(func(x *tensor) *tensor {
			return x.RepeatInterleave(3, 1)
		}),
		"window_partition": unary(windowPartition),
		"cat0":             binary(func(a, b *tensor) *tensor { return trace.Cat(0, a, b) }),
		"cat1":             binary(func(a, b *tensor) *tensor { return trace.Cat(1, a, b) }),
		"cat1_big":         binary(func(a, b *tensor) *tensor { return trace.Cat(1, a, b) }),
		"cat1_list4":       binary(func(a, b *tensor) *tensor { return trace.Cat(1, a, b, a, b) }),
		"cat_same":         unary(func(x *tensor) *tensor { return trace.Cat(1, x, x) }),
		"stack":            binary(func(a, b *tensor) *tensor { return trace.Stack(1, a, b) }),
		"setitem": func(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
			y := f.Let(f.Tape().Zeros(in[0].DType(), 9, 40))
			f.Discard(y.Narrow(0, 1, 7).Narrow(1, 2, 33).CopyInPlace(in[0]))
			return []*tensor{y}
		},
		"copy_slice": func(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
			t := f.Tape()
			y := t.Zeros(in[0].DType(), 9, 40)
			return []*tensor{y.IndexPut([]*tensor{t.Arange(7)}, in[0].Pad(2, 5), false)}
		},
		"view_chain_inplace": func(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
			y := f.Let(in[0].MulScalar())
			v := f.Let(y.View(-1).View(in[0].Shape()...))
			f.Discard(v.AddScalarInPlace())
			return []*tensor{v}
		},
	}
}

// windowPartition cuts [B,H,W,C] into windows of 7 by 7.
func windowPartition(x *tensor) *tensor {
	b, h, w, ch := x.Size(0), x.Size(1), x.Size(2), x.Size(3)
	return x.View(b, h/7, 7, w/7, 7, ch).Permute(0, 1, 3, 2, 4, 5).Reshape(-1, 49, ch)
}
