package nn_test

import "github.com/vprof/vprof/profiler/aten/opvectors"

func dropoutOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"dropout":       unary(func(x *tensor) *tensor { return x.Dropout(0.1, true) }),
		"dropout0":      unary(func(x *tensor) *tensor { return x.Dropout(0, true) }),
		"dropout_":      unary(func(x *tensor) *tensor { return x.DropoutInPlace(0.1, true) }),
		"dropout1d":     unary(func(x *tensor) *tensor { return x.FeatureDropout(0.1, true) }),
		"dropout2d":     unary(func(x *tensor) *tensor { return x.FeatureDropout(0.1, true) }),
		"alpha_dropout": unary(func(x *tensor) *tensor { return x.AlphaDropout(0.1, true) }),
		"drop_path": unary(func(x *tensor) *tensor {
			shape := make([]int64, x.NDim())
			for d := range shape {
				shape[d] = 1
			}
			shape[0] = x.Size(0)
			f := x.Tape().Frame()
			mask := f.Let(x.Tape().Filled("new_empty", x.DType(), shape...))
			y := x.Mul(mask)
			f.End(y)
			return y
		}),
		"straight_through": one(func(_ *vector, in []*tensor, _ params) *tensor {
			return in[0].Add(in[1].Sub(in[0]).Detach())
		}),
	}
}
