package nn_test

import (
	"github.com/vprof/vprof/profiler/aten/opvectors"
	"github.com/vprof/vprof/profiler/trace"
)

// twice calls an operator of two tensors with the same tensor on both sides.
func twice(f func(a, b *tensor) *tensor) opvectors.Call {
	return unary(func(x *tensor) *tensor { return f(x, x) })
}

func pointwiseOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"abs":         unary((*tensor).Abs),
		"exp":         unary((*tensor).Exp),
		"exp_":        unary((*tensor).ExpInPlace),
		"log":         unary((*tensor).Log),
		"log1p":       unary((*tensor).Log1p),
		"sqrt":        unary((*tensor).Sqrt),
		"sqrt_":       unary((*tensor).SqrtInPlace),
		"rsqrt":       unary((*tensor).Rsqrt),
		"reciprocal":  unary((*tensor).Reciprocal),
		"square":      unary((*tensor).Square),
		"sin":         unary((*tensor).Sin),
		"cos":         unary((*tensor).Cos),
		"erf":         unary((*tensor).Erf),
		"round":       unary((*tensor).Round),
		"neg":         unary((*tensor).Neg),
		"add":         binary((*tensor).Add),
		"add_":        binary((*tensor).AddInPlace),
		"add__mixed":  binary((*tensor).AddInPlace),
		"add__self":   twice((*tensor).AddInPlace),
		"add_alpha":   binary((*tensor).AddAlpha),
		"add_mixed":   binary((*tensor).Add),
		"add_self":    twice((*tensor).Add),
		"sub":         binary((*tensor).Sub),
		"sub_":        binary((*tensor).SubInPlace),
		"sub_mixed":   binary((*tensor).Sub),
		"sub_self":    twice((*tensor).Sub),
		"mul":         binary((*tensor).Mul),
		"mul_":        binary((*tensor).MulInPlace),
		"mul__mixed":  binary((*tensor).MulInPlace),
		"mul__self":   twice((*tensor).MulInPlace),
		"mul_mixed":   binary((*tensor).Mul),
		"mul_self":    twice((*tensor).Mul),
		"div":         binary((*tensor).Div),
		"div_":        binary((*tensor).DivInPlace),
		"div_mixed":   binary((*tensor).Div),
		"div_self":    twice((*tensor).Div),
		"lerp":        binary((*tensor).Lerp),
		"atan2":       binary((*tensor).Atan2),
		"addcmul":     one(func(_ *vector, in []*tensor, _ params) *tensor { return in[0].AddCMul(in[1], in[2]) }),
		"addcdiv":     one(func(_ *vector, in []*tensor, _ params) *tensor { return in[0].AddCDiv(in[1], in[2]) }),
		"pow":         binary((*tensor).PowTensor),
		"pow_mixed":   binary((*tensor).PowTensor),
		"pow_self":    twice((*tensor).PowTensor),
		"pow2":        unary(func(x *tensor) *tensor { return x.Pow(2) }),
		"pow3":        unary(func(x *tensor) *tensor { return x.Pow(3) }),
		"pow0.5":      unary(func(x *tensor) *tensor { return x.Pow(0.5) }),
		"add_scalar":  unary((*tensor).AddScalar),
		"add_scalar_": unary((*tensor).AddScalarInPlace),
		"mul_scalar":  unary((*tensor).MulScalar),
		"mul_scalar_": unary((*tensor).MulScalarInPlace),
		"div_scalar":  unary((*tensor).DivScalar),
		"div_scalar_": unary((*tensor).DivScalarInPlace),
		"rsub_scalar": unary((*tensor).RSubScalar),
		"rdiv_scalar": unary((*tensor).RDivScalar),
		"rpow_scalar": unary((*tensor).RPowScalar),
		"clone":       unary((*tensor).Clone),
		"float":       unary(func(x *tensor) *tensor { return x.To(trace.F32) }),
		"half":        unary(func(x *tensor) *tensor { return x.To(trace.F16) }),
		"to_bf16":     unary(func(x *tensor) *tensor { return x.To(trace.BF16) }),
		"detach_clone": unary(func(x *tensor) *tensor {
			return x.Detach().Clone()
		}),
		"to_cl":         unary((*tensor).ContiguousChannelsLast),
		"zero_":         unary((*tensor).ZeroInPlace),
		"maximum":       binary((*tensor).Maximum),
		"maximum_mixed": binary((*tensor).Maximum),
		"maximum_self":  twice((*tensor).Maximum),
		"minimum":       binary((*tensor).Minimum),
		"gt":            binary((*tensor).Gt),
		"clamp":         unary((*tensor).Clamp),
		"clamp_":        unary((*tensor).ClampInPlace),
		"clamp_min":     unary((*tensor).ClampOneSided),
		"where":         one(whereCall),
		"where_bcast":   one(whereCall),
		"where_scalar":  binary(trace.WhereScalar),
		"masked_fill":   binary((*tensor).MaskedFill),
		"masked_fill_":  binary((*tensor).MaskedFillInPlace),
		"masked_fill_inf": binary(func(x, mask *tensor) *tensor {
			return x.MaskedFill(mask.GtScalar())
		}),
		"masked_fill_scalar_": unary(func(x *tensor) *tensor { return x.MaskedFillInPlace(x.GtScalar()) }),
		"mask_gt0":            unary(func(x *tensor) *tensor { return x.Mul(x.GtScalar()) }),
	}
}

func whereCall(_ *vector, in []*tensor, _ params) *tensor { return trace.Where(in[0], in[1], in[2]) }
