package nn_test

import (
	"math"

	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/opvectors"
)

// twice calls an operator of two tensors with the same tensor on both sides.
func twice(target string) opvectors.Call {
	return unary(func(x *tensor) *tensor { return at(target, x, x) })
}

func pointwiseOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"abs":         operator("abs.default"),
		"exp":         operator("exp.default"),
		"exp_":        operator("exp_.default"),
		"log":         operator("log.default"),
		"log1p":       operator("log1p.default"),
		"sqrt":        operator("sqrt.default"),
		"sqrt_":       operator("sqrt_.default"),
		"rsqrt":       operator("rsqrt.default"),
		"reciprocal":  operator("reciprocal.default"),
		"square":      operator("square.default"),
		"sin":         operator("sin.default"),
		"cos":         operator("cos.default"),
		"erf":         operator("erf.default"),
		"round":       operator("round.default"),
		"neg":         operator("neg.default"),
		"add":         operator("add.Tensor"),
		"add_":        operator("add_.Tensor"),
		"add__mixed":  operator("add_.Tensor"),
		"add__self":   twice("add_.Tensor"),
		"add_alpha":   operator("add.Tensor", aten.Arg{Name: "alpha", Value: 2.0}),
		"add_mixed":   operator("add.Tensor"),
		"add_self":    twice("add.Tensor"),
		"sub":         operator("sub.Tensor"),
		"sub_":        operator("sub_.Tensor"),
		"sub_mixed":   operator("sub.Tensor"),
		"sub_self":    twice("sub.Tensor"),
		"mul":         operator("mul.Tensor"),
		"mul_":        operator("mul_.Tensor"),
		"mul__mixed":  operator("mul_.Tensor"),
		"mul__self":   twice("mul_.Tensor"),
		"mul_mixed":   operator("mul.Tensor"),
		"mul_self":    twice("mul.Tensor"),
		"div":         operator("div.Tensor"),
		"div_":        operator("div_.Tensor"),
		"div_mixed":   operator("div.Tensor"),
		"div_self":    twice("div.Tensor"),
		"lerp":        operator("lerp.Scalar", aten.Arg{Name: "weight", Value: 0.3}),
		"atan2":       operator("atan2.default"),
		"addcmul":     operator("addcmul.default"),
		"addcdiv":     operator("addcdiv.default"),
		"pow":         operator("pow.Tensor_Tensor"),
		"pow_mixed":   operator("pow.Tensor_Tensor"),
		"pow_self":    twice("pow.Tensor_Tensor"),
		"pow2":        operator("pow.Tensor_Scalar", aten.Arg{Name: "exponent", Value: 2.0}),
		"pow3":        operator("pow.Tensor_Scalar", aten.Arg{Name: "exponent", Value: 3.0}),
		"pow0.5":      operator("pow.Tensor_Scalar", aten.Arg{Name: "exponent", Value: 0.5}),
		"add_scalar":  operator("add.Tensor", number(2.5)),
		"add_scalar_": operator("add_.Tensor", number(2.5)),
		"mul_scalar":  operator("mul.Tensor", number(2.5)),
		"mul_scalar_": operator("mul_.Tensor", number(2.5)),
		"div_scalar":  operator("div.Tensor", number(2.5)),
		"div_scalar_": operator("div_.Tensor", number(2.5)),
		"rsub_scalar": operator("rsub.Scalar", number(2.5)),
		"rdiv_scalar": unary(func(x *tensor) *tensor {
			return at("mul.Tensor", at("reciprocal.default", x), number(2.5))
		}),
		"rpow_scalar": operator("pow.Scalar", arg("self", 2.5)),
		"clone":       operator("clone.default"),
		"float":       operator("to.dtype", arg("dtype", trace.F32)),
		"half":        operator("to.dtype", arg("dtype", trace.F16)),
		"to_bf16":     operator("to.dtype", arg("dtype", trace.BF16)),
		"detach_clone": unary(func(x *tensor) *tensor {
			return at("clone.default", at("detach.default", x))
		}),
		"to_cl":         operator("contiguous.default", arg("memory_format", aten.MemoryFormat("channels_last"))),
		"zero_":         operator("zero_.default"),
		"maximum":       operator("maximum.default"),
		"maximum_mixed": operator("maximum.default"),
		"maximum_self":  twice("maximum.default"),
		"minimum":       operator("minimum.default"),
		"gt":            operator("gt.Tensor"),
		"clamp": operator("clamp.default", aten.Arg{Name: "min", Value: 0.0},
			aten.Arg{Name: "max", Value: 1.0}),
		"clamp_": operator("clamp_.default", aten.Arg{Name: "min", Value: 0.0},
			aten.Arg{Name: "max", Value: 1.0}),
		"clamp_min":    operator("clamp_min.default", arg("min", 0.0)),
		"where":        operator("where.self"),
		"where_bcast":  operator("where.self"),
		"where_scalar": operator("where.ScalarOther", number(0)),
		"masked_fill":  operator("masked_fill.Scalar", arg("value", 0.0)),
		"masked_fill_": operator("masked_fill_.Scalar", arg("value", 0.0)),
		"masked_fill_inf": binary(func(x, mask *tensor) *tensor {
			return at("masked_fill.Scalar", x, positive(mask), arg("value", math.Inf(-1)))
		}),
		"masked_fill_scalar_": unary(func(x *tensor) *tensor {
			return at("masked_fill_.Scalar", x, positive(x), arg("value", 0.0))
		}),
		"mask_gt0": unary(func(x *tensor) *tensor { return at("mul.Tensor", x, positive(x)) }),
	}
}
