package nn_test

import (
	"github.com/vprof/vprof/internal/opvectors"
	"github.com/vprof/vprof/profiler/trace"
)

func normOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"batch_norm1d":          one(batchNorm),
		"batch_norm2d":          one(batchNorm),
		"batch_norm2d_cl":       one(batchNorm),
		"batch_norm2d_noaffine": one(batchNorm),
		"batch_norm2d_nostats":  one(batchNorm),
		"batch_norm3d":          one(batchNorm),
		"layer_norm": one(func(_ *vector, in []*tensor, p params) *tensor {
			return in[0].LayerNorm(1, p["weight"], p["bias"])
		}),
	}
}

// batchNorm is nn.BatchNorm's forward: without running statistics it always
// uses those of the batch.
func batchNorm(v *vector, in []*tensor, p params) *tensor {
	s := trace.BatchNormState{Weight: p["weight"], Bias: p["bias"], Mean: p["running_mean"], Var: p["running_var"]}
	s.Training = v.Eval == 0 || s.Mean == nil
	return in[0].BatchNorm(s)
}
