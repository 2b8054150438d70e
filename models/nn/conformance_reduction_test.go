package nn_test

import (
	"slices"

	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/opvectors"
)

// over returns a reduction over the dimensions that a vector names.
func over(target string, more ...aten.Arg) opvectors.Call {
	return operatorWith(target, func(v *vector, _ *tensor, _ params) []aten.Arg {
		return append(slices.Clone(more), ints("dim", v.Ints("dim")...), arg("keepdim", v.Bool("keepdim", false)))
	})
}

func reductionOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"sum":        over("sum.dim_IntList"),
		"sum_all":    operator("sum.default"),
		"mean":       over("mean.dim"),
		"mean_all":   operator("mean.default"),
		"norm1":      over("linalg_vector_norm.default", arg("ord", 1.0)),
		"norm2":      over("linalg_vector_norm.default", arg("ord", 2.0)),
		"var":        over("var.correction"),
		"var_biased": over("var.correction", arg("correction", 0.0)),
		"std":        over("std.correction"),
		"var_mean": operatorWith("var_mean.correction", func(_ *vector, x *tensor, _ params) []aten.Arg {
			return []aten.Arg{ints("dim", dimsFrom(x, 2)...)}
		}),
		"std_mean":       operator("std_mean.correction", ints("dim", -1)),
		"amax":           over("amax.default"),
		"amin":           over("amin.default"),
		"max_dim":        operator("max.dim", along(-1)),
		"max_dim0":       first(operator("max.dim", along(1))),
		"argmax":         operator("argmax.default", along(-1)),
		"argmin":         operator("argmin.default", along(-1)),
		"any":            unary(func(x *tensor) *tensor { return at("any.default", positive(x)) }),
		"logsumexp":      operator("logsumexp.default", ints("dim", -1)),
		"logsumexp_d":    over("logsumexp.default"),
		"cumsum":         operator("cumsum.default", along(-1)),
		"cumprod":        operator("cumprod.default", along(-1)),
		"softmax":        operator("softmax.int", along(-1)),
		"softmax_dim0":   operator("softmax.int", along(0)),
		"softmax_f32":    operator("softmax.int", along(-1), arg("dtype", trace.F32)),
		"softmin":        unary(softmin),
		"log_softmax":    operator("log_softmax.int", along(-1)),
		"normalize":      unary(func(x *tensor) *tensor { return x.Normalize(-1) }),
		"normalize_dim0": unary(func(x *tensor) *tensor { return x.Normalize(0) }),
	}
}

// dimsFrom returns all dimensions of x from the given one on.
func dimsFrom(x *tensor, from int) []int64 {
	var dims []int64
	for d := from; d < x.NDim(); d++ {
		dims = append(dims, int64(d))
	}
	return dims
}
