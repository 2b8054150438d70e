package nn_test

import (
	"github.com/vprof/vprof/internal/opvectors"
	"github.com/vprof/vprof/profiler/trace"
)

// families are the groups of operators the vectors are called through.
var families = []func() map[string]opvectors.Call{coreOperators, convOperators, matmulOperators}

func coreOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"relu":       unary((*tensor).ReLU),
		"relu_":      unary((*tensor).ReLUInPlace),
		"gelu":       unary((*tensor).GELU),
		"sigmoid":    unary((*tensor).Sigmoid),
		"tanh":       unary((*tensor).Tanh),
		"exp":        unary((*tensor).Exp),
		"log":        unary((*tensor).Log),
		"sqrt":       unary((*tensor).Sqrt),
		"neg":        unary((*tensor).Neg),
		"add":        binary((*tensor).Add),
		"sub":        binary((*tensor).Sub),
		"mul":        binary((*tensor).Mul),
		"div":        binary((*tensor).Div),
		"pow2":       unary(func(x *tensor) *tensor { return x.Pow(2) }),
		"add_scalar": unary((*tensor).AddScalar),
		"mul_scalar": unary((*tensor).MulScalar),
		"clone":      unary((*tensor).Clone),
		"to_cl":      unary((*tensor).ContiguousChannelsLast),
		"softmax":    unary(func(x *tensor) *tensor { return x.Softmax(-1) }),
		"sum": one(func(v *vector, in []*tensor, _ params) *tensor {
			return in[0].Sum(v.Bool("keepdim", false), intsOf(v.Ints("dim"))...)
		}),
		"mean": one(func(v *vector, in []*tensor, _ params) *tensor {
			return in[0].Mean(v.Bool("keepdim", false), intsOf(v.Ints("dim"))...)
		}),
		"layer_norm": one(func(_ *vector, in []*tensor, p params) *tensor {
			return in[0].LayerNorm(1, p["weight"], p["bias"])
		}),
		"batch_norm2d": one(func(v *vector, in []*tensor, p params) *tensor {
			return in[0].BatchNorm(trace.BatchNormState{Weight: p["weight"], Bias: p["bias"], Training: v.Eval == 0})
		}),
	}
}

func intsOf(xs []int64) []int {
	out := make([]int, len(xs))
	for i, x := range xs {
		out[i] = int(x)
	}
	return out
}
