package aten

import (
	"slices"

	"github.com/vprof/vprof/profiler/trace"
)

// queries are operators without results, and those that tell of a tensor what
// is known before it is computed. They take no memory.
var queries = family{
	"_assert_tensor_metadata _assert_async _assert_async.msg _assert_scalar sym_constrain_range": nothing,
	"sym_constrain_range_for_size": nothing,
	"sym_size.int size.int":        (*tensor).Size,
	"sym_stride.int stride.int":    stride,
	"sym_numel":                    (*tensor).Numel,
	"is_floating_point":            func(x *tensor) bool { return x.DType().IsFloat() },
	"is_complex":                   func(x *tensor) bool { return x.DType() == trace.C64 },
	"is_same_size":                 func(x, y *tensor) bool { return slices.Equal(x.Shape(), y.Shape()) },
}

func nothing(*Args) []Value { return nil }

func stride(a *Args) Value {
	x := a.first(0)
	d := a.Dim("dim")
	if d < 0 {
		d += x.NDim()
	}
	return x.Strides()[d]
}
