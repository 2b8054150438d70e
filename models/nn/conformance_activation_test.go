package nn_test

import (
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/tools/opvectors"
)

func activationOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"relu":        operator("relu.default"),
		"relu_":       operator("relu_.default"),
		"relu6":       operator("relu6.default"),
		"relu6_":      operator("relu6_.default"),
		"gelu":        operator("gelu.default"),
		"gelu_tanh":   operator("gelu.default", aten.Arg{Name: "approximate", Value: "tanh"}),
		"sigmoid":     operator("sigmoid.default"),
		"sigmoid_":    operator("sigmoid_.default"),
		"tanh":        operator("tanh.default"),
		"tanh_":       operator("tanh_.default"),
		"leaky_relu":  operator("leaky_relu.default"),
		"leaky_relu_": operator("leaky_relu_.default"),
		"elu":         operator("elu.default"),
		"elu_":        operator("elu_.default"),
		"selu":        operator("selu.default"),
		"silu":        operator("silu.default"),
		"silu_":       operator("silu_.default"),
		"mish":        operator("mish.default"),
		"mish_":       operator("mish_.default"),
		"hardsigmoid": operator("hardsigmoid.default"),
		"hardswish":   operator("hardswish.default"),
		"hardswish_":  operator("hardswish_.default"),
		"hardtanh":    operator("hardtanh.default"),
		"softplus":    operator("softplus.default"),
		"softsign":    unary(softsign),
		"tanhshrink":  unary(tanhshrink),
		"glu":         operator("glu.default", along(1)),
		"glu_last":    operator("glu.default", along(-1)),
		"prelu": operatorWith("prelu.default", func(_ *vector, _ *tensor, p params) []aten.Arg {
			return learned(p, "weight")
		}),
		"prelu1": operatorWith("prelu.default", func(_ *vector, _ *tensor, p params) []aten.Arg {
			return learned(p, "weight")
		}),
		"logsigmoid": operator("log_sigmoid.default"),
	}
}
