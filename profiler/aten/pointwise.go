package aten

import "github.com/vprof/vprof/profiler/trace"

// pointwise are operators of each element by itself.
var pointwise = family{
	"abs(Tensor self) -> Tensor":           unary((*tensor).Abs),
	"acosh(Tensor self) -> Tensor":         unary((*tensor).Acosh),
	"ceil(Tensor self) -> Tensor":          unary((*tensor).Round),
	"cos(Tensor self) -> Tensor":           unary((*tensor).Cos),
	"cosh(Tensor self) -> Tensor":          unary((*tensor).Cosh),
	"erf(Tensor self) -> Tensor":           unary((*tensor).Erf),
	"exp(Tensor self) -> Tensor":           unary((*tensor).Exp),
	"exp_(Tensor(a!) self) -> Tensor(a!)":  unary((*tensor).ExpInPlace),
	"expm1(Tensor self) -> Tensor":         unary((*tensor).Expm1),
	"floor(Tensor self) -> Tensor":         unary((*tensor).Round),
	"log(Tensor self) -> Tensor":           unary((*tensor).Log),
	"log_(Tensor(a!) self) -> Tensor(a!)":  unary((*tensor).LogInPlace),
	"log10(Tensor self) -> Tensor":         unary((*tensor).Log10),
	"log1p(Tensor self) -> Tensor":         unary((*tensor).Log1p),
	"log2(Tensor self) -> Tensor":          unary((*tensor).Log2),
	"neg(Tensor self) -> Tensor":           unary((*tensor).Neg),
	"reciprocal(Tensor self) -> Tensor":    unary((*tensor).Reciprocal),
	"round(Tensor self) -> Tensor":         unary((*tensor).Round),
	"rsqrt(Tensor self) -> Tensor":         unary((*tensor).Rsqrt),
	"sgn(Tensor self) -> Tensor":           unary((*tensor).Sgn),
	"sign(Tensor self) -> Tensor":          unary((*tensor).Sgn),
	"sin(Tensor self) -> Tensor":           unary((*tensor).Sin),
	"sinh(Tensor self) -> Tensor":          unary((*tensor).Sinh),
	"sqrt(Tensor self) -> Tensor":          unary((*tensor).Sqrt),
	"sqrt_(Tensor(a!) self) -> Tensor(a!)": unary((*tensor).SqrtInPlace),
	"square(Tensor self) -> Tensor":        unary((*tensor).Square),
	"trunc(Tensor self) -> Tensor":         unary((*tensor).Round),

	"add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor":          one(func(a *Args) *tensor { return added(a, (*tensor).Add, (*tensor).AddAlpha) }),
	"add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)": arithmetic((*tensor).AddInPlace, (*tensor).AddScalarInPlace),
	"sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor":          one(func(a *Args) *tensor { return added(a, (*tensor).Sub, (*tensor).Sub) }),
	"sub_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)": arithmetic((*tensor).SubInPlace, (*tensor).AddScalarInPlace),
	"mul.Tensor(Tensor self, Tensor other) -> Tensor":                             arithmetic((*tensor).Mul, (*tensor).MulScalar),
	"mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)":                    arithmetic((*tensor).MulInPlace, (*tensor).MulScalarInPlace),
	"div.Tensor(Tensor self, Tensor other) -> Tensor":                             arithmetic((*tensor).Div, (*tensor).DivScalar),
	"div_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)":                    arithmetic((*tensor).DivInPlace, (*tensor).DivScalarInPlace),
	"add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor":             unary((*tensor).AddScalar),
	"sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor":             unary((*tensor).AddScalar),
	"mul.Scalar(Tensor self, Scalar other) -> Tensor":                             unary((*tensor).MulScalar),
	"div.Scalar(Tensor self, Scalar other) -> Tensor":                             unary((*tensor).DivScalar),
	"rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor":            unary((*tensor).RSubScalar),

	"pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor":                         one(func(a *Args) *tensor { return a.Tensor("self").Pow(a.Float("exponent")) }),
	"pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor":                         binary((*tensor).PowTensor),
	"pow.Scalar(Scalar self, Tensor exponent) -> Tensor":                                one(func(a *Args) *tensor { return trace.ScalarPow(a.Tensor("exponent")) }),
	"lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor":                     binary((*tensor).Lerp),
	"atan2(Tensor self, Tensor other) -> Tensor":                                        binary((*tensor).Atan2),
	"addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor": one(func(a *Args) *tensor { return a.Tensor("self").AddCMul(a.Tensor("tensor1"), a.Tensor("tensor2")) }),
	"addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor": one(func(a *Args) *tensor { return a.Tensor("self").AddCDiv(a.Tensor("tensor1"), a.Tensor("tensor2")) }),

	"maximum(Tensor self, Tensor other) -> Tensor":                              binary((*tensor).Maximum),
	"minimum(Tensor self, Tensor other) -> Tensor":                              binary((*tensor).Minimum),
	"max.other(Tensor self, Tensor other) -> Tensor":                            binary((*tensor).Maximum),
	"min.other(Tensor self, Tensor other) -> Tensor":                            binary((*tensor).Minimum),
	"clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor":          one(clamp),
	"clamp_(Tensor(a!) self, Scalar? min=None, Scalar? max=None) -> Tensor(a!)": one(clampInPlace),
	"clamp_min(Tensor self, Scalar min) -> Tensor":                              unary((*tensor).ClampMin),
	"clamp_max(Tensor self, Scalar max) -> Tensor":                              unary((*tensor).ClampMin),

	"where.self(Tensor condition, Tensor self, Tensor other) -> Tensor":        one(func(a *Args) *tensor { return trace.Where(a.Tensor("condition"), a.Tensor("self"), a.Tensor("other")) }),
	"where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor": one(func(a *Args) *tensor { return trace.WhereScalar(a.Tensor("condition"), a.Tensor("self")) }),
	"where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor":  one(func(a *Args) *tensor { return trace.WhereScalar(a.Tensor("condition"), a.Tensor("other")) }),
	"masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor":     one(maskedFill),
	"masked_fill_.Scalar(Tensor(a!) self, Tensor mask, Scalar value) -> Tensor(a!)": one(func(a *Args) *tensor {
		return a.Tensor("self").MaskedFillInPlace(a.Tensor("mask"))
	}),

	"eq.Tensor(Tensor self, Tensor other) -> Tensor": binary((*tensor).Eq), "eq.Scalar(Tensor self, Scalar other) -> Tensor": unary((*tensor).EqScalar),
	"ne.Tensor(Tensor self, Tensor other) -> Tensor": binary((*tensor).Gt), "ne.Scalar(Tensor self, Scalar other) -> Tensor": unary((*tensor).GtScalar),
	"gt.Tensor(Tensor self, Tensor other) -> Tensor": binary((*tensor).Gt), "gt.Scalar(Tensor self, Scalar other) -> Tensor": unary((*tensor).GtScalar),
	"ge.Tensor(Tensor self, Tensor other) -> Tensor": binary((*tensor).Gt), "ge.Scalar(Tensor self, Scalar other) -> Tensor": unary((*tensor).GtScalar),
	"lt.Tensor(Tensor self, Tensor other) -> Tensor": binary((*tensor).Gt), "lt.Scalar(Tensor self, Scalar other) -> Tensor": unary((*tensor).GtScalar),
	"le.Tensor(Tensor self, Tensor other) -> Tensor": binary((*tensor).Gt), "le.Scalar(Tensor self, Scalar other) -> Tensor": unary((*tensor).GtScalar),
	"isnan(Tensor self) -> Tensor": unary((*tensor).IsNaN), "isinf(Tensor self) -> Tensor": unary((*tensor).IsInf),
	"__and__.Tensor(Tensor self, Tensor other) -> Tensor": binary((*tensor).And), "bitwise_and.Tensor(Tensor self, Tensor other) -> Tensor": binary((*tensor).And),
	"__or__.Tensor(Tensor self, Tensor other) -> Tensor": binary((*tensor).And), "bitwise_or.Tensor(Tensor self, Tensor other) -> Tensor": binary((*tensor).And),
	"logical_and(Tensor self, Tensor other) -> Tensor": binary((*tensor).Gt), "logical_or(Tensor self, Tensor other) -> Tensor": binary((*tensor).Gt),
	"logical_not(Tensor self) -> Tensor": unary((*tensor).GtScalar), "bitwise_not(Tensor self) -> Tensor": unary(bitwiseNot),
}

