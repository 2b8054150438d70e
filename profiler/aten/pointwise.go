package aten

import "github.com/vprof/vprof/profiler/trace"

// pointwiseOperators are the elementwise operators.
var pointwiseOperators = operatorFamily{
	"polar":                                  (*tensor).Polar,
	"square":                                 (*tensor).Square,
	"square_":                                (*tensor).SquareInPlace,
	"pow_.Scalar":                            (*tensor).PowInPlace,
	"positive conj resolve_conj resolve_neg": identity,
	"isfinite":                               (*tensor).IsFinite,
	"isposinf isneginf":                      (*tensor).EqScalar,
	"signbit isin.Tensor_Scalar logical_not": (*tensor).GtScalar,
	"add.Tensor": func(a *Args) *tensor {
		return addScaled(a, (*tensor).Add, (*tensor).AddAlpha)
	},
	"sub.Tensor": func(a *Args) *tensor {
		return addScaled(a, (*tensor).Sub, (*tensor).SubAlpha)
	},
	"subtract.Tensor": func(a *Args) *tensor {
		return addScaled(a, (*tensor).Sub, (*tensor).SubAlpha)
	},
	"rsub.Tensor":                     func(x, y *tensor) *tensor { return y.Sub(x) },
	"floor_divide":                    floorDivide,
	"div.Tensor_mode div.Scalar_mode": divRounded,
	"div_.Tensor_mode":                divRoundedInPlace,
	"pow.Tensor_Scalar":               (*tensor).Pow,
	"arctan2 atan2":                   (*tensor).Atan2,
	"clip_ clamp_":                    clampInPlace,
	"copysign.Tensor":                 (*tensor).CopySign,
	"clamp clip":                      clamp,
	"where.self":                      trace.Where,
	"masked_fill_.Scalar masked_fill_.Tensor": (*tensor).MaskedFillInPlace,
	"where.Scalar": func(a *Args) *tensor {
		d := trace.F32
		if kindOf(a.value("self")) != trace.RealNumber && kindOf(a.value("other")) != trace.RealNumber {
			d = trace.I64
		}
		return trace.WhereNumbers(a.Tensor("condition"), d)
	},
	"masked_fill.Tensor":                (*tensor).MaskedFillWith,
	"fill.Scalar":                       func(x *tensor) *tensor { return x.Filled("fill") },
	"fill_.Scalar fill_.Tensor":         func(x *tensor) *tensor { return x.FillInPlace("fill_") },
	"clamp.Tensor":                      (*tensor).ClampBetween,
	"clamp_min.Tensor clamp_max.Tensor": (*tensor).ClampBy,
	"isin.Tensor_Tensor":                (*tensor).IsIn,
	"isclose":                           (*tensor).IsClose,
	"isnan":                             (*tensor).IsNaN,
	"isinf":                             (*tensor).IsInf,
	"bitwise_not":                       bitwiseNot,
	"bitwise_and_.Tensor bitwise_or_.Tensor bitwise_xor_.Tensor":                              (*tensor).Overwrite,
	"logical_and_ logical_or_":                                                                (*tensor).Overwrite,
	"logical_xor_ logical_not_ __iand__.Tensor __ior__.Tensor bitwise_not_":                   overwriteInPlace,
	"logical_and logical_or logical_xor":                                                      comparison,
	"eq.Tensor ne.Tensor gt.Tensor ge.Tensor lt.Tensor le.Tensor":                             comparison,
	"eq.Scalar ne.Scalar gt.Scalar ge.Scalar lt.Scalar le.Scalar":                             comparison,
	"not_equal.Tensor greater.Tensor greater_equal.Tensor less.Tensor less_equal.Tensor":      comparison,
	"not_equal.Scalar greater.Scalar greater_equal.Scalar less.Scalar less_equal.Scalar":      comparison,
	"__and__.Tensor __or__.Tensor __xor__.Tensor __and__.Scalar __or__.Scalar __xor__.Scalar": bitwise,
	"bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor":                                 bitwise,
	"bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar":                                 bitwise,
	"__lshift__.Scalar __rshift__.Scalar":                                                     bitwise,
	"bitwise_left_shift.Tensor_Scalar bitwise_right_shift.Tensor_Scalar":                      bitwise,
	"floor_divide.Scalar": (*tensor).FloorDivide,
	"pow.Scalar":          withTrailingArgs((*tensor).NumberPow, "exponent", "self"),
	"where.ScalarOther":   trace.WhereNumber,
	"where.ScalarSelf":    withTrailingArgs(trace.WhereNumber, "other", "self"),
	"masked_fill.Scalar":  (*tensor).MaskedFill,
}

// arithmetic returns the body of a binary operator whose second argument may be a number.
func arithmetic(tensors func(x, y *tensor) *tensor, number func(x *tensor) *tensor) func(a *Args) *tensor {
	return func(a *Args) *tensor {
		x, y := a.first(0), a.Tensor("other")
		if y == nil {
			return number(x)
		}
		return tensors(x, y)
	}
}

// addScaled records x + alpha*y. An alpha other than one also scales the gradient. x or y may be a number.
func addScaled(a *Args, plain, scaled func(x, y *tensor) *tensor) *tensor {
	y := a.Tensor("other")
	if n := a.values[0]; y != nil && isNumber(n) { // torch.add(0, y)
		return y.AddNumber(kindOf(n))
	}
	x := a.first(0)
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

func bitwiseNot(x *tensor) *tensor { return x.And(x) }

// identity returns an operator that has no effect on real tensors.
func identity(x *tensor) *tensor { return x }

func unaryFunction(name string) func(x *tensor) *tensor {
	return func(x *tensor) *tensor { return x.Unary(name) }
}

// kindOf returns the kind of a number, by which the type of the result may be promoted.
func kindOf(v Value) trace.Number {
	switch v.(type) {
	case bool:
		return trace.BoolNumber
	case int64:
		return trace.IntNumber
	case complex128:
		return trace.ComplexNumber
	default:
		return trace.RealNumber
	}
}

func floorDivide(a *Args) *tensor {
	if y := a.Tensor("other"); y != nil {
		return a.first(0).FloorDivideOf(y)
	}
	return a.first(0).FloorDivide(kindOf(a.value("other")))
}

// divRounded records torch.div: a true division unless rounding_mode is set.
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

// comparison is the body of a comparison operator with a tensor or a number.
var comparison = arithmetic((*tensor).Gt, (*tensor).GtScalar)

// bitwise is the body of a bitwise operator, whose result has the type of its input.
var bitwise = arithmetic((*tensor).And, bitwiseNot)
