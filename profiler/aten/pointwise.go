package aten

import "github.com/vprof/vprof/profiler/trace"

// pointwise are operators of each element by itself.
var pointwise = family{
	"xlogy.Tensor(Tensor self, Tensor other) -> Tensor":    binary((*tensor).XLogY),
	"special_xlogy(Tensor self, Tensor other) -> Tensor":   binary((*tensor).XLogY),
	"special_xlog1py(Tensor self, Tensor other) -> Tensor": binary((*tensor).XLog1PY),
	"polar(Tensor abs, Tensor angle) -> Tensor":            binary((*tensor).Polar),

	"abs(Tensor self) -> Tensor":           unary((*tensor).Abs),
	"acosh(Tensor self) -> Tensor":         unary((*tensor).Acosh),
	"ceil(Tensor self) -> Tensor":          function("ceil"),
	"cos(Tensor self) -> Tensor":           unary((*tensor).Cos),
	"cosh(Tensor self) -> Tensor":          unary((*tensor).Cosh),
	"erf(Tensor self) -> Tensor":           unary((*tensor).Erf),
	"exp(Tensor self) -> Tensor":           unary((*tensor).Exp),
	"exp_(Tensor(a!) self) -> Tensor(a!)":  unary((*tensor).ExpInPlace),
	"expm1(Tensor self) -> Tensor":         unary((*tensor).Expm1),
	"floor(Tensor self) -> Tensor":         function("floor"),
	"log(Tensor self) -> Tensor":           unary((*tensor).Log),
	"log_(Tensor(a!) self) -> Tensor(a!)":  unary((*tensor).LogInPlace),
	"log10(Tensor self) -> Tensor":         unary((*tensor).Log10),
	"log1p(Tensor self) -> Tensor":         unary((*tensor).Log1p),
	"log2(Tensor self) -> Tensor":          unary((*tensor).Log2),
	"neg(Tensor self) -> Tensor":           function("neg"),
	"reciprocal(Tensor self) -> Tensor":    unary((*tensor).Reciprocal),
	"round(Tensor self) -> Tensor":         function("round"),
	"rsqrt(Tensor self) -> Tensor":         unary((*tensor).Rsqrt),
	"sgn(Tensor self) -> Tensor":           unary((*tensor).Sgn),
	"sign(Tensor self) -> Tensor":          function("sign"),
	"sin(Tensor self) -> Tensor":           unary((*tensor).Sin),
	"sinh(Tensor self) -> Tensor":          unary((*tensor).Sinh),
	"sqrt(Tensor self) -> Tensor":          unary((*tensor).Sqrt),
	"sqrt_(Tensor(a!) self) -> Tensor(a!)": unary((*tensor).SqrtInPlace),
	"square(Tensor self) -> Tensor":        unary((*tensor).Square),
	"trunc(Tensor self) -> Tensor":         function("trunc"),

	"acos(Tensor self) -> Tensor": function("acos"), "asin(Tensor self) -> Tensor": function("asin"), "atan(Tensor self) -> Tensor": function("atan"), "tan(Tensor self) -> Tensor": function("tan"),
	"asinh(Tensor self) -> Tensor": function("asinh"), "atanh(Tensor self) -> Tensor": function("atanh"), "exp2(Tensor self) -> Tensor": function("exp2"),
	"erfc(Tensor self) -> Tensor": function("erfc"), "erfinv(Tensor self) -> Tensor": function("erfinv"), "frac(Tensor self) -> Tensor": function("frac"),
	"logit(Tensor self, float? eps=None) -> Tensor": function("logit"), "nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor": function("nan_to_num"), "lgamma(Tensor self) -> Tensor": function("lgamma"),
	"digamma(Tensor self) -> Tensor": function("digamma"), "i0(Tensor self) -> Tensor": function("i0"), "sinc(Tensor self) -> Tensor": function("sinc"),
	"deg2rad(Tensor self) -> Tensor": function("deg2rad"), "rad2deg(Tensor self) -> Tensor": function("rad2deg"),
	"special_expit(Tensor self) -> Tensor": function("sigmoid"), "special_erf(Tensor self) -> Tensor": function("erf"), "special_log1p(Tensor self) -> Tensor": function("log1p"),
	"absolute(Tensor self) -> Tensor": function("abs"), "negative(Tensor self) -> Tensor": function("neg"), "fix(Tensor self) -> Tensor": function("trunc"),
	"abs_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("abs"), "ceil_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("ceil"), "floor_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("floor"),
	"neg_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("neg"), "rsqrt_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("rsqrt"),
	"reciprocal_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("reciprocal"), "round_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("round"), "trunc_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("trunc"),
	"sin_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("sin"), "cos_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("cos"), "erf_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("erf"),
	"logit_(Tensor(a!) self, float? eps=None) -> Tensor(a!)": functionInPlace("logit"), "nan_to_num_(Tensor(a!) self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor(a!)": functionInPlace("nan_to_num"), "log1p_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("log1p"),
	"expm1_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("expm1"), "square_(Tensor(a!) self) -> Tensor(a!)": unary((*tensor).SquareInPlace), "pow_.Scalar(Tensor(a!) self, Scalar exponent) -> Tensor(a!)": one(func(a *Args) *tensor { return a.first(0).PowInPlace(a.Float("exponent")) }),
	"positive(Tensor(a) self) -> Tensor(a)": unary(itself), "conj(Tensor(a) self) -> Tensor(a)": unary(itself), "resolve_conj(Tensor(a) self) -> Tensor(a)": unary(itself), "resolve_neg(Tensor(a) self) -> Tensor(a)": unary(itself),
	"isfinite(Tensor self) -> Tensor": unary((*tensor).IsFinite), "isposinf(Tensor self) -> Tensor": unary((*tensor).EqScalar), "isneginf(Tensor self) -> Tensor": unary((*tensor).EqScalar), "signbit(Tensor self) -> Tensor": unary((*tensor).GtScalar),

	"add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor":          one(func(a *Args) *tensor { return added(a, (*tensor).Add, (*tensor).AddAlpha) }),
	"add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)": arithmetic((*tensor).AddInPlace, (*tensor).AddScalarInPlace),
	"sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor":          one(func(a *Args) *tensor { return added(a, (*tensor).Sub, (*tensor).SubAlpha) }),
	"sub_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)": arithmetic((*tensor).SubInPlace, (*tensor).AddScalarInPlace),
	"mul.Tensor(Tensor self, Tensor other) -> Tensor":                             numberOrTensor((*tensor).MulNumber, (*tensor).Mul),
	"mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)":                    arithmetic((*tensor).MulInPlace, (*tensor).MulScalarInPlace),
	"div.Tensor(Tensor self, Tensor other) -> Tensor":                             arithmetic((*tensor).Div, (*tensor).DivScalar),
	"div_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)":                    arithmetic((*tensor).DivInPlace, (*tensor).DivScalarInPlace),
	"add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor":             number((*tensor).AddNumber),
	"sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor":             number((*tensor).AddNumber),
	"mul.Scalar(Tensor self, Scalar other) -> Tensor":                             number((*tensor).MulNumber),
	"div.Scalar(Tensor self, Scalar other) -> Tensor":                             unary((*tensor).DivScalar),
	"rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor":         binary(func(x, y *tensor) *tensor { return y.Sub(x) }),
	"add_.Scalar(Tensor(a!) self, Scalar other, Scalar alpha=1) -> Tensor(a!)":    unary((*tensor).AddScalarInPlace), "sub_.Scalar(Tensor(a!) self, Scalar other, Scalar alpha=1) -> Tensor(a!)": unary((*tensor).AddScalarInPlace),
	"mul_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)": unary((*tensor).MulScalarInPlace), "div_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)": unary((*tensor).DivScalarInPlace),
	"remainder.Scalar(Tensor self, Scalar other) -> Tensor": number((*tensor).Remainder), "fmod.Scalar(Tensor self, Scalar other) -> Tensor": number((*tensor).Remainder),
	"remainder.Tensor(Tensor self, Tensor other) -> Tensor": numberOrTensor((*tensor).Remainder, (*tensor).RemainderOf), "fmod.Tensor(Tensor self, Tensor other) -> Tensor": numberOrTensor((*tensor).Remainder, (*tensor).RemainderOf),
	"floor_divide(Tensor self, Tensor other) -> Tensor": one(floorDivide), "floor_divide.Scalar(Tensor self, Scalar other) -> Tensor": number((*tensor).FloorDivide),
	"div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor": one(divRounded), "div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor": one(divRounded), "div_.Tensor_mode(Tensor(a!) self, Tensor other, *, str? rounding_mode) -> Tensor(a!)": one(divRoundedInPlace),
	"rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor": number((*tensor).RSubNumber),

	"pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor": one(func(a *Args) *tensor { return a.Tensor("self").Pow(a.Float("exponent")) }),
	"pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor": binary((*tensor).PowTensor),
	"pow.Scalar(Scalar self, Tensor exponent) -> Tensor":        one(func(a *Args) *tensor { return a.Tensor("exponent").NumberPow(kindOf(a.value("self"))) }),
	"divide.Tensor(Tensor self, Tensor other) -> Tensor":        arithmetic((*tensor).Div, (*tensor).DivScalar), "true_divide.Tensor(Tensor self, Tensor other) -> Tensor": arithmetic((*tensor).Div, (*tensor).DivScalar),
	"divide.Scalar(Tensor self, Scalar other) -> Tensor": unary((*tensor).DivScalar), "true_divide.Scalar(Tensor self, Scalar other) -> Tensor": unary((*tensor).DivScalar),
	"multiply.Tensor(Tensor self, Tensor other) -> Tensor": numberOrTensor((*tensor).MulNumber, (*tensor).Mul), "multiply.Scalar(Tensor self, Scalar other) -> Tensor": number((*tensor).MulNumber),
	"subtract.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor": one(func(a *Args) *tensor { return added(a, (*tensor).Sub, (*tensor).SubAlpha) }), "subtract.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor": number((*tensor).AddNumber),
	"arccos(Tensor self) -> Tensor": function("acos"), "arcsin(Tensor self) -> Tensor": function("asin"), "arctan(Tensor self) -> Tensor": function("atan"),
	"arccosh(Tensor self) -> Tensor": function("acosh"), "arcsinh(Tensor self) -> Tensor": function("asinh"), "arctanh(Tensor self) -> Tensor": function("atanh"), "arctan2(Tensor self, Tensor other) -> Tensor": binary((*tensor).Atan2),
	"asin_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("asin"), "acos_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("acos"), "atan_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("atan"), "tan_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("tan"),
	"exp2_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("exp2"), "log2_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("log2"), "log10_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("log10"), "sign_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("sign"),
	"absolute_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("abs"), "negative_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("neg"), "clip_(Tensor(a!) self, Scalar? min=None, Scalar? max=None) -> Tensor(a!)": one(clampInPlace),
	"sinh_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("sinh"), "cosh_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("cosh"), "erfc_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("erfc"), "erfinv_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("erfinv"),
	"fmax(Tensor self, Tensor other) -> Tensor": binary((*tensor).FMax), "fmin(Tensor self, Tensor other) -> Tensor": binary((*tensor).FMax),
	"copysign.Tensor(Tensor self, Tensor other) -> Tensor":                   binary((*tensor).CopySign),
	"lerp_.Scalar(Tensor(a!) self, Tensor end, Scalar weight) -> Tensor(a!)": binary((*tensor).LerpInPlace),
	"addcmul_(Tensor(a!) self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor(a!)": one(func(a *Args) *tensor {
		return a.Tensor("self").AddCMulInPlace(a.Tensor("tensor1"), a.Tensor("tensor2"))
	}),
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

	"where.self(Tensor condition, Tensor self, Tensor other) -> Tensor": one(func(a *Args) *tensor { return trace.Where(a.Tensor("condition"), a.Tensor("self"), a.Tensor("other")) }),
	"where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor": one(func(a *Args) *tensor {
		return trace.WhereNumber(a.Tensor("condition"), a.Tensor("self"), kindOf(a.value("other")))
	}),
	"where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor": one(func(a *Args) *tensor {
		return trace.WhereNumber(a.Tensor("condition"), a.Tensor("other"), kindOf(a.value("self")))
	}),
	"masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor": one(maskedFill),
	"masked_fill_.Scalar(Tensor(a!) self, Tensor mask, Scalar value) -> Tensor(a!)": one(func(a *Args) *tensor {
		return a.Tensor("self").MaskedFillInPlace(a.Tensor("mask"))
	}),

	"where.Scalar(Tensor condition, Scalar self, Scalar other) -> Tensor": one(func(a *Args) *tensor {
		d := trace.F32
		if kindOf(a.value("self")) != trace.RealNumber && kindOf(a.value("other")) != trace.RealNumber {
			d = trace.I64
		}
		return trace.WhereNumbers(a.Tensor("condition"), d)
	}),
	"masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor":          one(func(a *Args) *tensor { return a.first(0).MaskedFillWith(a.Tensor("mask"), a.Tensor("value")) }),
	"masked_fill_.Tensor(Tensor(a!) self, Tensor mask, Tensor value) -> Tensor(a!)": one(func(a *Args) *tensor { return a.first(0).MaskedFillInPlace(a.Tensor("mask")) }),
	"fill.Scalar(Tensor self, Scalar value) -> Tensor":                              unary(func(x *tensor) *tensor { return x.Filled("fill") }),
	"fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)":                     unary(func(x *tensor) *tensor { return x.FillInPlace("fill_") }),
	"fill_.Tensor(Tensor(a!) self, Tensor value) -> Tensor(a!)":                     unary(func(x *tensor) *tensor { return x.FillInPlace("fill_") }),
	"lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor":                 one(func(a *Args) *tensor { return a.first(0).LerpBy(a.Tensor("end"), a.Tensor("weight")) }),
	"hypot(Tensor self, Tensor other) -> Tensor":                                    binary((*tensor).Hypot), "logaddexp(Tensor self, Tensor other) -> Tensor": binary((*tensor).LogAddExp), "logaddexp2(Tensor self, Tensor other) -> Tensor": binary((*tensor).LogAddExp),
	"clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor": one(func(a *Args) *tensor { return a.first(0).ClampBetween(a.Tensor("min"), a.Tensor("max")) }),
	"clamp_min.Tensor(Tensor self, Tensor min) -> Tensor":                     binary((*tensor).ClampBy), "clamp_max.Tensor(Tensor self, Tensor max) -> Tensor": binary((*tensor).ClampBy),
	"clamp_min_(Tensor(a!) self, Scalar min) -> Tensor(a!)": unary((*tensor).ClampMinInPlace), "clamp_max_(Tensor(a!) self, Scalar max) -> Tensor(a!)": unary((*tensor).ClampMinInPlace),
	"clip(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor":                                                     one(clamp),
	"isin.Tensor_Scalar(Tensor elements, Scalar test_element, *, bool assume_unique=False, bool invert=False) -> Tensor":  unary(func(x *tensor) *tensor { return x.GtScalar() }),
	"isin.Tensor_Tensor(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> Tensor": one(func(a *Args) *tensor { return a.Tensor("elements").IsIn(a.Tensor("test_elements")) }),
	"isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor":              binary((*tensor).IsClose),
	"isnan(Tensor self) -> Tensor": unary((*tensor).IsNaN), "isinf(Tensor self) -> Tensor": unary((*tensor).IsInf),
	"logical_not(Tensor self) -> Tensor": unary((*tensor).GtScalar), "bitwise_not(Tensor self) -> Tensor": unary(bitwiseNot),
	"__and__.Tensor(Tensor self, Tensor other) -> Tensor": bitwise, "__or__.Tensor(Tensor self, Tensor other) -> Tensor": bitwise, "__xor__.Tensor(Tensor self, Tensor other) -> Tensor": bitwise,
	"__and__.Scalar(Tensor self, Scalar other) -> Tensor": bitwise, "__or__.Scalar(Tensor self, Scalar other) -> Tensor": bitwise, "__xor__.Scalar(Tensor self, Scalar other) -> Tensor": bitwise,
	"bitwise_and.Tensor(Tensor self, Tensor other) -> Tensor": bitwise, "bitwise_or.Tensor(Tensor self, Tensor other) -> Tensor": bitwise, "bitwise_xor.Tensor(Tensor self, Tensor other) -> Tensor": bitwise,
	"bitwise_and.Scalar(Tensor self, Scalar other) -> Tensor": bitwise, "bitwise_or.Scalar(Tensor self, Scalar other) -> Tensor": bitwise, "bitwise_xor.Scalar(Tensor self, Scalar other) -> Tensor": bitwise,
	"bitwise_left_shift.Tensor_Scalar(Tensor self, Scalar other) -> Tensor": bitwise, "bitwise_right_shift.Tensor_Scalar(Tensor self, Scalar other) -> Tensor": bitwise,
	"__lshift__.Scalar(Tensor self, Scalar other) -> Tensor": bitwise, "__rshift__.Scalar(Tensor self, Scalar other) -> Tensor": bitwise,
	"bitwise_and_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)": overwritten, "bitwise_or_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)": overwritten, "bitwise_xor_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)": overwritten,
	"logical_and_(Tensor(a!) self, Tensor other) -> Tensor(a!)": overwritten, "logical_or_(Tensor(a!) self, Tensor other) -> Tensor(a!)": overwritten, "logical_xor_(Tensor(a!) self, Tensor other) -> Tensor(a!)": overwritten, "logical_not_(Tensor(a!) self) -> Tensor(a!)": overwritten,
	"__iand__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)": overwritten, "__ior__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)": overwritten, "bitwise_not_(Tensor(a!) self) -> Tensor(a!)": overwritten,
	"logical_and(Tensor self, Tensor other) -> Tensor": comparison, "logical_or(Tensor self, Tensor other) -> Tensor": comparison, "logical_xor(Tensor self, Tensor other) -> Tensor": comparison,
	"eq.Tensor(Tensor self, Tensor other) -> Tensor": comparison, "eq.Scalar(Tensor self, Scalar other) -> Tensor": comparison, "ne.Tensor(Tensor self, Tensor other) -> Tensor": comparison, "ne.Scalar(Tensor self, Scalar other) -> Tensor": comparison,
	"gt.Tensor(Tensor self, Tensor other) -> Tensor": comparison, "gt.Scalar(Tensor self, Scalar other) -> Tensor": comparison, "ge.Tensor(Tensor self, Tensor other) -> Tensor": comparison, "ge.Scalar(Tensor self, Scalar other) -> Tensor": comparison,
	"lt.Tensor(Tensor self, Tensor other) -> Tensor": comparison, "lt.Scalar(Tensor self, Scalar other) -> Tensor": comparison, "le.Tensor(Tensor self, Tensor other) -> Tensor": comparison, "le.Scalar(Tensor self, Scalar other) -> Tensor": comparison,
	"greater.Tensor(Tensor self, Tensor other) -> Tensor": comparison, "greater.Scalar(Tensor self, Scalar other) -> Tensor": comparison, "less.Tensor(Tensor self, Tensor other) -> Tensor": comparison, "less.Scalar(Tensor self, Scalar other) -> Tensor": comparison,
	"greater_equal.Tensor(Tensor self, Tensor other) -> Tensor": comparison, "greater_equal.Scalar(Tensor self, Scalar other) -> Tensor": comparison, "less_equal.Tensor(Tensor self, Tensor other) -> Tensor": comparison, "less_equal.Scalar(Tensor self, Scalar other) -> Tensor": comparison,
	"not_equal.Tensor(Tensor self, Tensor other) -> Tensor": comparison, "not_equal.Scalar(Tensor self, Scalar other) -> Tensor": comparison,
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
		return x.AddNumber(kindOf(a.value("other")))
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

// itself is an operator that has nothing to do for real tensors.
func itself(x *tensor) *tensor { return x }

func function(name string) body {
	return unary(func(x *tensor) *tensor { return x.Function(name) })
}

func functionInPlace(name string) body {
	return unary(func(x *tensor) *tensor { return x.FunctionInPlace(name) })
}

// kindOf is the kind of a number, which lifts the type of a result.
func kindOf(v Value) trace.Number {
	switch v.(type) {
	case bool:
		return trace.BoolNumber
	case int64:
		return trace.IntNumber
	default:
		return trace.RealNumber
	}
}

// number is the body of an operator of a tensor and a number.
func number(f func(x *tensor, n trace.Number) *tensor) body {
	return one(func(a *Args) *tensor { return f(a.first(0), kindOf(a.values[1])) })
}

// numberOrTensor is the body of an operator whose argument "other" is a number or a
// tensor.
func numberOrTensor(with func(x *tensor, n trace.Number) *tensor, of func(x, y *tensor) *tensor) body {
	return one(func(a *Args) *tensor {
		if y := a.Tensor("other"); y != nil {
			return of(a.first(0), y)
		}
		return with(a.first(0), kindOf(a.value("other")))
	})
}

func floorDivide(a *Args) *tensor {
	if y := a.Tensor("other"); y != nil {
		return a.first(0).FloorDivideOf(y)
	}
	return a.first(0).FloorDivide(kindOf(a.value("other")))
}

// divRounded is a true division unless it is told how to round.
func divRounded(a *Args) *tensor {
	x, y := a.first(0), a.Tensor("other")
	switch rounded := !a.IsNone("rounding_mode"); {
	case rounded && y != nil:
		return x.DivRoundedOf(y)
	case rounded:
		return x.DivRounded(kindOf(a.value("other")))
	case y != nil:
		return x.Div(y)
	default:
		return x.DivScalar()
	}
}

func divRoundedInPlace(a *Args) *tensor {
	if y := a.Tensor("other"); y != nil {
		return a.first(0).DivInPlace(y)
	}
	return a.first(0).DivScalarInPlace()
}

// comparison is the body of one with a tensor or a number.
var comparison = arithmetic((*tensor).Gt, (*tensor).GtScalar)

// bitwise is the body of an operator on bits, whose result has the type of its input.
var bitwise = arithmetic((*tensor).And, bitwiseNot)

// overwritten is the body of an operator on bits in place.
var overwritten = unary((*tensor).Overwrite)