// arithmetic is the body of an operator whose second argument may be a number.
func arithmetic(with func(x, y *tensor) *tensor, number func(x *tensor) *tensor) body {
	return one(func(a *Args) *tensor {
		x, y := a.first(0), a.Tensor("other")
		if y == nil {
			return number(x)
		}
		return with(x, y)
	})
}

// added is x + alpha*y; a scale other than one is the gradient's, too.
func added(a *Args, plain, scaled func(x, y *tensor) *tensor) *tensor {
	x, y := a.first(0), a.Tensor("other")
	switch {
	case y == nil:
		return x.AddScalar()
	case a.Float("alpha") != 1:
		return scaled(x, y)
	default:
		return plain(x, y)
	}
}

func clamp(a *Args) *tensor {
	if a.IsNone("min") || a.IsNone("max") {
		return a.first(0).ClampOneSided()
	}
	return a.first(0).Clamp()
}

func clampInPlace(a *Args) *tensor {
	if a.IsNone("min") || a.IsNone("max") {
		return a.first(0).ClampMinInPlace()
	}
	return a.first(0).ClampInPlace()
}

func maskedFill(a *Args) *tensor { return a.Tensor("self").MaskedFill(a.Tensor("mask")) }

func bitwiseNot(x *tensor) *tensor { return x.And(x) }
