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
		"permute":      operator("permute.default", ints("dims", 0, 2, 3, 1)),
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
		"expand":            operator("expand.default", ints("size", 16, -1, -1)),
		"expand_contig":     unary(func(x *tensor) *tensor { return x.Expand(16, -1, -1).Contiguous() }),
		"expand_cat": binary(func(x, token *tensor) *tensor {
			return trace.Cat(1, token.Expand(x.Size(0), -1, -1), x)
		}),
		"narrow":     operator("narrow.default", along(1), arg("start", int64(5)), arg("length", int64(11))),
		"slice0":     operator("select.int", along(1), arg("index", int64(0))),
		"slice_step": operator("slice.Tensor", along(1), arg("step", int64(2))),
		"select_two": unary(func(x *tensor) *tensor { return x.Select(2, 0).Add(x.Select(2, 1)) }),
		"split":      operator("split.Tensor", arg("split_size", int64(16)), along(1)),
		"split_one":  unary(func(x *tensor) *tensor { return x.Split(16, 1)[0] }),
		"chunk":      operator("chunk.default", arg("chunks", int64(3)), along(-1)),
		"chunk2_mul": func(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
			halves := f.LetAll(in[0].Chunk(2, 1))
			return []*tensor{halves[0].Mul(halves[1].Sigmoid())}
		},
		"unbind":            operator("unbind.int"),
		"unfold":            operator("unfold.default", arg("dimension", int64(2)), arg("size", int64(5)), arg("step", int64(2))),
		"diff":              unary(func(x *tensor) *tensor { return x.Diff(1) }),
		"flip":              operator("flip.default", ints("dims", 1)),
		"roll":              operator("roll.default", ints("shifts", 3), ints("dims", 1)),
		"roll2":             operator("roll.default", ints("shifts", 3, 3), ints("dims", 1, 2)),
		"tril":              operator("tril.default"),
		"repeat":            operator("repeat.default", ints("repeats", 3, 2)),
		"tile":              operator("tile.default", ints("dims", 2, 3)),
		"repeat_interleave": operator("repeat_interleave.self_int", arg("repeats", int64(3)), along(1)),
		"window_partition":  unary(windowPartition),
		"cat0":              operator("cat.default"),
		"cat1":              operator("cat.default", along(1)),
		"cat1_big":          operator("cat.default", along(1)),
		"cat1_list4":        binary(func(a, b *tensor) *tensor { return trace.Cat(1, a, b, a, b) }),
		"cat_same":          unary(func(x *tensor) *tensor { return trace.Cat(1, x, x) }),
		"stack":             operator("stack.default", along(1)),
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
