package nn_test

import (
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/tools/opvectors"
)

func dropoutOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"dropout":       operator("dropout.default", rate(0.1)...),
		"dropout0":      operator("dropout.default", rate(0)...),
		"dropout_":      operator("dropout_.default", rate(0.1)...),
		"dropout1d":     operator("feature_dropout.default", rate(0.1)...),
		"dropout2d":     operator("feature_dropout.default", rate(0.1)...),
		"alpha_dropout": operator("alpha_dropout.default", rate(0.1)...),
		"drop_path": unary(func(x *tensor) *tensor {
			shape := make([]int64, x.NDim())
			for d := range shape {
				shape[d] = 1
			}
			shape[0] = x.Size(0)
			f := x.Tape().Frame()
			mask := f.Bind(x.Tape().Filled("new_empty", x.DType(), shape...))
			y := x.Mul(mask)
			return f.Return(y)
		}),
		"straight_through": one(func(_ *vector, in []*tensor, _ params) *tensor {
			return in[0].Add(in[1].Sub(in[0]).Detach())
		}),
	}
}

// rate returns the arguments of a dropout in training.
func rate(p float64) []aten.Arg { return []aten.Arg{arg("p", p), arg("train", true)} }
