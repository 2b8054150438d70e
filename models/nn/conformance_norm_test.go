package nn_test

import (
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/opvectors"
)

func normOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"spectral_norm_old_linear":   spectralNorm(false),
		"spectral_norm_old_conv2d":   spectralNorm(false),
		"spectral_norm_param_linear": spectralNorm(true),
		"spectral_norm_param_conv2d": spectralNorm(true),
		"weight_norm_old_linear":     weightNorm(false),
		"weight_norm_old_conv2d":     weightNorm(false),
		"weight_norm_param_linear":   weightNorm(true),
		"weight_norm_param_conv2d":   weightNorm(true),

		"batch_norm1d":             batchNorm(),
		"batch_norm2d":             batchNorm(),
		"batch_norm2d_cl":          batchNorm(),
		"batch_norm2d_noaffine":    batchNorm(),
		"batch_norm2d_nostats":     batchNorm(),
		"batch_norm3d":             batchNorm(),
		"layer_norm":               layerNorm(1),
		"layer_norm_nc":            layerNorm(1),
		"layer_norm_noaffine":      layerNorm(1),
		"layer_norm_2d":            layerNorm(3),
		"layer_norm_channel_first": layerNormChannelFirst,
		"rms_norm": operatorWith("rms_norm.default", func(_ *vector, x *tensor, p params) []aten.Arg {
			return append(learned(p, "weight"), last(x, 1))
		}),
		"rms_norm_hand": one(func(_ *vector, in []*tensor, _ params) *tensor { return rmsNormByHand(in[0], in[1]) }),
		"group_norm": operatorWith("group_norm.default", func(v *vector, _ *tensor, p params) []aten.Arg {
			return append(learned(p, "weight", "bias"), arg("num_groups", v.Int("groups", 1)))
		}),
		"instance_norm1d":          instanceNorm(),
		"instance_norm2d":          instanceNorm(),
		"instance_norm2d_noaffine": instanceNorm(),
	}
}

// batchNorm records nn.BatchNorm's forward: without running statistics it always uses the batch's.
func batchNorm() opvectors.Call {
	return operatorWith("batch_norm.default", func(v *vector, _ *tensor, p params) []aten.Arg {
		return append(learned(p, "weight", "bias", "running_mean", "running_var"),
			arg("training", v.Eval == 0 || p["running_mean"] == nil), arg("momentum", 0.1), arg("eps", 1e-5),
			arg("cudnn_enabled", true))
	})
}

func layerNorm(dims int) opvectors.Call {
	return operatorWith("layer_norm.default", func(_ *vector, x *tensor, p params) []aten.Arg {
		return append(learned(p, "weight", "bias"), last(x, dims))
	})
}

func instanceNorm() opvectors.Call {
	return operatorWith("instance_norm.default", func(_ *vector, _ *tensor, p params) []aten.Arg {
		return append(learned(p, "weight", "bias", "running_mean", "running_var"),
			arg("use_input_stats", true), arg("momentum", 0.1), arg("eps", 1e-5), arg("cudnn_enabled", true))
	})
}

// layerNormChannelFirst returns the layer norm over channels that ConvNeXt brought:
//
//	u = x.mean(1, keepdim=True)
//	s = (x - u).pow(2).mean(1, keepdim=True)
//	x = (x - u) / torch.sqrt(s + eps)
//	return weight[:, None] * x + bias[:, None]
func layerNormChannelFirst(f *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
	x, weight, bias := f.Bind(in[0]), in[1], in[2]
	u := f.Bind(x.Mean(true, 1))
	s := f.Bind(x.Sub(u).Pow(2).Mean(true, 1))
	f.Set(&x, x.Sub(u).Div(s.AddScalar().Sqrt()))
	column := func(w *tensor) *tensor {
		for range x.NDim() - 2 {
			w = w.Unsqueeze(-1)
		}
		return w
	}
	return []*tensor{column(weight).Mul(x).Add(column(bias))}
}

// rmsNormByHand records LLaMA's (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)).type_as(x) *
// w.
func rmsNormByHand(x, w *tensor) *tensor {
	wide := x.To(trace.F32)
	return wide.Mul(x.To(trace.F32).Pow(2).Mean(true, -1).AddScalar().Rsqrt()).To(x.DType()).Mul(w)
}

// parameter makes a layer's parameter of a tensor.
func parameter(x *tensor) *nn.Parameter {
	return &nn.Parameter{Tensor: x, Dims: x.Shape(), DType: x.DType()}
}

// layerOf returns the linear or (4x4, stride 2, padding 1) convolution layer that has the given weight.
func layerOf(w, bias *tensor) nn.ReplaceableWeight {
	if w.NDim() == 2 {
		return &nn.Linear{Weight: parameter(w), Bias: parameter(bias)}
	}
	c := nn.NewConv(w.Size(1), w.Size(0),
		nn.ConvOptions{Kernel: []int64{4, 4}, Stride: []int64{2}, Padding: []int64{1}})
	c.Weight, c.Bias = parameter(w), parameter(bias)
	return c
}

// named returns the parameter whose name ends so.
func named(p params, names ...string) *tensor {
	for _, name := range names {
		if p[name] != nil {
			return p[name]
		}
	}
	panic("no parameter " + names[0])
}

func spectralNorm(parametrized bool) opvectors.Call {
	return func(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
		layer := layerOf(named(p, "weight_orig", "parametrizations.weight.original"), p["bias"])
		var m nn.Layer
		if parametrized {
			s := nn.NewSpectralParametrization(layer)
			s.U.Tensor, s.V.Tensor = p["u"], p["v"]
			m = s
		} else {
			s := nn.NewSpectralNorm(layer)
			s.U.Tensor, s.V.Tensor, s.Last = p["u"], p["v"], p["computed"]
			m = s
		}
		nn.NewTree(m).SetTraining(v.Eval == 0)
		return []*tensor{f.Call(m, in[0])}
	}
}

func weightNorm(parametrized bool) opvectors.Call {
	return func(f *trace.Frame, _ *vector, in []*tensor, p params) []*tensor {
		layer := layerOf(named(p, "weight_v", "parametrizations.weight.original1"), p["bias"])
		g := parameter(named(p, "weight_g", "parametrizations.weight.original0"))
		if parametrized {
			m := nn.NewWeightParametrization(layer, 0)
			m.Parametrizations.Weight.Original0 = g
			return []*tensor{f.Call(m, in[0])}
		}
		m := nn.NewWeightNorm(layer)
		m.G, m.Last = g, p["computed"]
		return []*tensor{f.Call(m, in[0])}
	}
}
