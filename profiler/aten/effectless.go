package aten

import (
	"slices"

	"github.com/vprof/vprof/profiler/trace"
)

// queries are operators without results, and those that tell of a tensor what
// is known before it is computed. They take no memory.
var queries = family{
	"_assert_tensor_metadata(Tensor a, SymInt[]? size=None, SymInt[]? stride=None, ScalarType? dtype=None, *, " +
		"Device? device=None, Layout? layout=None) -> ()": nothing,
	"_assert_async(Tensor self) -> ()":                                                 nothing,
	"_assert_async.msg(Tensor self, str assert_msg) -> ()":                             nothing,
	"_assert_scalar(Scalar self, str assert_msg) -> ()":                                nothing,
	"sym_constrain_range(Scalar size, *, int? min=None, int? max=None) -> ()":          nothing,
	"sym_constrain_range_for_size(Scalar size, *, int? min=None, int? max=None) -> ()": nothing,

	"sym_size.int(Tensor self, int dim) -> SymInt": value(func(a *Args) Value {
		return a.first(0).Size(a.Dim("dim"))
	}),
	"size.int(Tensor self, int dim) -> int": value(func(a *Args) Value {
		return a.first(0).Size(a.Dim("dim"))
	}),
	"sym_stride.int(Tensor self, int dim) -> SymInt": value(stride),
	"stride.int(Tensor self, int dim) -> int":        value(stride),
	"sym_numel(Tensor self) -> SymInt":               value(func(a *Args) Value { return a.first(0).Numel() }),
	"is_floating_point(Tensor self) -> bool": value(func(a *Args) Value {
		return a.first(0).DType().IsFloat()
	}),
	"is_complex(Tensor self) -> bool": value(func(a *Args) Value {
		return a.first(0).DType() == trace.C64
	}),
	"is_same_size(Tensor self, Tensor other) -> bool": value(func(a *Args) Value {
		return slices.Equal(a.first(0).Shape(), a.first(1).Shape())
	}),
}

func nothing(*Args) []Value { return nil }

func value(f func(a *Args) Value) body {
	return func(a *Args) []Value { return []Value{f(a)} }
}

func stride(a *Args) Value {
	x := a.first(0)
	d := a.Dim("dim")
	if d < 0 {
		d += x.NDim()
	}
	return x.Strides()[d]
}
