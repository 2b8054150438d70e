package aten

import "github.com/vprof/vprof/profiler/trace"

// norms bring activations to mean zero and variance one, or to length one.
var norms = family{
	"batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool " +
		"training, float momentum, float eps, bool cudnn_enabled) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).BatchNorm(trace.BatchNormState{
			Weight: a.Tensor("weight"), Bias: a.Tensor("bias"), Mean: a.Tensor("running_mean"),
			Var:      a.Tensor("running_var"),
			Training: a.Bool("training"),
		})
	}),
	"layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, " +
		"bool cudnn_enable=True) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).LayerNorm(len(a.Ints("normalized_shape")), a.Tensor("weight"), a.Tensor("bias"))
	}),
	"native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> " +
		"(Tensor, Tensor, Tensor)": several(func(a *Args) []*tensor {
		return a.first(0).NativeLayerNorm(len(a.Ints("normalized_shape")), a.Tensor("weight"), a.Tensor("bias"))
	}),
	"rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).RMSNorm(len(a.Ints("normalized_shape")), a.Tensor("weight"))
		}),
	"group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool " +
		"cudnn_enabled=True) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).GroupNorm(a.Int("num_groups"), a.Tensor("weight"), a.Tensor("bias"))
	}),
	"instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool " +
		"use_input_stats, float momentum, float eps, bool cudnn_enabled) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).InstanceNorm(trace.BatchNormState{
			Weight: a.Tensor("weight"), Bias: a.Tensor("bias"), Mean: a.Tensor("running_mean"),
			Var:      a.Tensor("running_var"),
			Training: a.Bool("use_input_stats"),
		})
	}),
	"native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group, float " +
		"eps) -> (Tensor, Tensor, Tensor)": several(func(a *Args) []*tensor {
		y, mean, rstd := a.first(0).NativeGroupNorm(a.Int("group"), a.Tensor("weight"), a.Tensor("bias"))
		return []*tensor{y, mean, rstd}
	}),
	"_weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor": one(func(a *Args) *tensor {
		return trace.WeightNorm(a.Tensor("v"), a.Tensor("g"))
	}),
}
