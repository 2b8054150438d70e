package nn_test

import (
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/aten/opvectors"
	"github.com/vprof/vprof/profiler/trace"
)

// twice calls an operator of two tensors with the same tensor on both sides.
func twice(f func(a, b *tensor) *tensor) opvectors.Call {
	return unary(func(x *tensor) *tensor { return f(x, x) })
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
		"add__self":   twice((*tensor).AddInPlace),
		"add_alpha":   operator("add.Tensor", aten.Arg{Name: "alpha", Value: 2.0}),
		"add_mixed":   operator("add.Tensor"),
		"add_self":    twice((*tensor).Add),
		"sub":         operator("sub.Tensor"),
		"sub_":        operator("sub_.Tensor"),
		"sub_mixed":   operator("sub.Tensor"),
		"sub_self":    twice((*tensor).Sub),
		"mul":         operator("mul.Tensor"),
		"mul_":        operator("mul_.Tensor"),
		"mul__mixed":  operator("mul_.Tensor"),
		"mul__self":   twice((*tensor).MulInPlace),
		"mul_mixed":   operator("mul.Tensor"),
		"mul_self":    twice((*tensor).Mul),
		"div":         operator("div.Tensor"),
		"div_":        operator("div_.Tensor"),
		"div_mixed":   operator("div.Tensor"),
		"div_self":    twice((*tensor).Div),
		"lerp":        operator("lerp.Scalar", aten.Arg{Name: "weight", Value: 0.3}),
		"atan2":       operator("atan2.default"),
		"addcmul":     operator("addcmul.default"),
		"addcdiv":     operator("addcdiv.default"),
		"pow":         operator("pow.Tensor_Tensor"),
		"pow_mixed":   operator("pow.Tensor_Tensor"),
		"pow_self":    twice((*tensor).PowTensor),
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
		"rdiv_scalar": unary((*tensor).RDivScalar),
		"rpow_scalar": unary((*tensor).RPowScalar),
		"clone":       operator("clone.default"),
		"float":       unary(func(x *tensor) *tensor { return x.To(trace.F32) }),
		"half":        unary(func(x *tensor) *tensor { return x.To(trace.F16) }),
		"to_bf16":     unary(func(x *tensor) *tensor { return x.To(trace.BF16) }),
		"detach_clone": unary(func(x *tensor) *tensor {
			return x.Detach().Clone()
		}),
		"to_cl":         unary((*tensor).ContiguousChannelsLast),
		"zero_":         operator("zero_.default"),
		"maximum":       operator("maximum.default"),
		"maximum_mixed": operator("maximum.default"),
		"maximum_self":  twice((*tensor).Maximum),
		"minimum":       operator("minimum.default"),
		"gt":            operator("gt.Tensor"),
		"clamp":         operator("clamp.default", aten.Arg{Name: "min", Value: 0.0}, aten.Arg{Name: "max", Value: 1.0}),
		"clamp_":        operator("clamp_.default", aten.Arg{Name: "min", Value: 0.0}, aten.Arg{Name: "max", Value: 1.0}),
		"clamp_min":     operator("clamp_min.default", arg("min", 0.0)),
		"where":         operator("where.self"),
		"where_bcast":   operator("where.self"),
		"where_scalar":  binary(trace.WhereScalar),
		"masked_fill":   operator("masked_fill.Scalar", arg("value", 0.0)),
		"masked_fill_":  operator("masked_fill_.Scalar", arg("value", 0.0)),
		"masked_fill_inf": binary(func(x, mask *tensor) *tensor {
			return x.MaskedFill(mask.GtScalar())
		}),
		"masked_fill_scalar_": unary(func(x *tensor) *tensor { return x.MaskedFillInPlace(x.GtScalar()) }),
		"mask_gt0":            unary(func(x *tensor) *tensor { return x.Mul(x.GtScalar()) }),
	}
}
