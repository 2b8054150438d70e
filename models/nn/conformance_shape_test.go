package nn_test

import (
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/opvectors"
)

// shapeOperators returns views, copies and joins.
func shapeOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"view": operatorWith("view.default", func(_ *vector, x *tensor, _ params) []aten.Arg {
			return []aten.Arg{ints("size", x.Size(0), -1)}
		}),
		"reshape_view": operatorWith("reshape.default", func(_ *vector, x *tensor, _ params) []aten.Arg {
			return []aten.Arg{ints("shape", x.Size(0), -1)}
		}),
		"permute":                operator("permute.default", ints("dims", 0, 2, 3, 1)),
		"permute_contiguous":     unary(channelsAtTheEnd),
		"permute_contiguous_big": unary(channelsAtTheEnd),
		"movedim": unary(func(x *tensor) *tensor {
			return at("contiguous.default", at("movedim.int", x, whole("source", 1), whole("destination", -1)))
		}),
		"transpose_reshape": unary(func(x *tensor) *tensor {
			y := at("transpose.int", x, whole("dim0", 1), whole("dim1", 2))
			return at("reshape.default", y, ints("shape", y.Size(0), y.Size(1), -1))
		}),
		"flatten_noncontig": unary(func(x *tensor) *tensor {
			return at("flatten.using_ints", at("transpose.int", x, whole("dim0", 1), whole("dim1", 2)),
				whole("start_dim", 1))
		}),
		"squeeze_unsq": unary(func(x *tensor) *tensor {
			return at("squeeze.dim", at("unsqueeze.default", x, along(1)), along(1))
		}),
		"expand": operator("expand.default", ints("size", 16, -1, -1)),
		"expand_contig": unary(func(x *tensor) *tensor {
			return at("contiguous.default", at("expand.default", x, ints("size", 16, -1, -1)))
		}),
		"expand_cat": binary(func(x, token *tensor) *tensor {
			return at("cat.default", at("expand.default", token, ints("size", x.Size(0), -1, -1)), x, along(1))
		}),
		"narrow":     operator("narrow.default", along(1), arg("start", int64(5)), arg("length", int64(11))),
		"slice0":     operator("select.int", along(1), arg("index", int64(0))),
		"slice_step": operator("slice.Tensor", along(1), arg("step", int64(2))),
		"select_two": unary(func(x *tensor) *tensor {
			return at("add.Tensor", at("select.int", x, along(2), whole("index", 0)),
				at("select.int", x, along(2), whole("index", 1)))
		}),
		"split":     operator("split.Tensor", arg("split_size", int64(16)), along(1)),
		"split_one": unary(func(x *tensor) *tensor { return at("split.Tensor", x, whole("split_size", 16), along(1)) }),
		"chunk":     operator("chunk.default", arg("chunks", int64(3)), along(-1)),
		"chunk2_mul": func(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
			halves := f.BindAll(in[0].Chunk(2, 1))
			return []*tensor{halves[0].Mul(halves[1].Sigmoid())}
		},
		"unbind": operator("unbind.int"),
		"unfold": operator("unfold.default", arg("dimension", int64(2)), arg("size", int64(5)),
			arg("step", int64(2))),
		"diff":              operator("diff.default", along(1)),
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
		"cat1_list4":        binary(func(a, b *tensor) *tensor { return at("cat.default", a, b, a, b, along(1)) }),
		"cat_same":          unary(func(x *tensor) *tensor { return at("cat.default", x, x, along(1)) }),
		"stack":             operator("stack.default", along(1)),
		"setitem": func(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
			y := f.Bind(f.Tape().Zeros(in[0].DType(), 9, 40))
			f.Discard(y.Narrow(0, 1, 7).Narrow(1, 2, 33).CopyInPlace(in[0]))
			return []*tensor{y}
		},
		"copy_slice": func(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
			t := f.Tape()
			y := t.Zeros(in[0].DType(), 9, 40)
			return []*tensor{y.IndexPut([]*tensor{t.Arange(7)}, in[0].Pad(2, 5), false)}
		},
		"view_chain_inplace": func(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
			y := f.Bind(in[0].MulScalar())
			v := f.Bind(y.View(-1).View(in[0].Shape()...))
			f.Discard(v.AddScalarInPlace())
			return []*tensor{v}
		},
	}
}

// channelsAtTheEnd records x.permute(0, 2, 3, 1).contiguous().
func channelsAtTheEnd(x *tensor) *tensor {
	return at("contiguous.default", at("permute.default", x, ints("dims", 0, 2, 3, 1)))
}

// windowPartition cuts [B,H,W,C] into windows of 7 by 7.
func windowPartition(x *tensor) *tensor {
	b, h, w, ch := x.Size(0), x.Size(1), x.Size(2), x.Size(3)
	return x.View(b, h/7, 7, w/7, 7, ch).Permute(0, 1, 3, 2, 4, 5).Reshape(-1, 49, ch)
}
