package nn_test

import (
	"github.com/vprof/vprof/internal/opvectors"
	"github.com/vprof/vprof/profiler/trace"
)

func normOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"batch_norm1d":             one(batchNorm),
		"batch_norm2d":             one(batchNorm),
		"batch_norm2d_cl":          one(batchNorm),
		"batch_norm2d_noaffine":    one(batchNorm),
		"batch_norm2d_nostats":     one(batchNorm),
		"batch_norm3d":             one(batchNorm),
		"layer_norm":               one(layerNorm),
		"layer_norm_nc":            one(layerNorm),
		"layer_norm_noaffine":      one(layerNorm),
		"layer_norm_2d":            one(func(_ *vector, in []*tensor, _ params) *tensor { return in[0].LayerNorm(3, nil, nil) }),
		"layer_norm_channel_first": layerNormChannelFirst,
		"rms_norm":                 one(func(_ *vector, in []*tensor, p params) *tensor { return in[0].RMSNorm(1, p["weight"]) }),
		"rms_norm_hand":            one(func(_ *vector, in []*tensor, _ params) *tensor { return rmsNormByHand(in[0], in[1]) }),
		"group_norm": one(func(v *vector, in []*tensor, p params) *tensor {
			return in[0].GroupNorm(v.Int("groups", 1), p["weight"], p["bias"])
		}),
		"instance_norm1d":          one(instanceNorm),
		"instance_norm2d":          one(instanceNorm),
		"instance_norm2d_noaffine": one(instanceNorm),
	}
}

// batchNorm is nn.BatchNorm's forward: without running statistics it always
// uses those of the batch.
func batchNorm(v *vector, in []*tensor, p params) *tensor {
	s := trace.BatchNormState{Weight: p["weight"], Bias: p["bias"], Mean: p["running_mean"], Var: p["running_var"]}
	s.Training = v.Eval == 0 || s.Mean == nil
	return in[0].BatchNorm(s)
}

func layerNorm(_ *vector, in []*tensor, p params) *tensor {
	return in[0].LayerNorm(1, p["weight"], p["bias"])
}

func instanceNorm(_ *vector, in []*tensor, p params) *tensor {
	return in[0].InstanceNorm(p["weight"], p["bias"])
}

// layerNormChannelFirst is the layer norm over channels that ConvNeXt brought:
//
//	u = x.mean(1, keepdim=True)
//	s = (x - u).pow(2).mean(1, keepdim=True)
//	x = (x - u) / torch.sqrt(s + eps)
//	return weight[:, None] * x + bias[:, None]
func layerNormChannelFirst(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
	x, weight, bias := f.Let(in[0]), in[1], in[2]
	u := f.Let(x.Mean(true, 1))
	s := f.Let(x.Sub(u).Pow(2).Mean(true, 1))
	f.Set(&x, x.Sub(u).Div(s.AddScalar().Sqrt()))
	column := func(w *tensor) *tensor {
		for range x.NDim() - 2 {
			w = w.Unsqueeze(-1)
		}
		return w
	}
	return []*tensor{column(weight).Mul(x).Add(column(bias))}
}

// rmsNormByHand is LLaMA's:
//
//	(x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)).type_as(x) * w
func rmsNormByHand(x, w *tensor) *tensor {
	wide := x.To(trace.F32)
	return wide.Mul(x.To(trace.F32).Pow(2).Mean(true, -1).AddScalar().Rsqrt()).To(x.DType()).Mul(w)
}
