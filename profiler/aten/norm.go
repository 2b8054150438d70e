package aten

import "github.com/vprof/vprof/profiler/trace"

// norms bring activations to mean zero and variance one, or to length one.
var norms = family{
	"batch_norm": func(a *Args) *tensor {
		return a.first(0).BatchNorm(trace.BatchNormState{
			Weight: a.Tensor("weight"), Bias: a.Tensor("bias"), Mean: a.Tensor("running_mean"),
			Var:      a.Tensor("running_var"),
			Training: a.Bool("training"),
		})
	},
	"layer_norm": func(a *Args) *tensor {
		return a.first(0).LayerNorm(len(a.Ints("normalized_shape")), a.Tensor("weight"), a.Tensor("bias"))
	},
	"native_layer_norm": func(a *Args) []*tensor {
		return a.first(0).NativeLayerNorm(len(a.Ints("normalized_shape")), a.Tensor("weight"), a.Tensor("bias"))
	},
	"rms_norm": func(a *Args) *tensor {
		return a.first(0).RMSNorm(len(a.Ints("normalized_shape")), a.Tensor("weight"))
	},
	"group_norm": (*tensor).GroupNorm,
	"instance_norm": func(a *Args) *tensor {
		return a.first(0).InstanceNorm(trace.BatchNormState{
			Weight: a.Tensor("weight"), Bias: a.Tensor("bias"), Mean: a.Tensor("running_mean"),
			Var:      a.Tensor("running_var"),
			Training: a.Bool("use_input_stats"),
		})
	},
	"_weight_norm":      trace.WeightNorm,
	"native_group_norm": with((*tensor).NativeGroupNorm, "group", "weight", "bias"),
}
