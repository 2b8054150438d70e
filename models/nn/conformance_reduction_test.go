package nn_test

import (
	"github.com/vprof/vprof/profiler/aten/opvectors"
	"github.com/vprof/vprof/profiler/trace"
)

// over adapts a reduction over the dimensions a vector names.
func over(f func(x *tensor, keep bool, dims ...int) *tensor) opvectors.Call {
	return one(func(v *vector, in []*tensor, _ params) *tensor {
		return f(in[0], v.Bool("keepdim", false), intsOf(v.Ints("dim"))...)
	})
}

func reductionOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"sum":      over((*tensor).Sum),
		"sum_all":  over((*tensor).Sum),
		"mean":     over((*tensor).Mean),
		"mean_all": over((*tensor).Mean),
		"norm1": over(func(x *tensor, keep bool, dims ...int) *tensor {
			return x.Norm(1, keep, dims...)
		}),
		"norm2": over(func(x *tensor, keep bool, dims ...int) *tensor {
			return x.Norm(2, keep, dims...)
		}),
		"var":        over((*tensor).Var),
		"var_biased": over((*tensor).Var),
		"std":        over((*tensor).Std),
		"var_mean":   some(func(x *tensor) []*tensor { return pair(x.VarMean(false, dimsFrom(x, 2)...)) }),
		"std_mean":   some(func(x *tensor) []*tensor { return pair(x.StdMean(false, -1)) }),
		"amax":       over((*tensor).AMax),
		"amin":       over((*tensor).AMin),
		"max_dim":    operator("max.dim", along(-1)),
		"max_dim0":   unary(func(x *tensor) *tensor { return x.MaxValues(false, 1) }),
		"argmax":     operator("argmax.default", along(-1)),
		"argmin":     operator("argmin.default", along(-1)),
		"any":        unary(func(x *tensor) *tensor { return x.GtScalar().Any(false) }),
		"logsumexp": unary(func(x *tensor) *tensor {
			return x.LogSumExp(false, -1)
		}),
		"logsumexp_d":    over((*tensor).LogSumExp),
		"cumsum":         operator("cumsum.default", along(-1)),
		"cumprod":        operator("cumprod.default", along(-1)),
		"softmax":        operator("softmax.int", along(-1)),
		"softmax_dim0":   operator("softmax.int", along(0)),
		"softmax_f32":    unary(func(x *tensor) *tensor { return x.SoftmaxTo(-1, trace.F32) }),
		"softmin":        unary(func(x *tensor) *tensor { return x.Softmin(-1) }),
		"log_softmax":    operator("log_softmax.int", along(-1)),
		"normalize":      unary(func(x *tensor) *tensor { return x.Normalize(-1) }),
		"normalize_dim0": unary(func(x *tensor) *tensor { return x.Normalize(0) }),
	}
}

// some adapts an operator of one tensor with several results.
func some(f func(*tensor) []*tensor) opvectors.Call {
	return func(_ *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor { return f(in[0]) }
}

func pair(a, b *tensor) []*tensor { return []*tensor{a, b} }

// dimsFrom are all dimensions of x from the given one on.
func dimsFrom(x *tensor, from int) []int {
	var dims []int
	for d := from; d < x.NDim(); d++ {
		dims = append(dims, d)
	}
	return dims
}
