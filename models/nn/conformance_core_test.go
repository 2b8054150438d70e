package nn_test

import (
	"github.com/vprof/vprof/internal/opvectors"
	"github.com/vprof/vprof/profiler/trace"
)

// families are the groups of operators the vectors are called through.
var families = []func() map[string]opvectors.Call{
	coreOperators,
	convOperators,
	matmulOperators,
	pointwiseOperators,
	activationOperators,
	reductionOperators,
	lossOperators,
}

func coreOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
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
