package nn_test

import (
	"github.com/vprof/vprof/internal/opvectors"
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
		"var":            over((*tensor).Var),
		"var_biased":     over((*tensor).Var),
		"std":            over((*tensor).Std),
		"softmax":        unary(func(x *tensor) *tensor { return x.Softmax(-1) }),
		"softmax_dim0":   unary(func(x *tensor) *tensor { return x.Softmax(0) }),
		"softmax_f32":    unary(func(x *tensor) *tensor { return x.SoftmaxTo(-1, trace.F32) }),
		"softmin":        unary(func(x *tensor) *tensor { return x.Softmin(-1) }),
		"log_softmax":    unary(func(x *tensor) *tensor { return x.LogSoftmax(-1) }),
		"normalize":      unary(func(x *tensor) *tensor { return x.Normalize(-1) }),
		"normalize_dim0": unary(func(x *tensor) *tensor { return x.Normalize(0) }),
	}
}
