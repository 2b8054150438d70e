package aten

import "github.com/vprof/vprof/profiler/trace"

// pointwise are operators of each element by itself.
var pointwise = family{
	"polar(Tensor abs, Tensor angle) -> Tensor": binary((*tensor).Polar),
	"square(Tensor self) -> Tensor":             unary((*tensor).Square),
	"square_(Tensor(a!) self) -> Tensor(a!)":    unary((*tensor).SquareInPlace),
	"pow_.Scalar(Tensor(a!) self, Scalar exponent) -> Tensor(a!)": one(func(a *Args) *tensor {
		return a.first(0).PowInPlace(a.Float("exponent"))
	}),
	"positive(Tensor(a) self) -> Tensor(a)":     unary(itself),
	"conj(Tensor(a) self) -> Tensor(a)":         unary(itself),
	"resolve_conj(Tensor(a) self) -> Tensor(a)": unary(itself),
	"resolve_neg(Tensor(a) self) -> Tensor(a)":  unary(itself),
	"isfinite(Tensor self) -> Tensor":           unary((*tensor).IsFinite),
	"isposinf(Tensor self) -> Tensor":           unary((*tensor).EqScalar),
	"isneginf(Tensor self) -> Tensor":           unary((*tensor).EqScalar),
	"signbit(Tensor self) -> Tensor":            unary((*tensor).GtScalar),
	"add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor": one(func(a *Args) *tensor {
		return added(a, (*tensor).Add, (*tensor).AddAlpha)
	}),
	"sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor": one(func(a *Args) *tensor {
		return added(a, (*tensor).Sub, (*tensor).SubAlpha)
	}),
	"rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor": binary(func(x, y *tensor) *tensor {
		return y.Sub(x)
	}),
	"floor_divide(Tensor self, Tensor other) -> Tensor":                                    one(floorDivide),
	"floor_divide.Scalar(Tensor self, Scalar other) -> Tensor":                             number((*tensor).FloorDivide),
	"div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor":          one(divRounded),
	"div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor":          one(divRounded),
	"div_.Tensor_mode(Tensor(a!) self, Tensor other, *, str? rounding_mode) -> Tensor(a!)": one(divRoundedInPlace),
	"pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor": one(func(a *Args) *tensor {
		return a.Tensor("self").Pow(a.Float("exponent"))
	}),
	"pow.Scalar(Scalar self, Tensor exponent) -> Tensor": one(func(a *Args) *tensor {
		return a.Tensor("exponent").NumberPow(kindOf(a.value("self")))
	}),
	"subtract.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor": one(func(a *Args) *tensor {
		return added(a, (*tensor).Sub, (*tensor).SubAlpha)
	}),
	"arctan2(Tensor self, Tensor other) -> Tensor":                              binary((*tensor).Atan2),
	"clip_(Tensor(a!) self, Scalar? min=None, Scalar? max=None) -> Tensor(a!)":  one(clampInPlace),
	"copysign.Tensor(Tensor self, Tensor other) -> Tensor":                      binary((*tensor).CopySign),
	"atan2(Tensor self, Tensor other) -> Tensor":                                binary((*tensor).Atan2),
	"clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor":          one(clamp),
	"clamp_(Tensor(a!) self, Scalar? min=None, Scalar? max=None) -> Tensor(a!)": one(clampInPlace),
	"where.self(Tensor condition, Tensor self, Tensor other) -> Tensor": one(func(a *Args) *tensor {
		return trace.Where(a.Tensor("condition"), a.Tensor("self"), a.Tensor("other"))
	}),
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
	"masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).MaskedFillWith(a.Tensor("mask"), a.Tensor("value"))
	}),
	"masked_fill_.Tensor(Tensor(a!) self, Tensor mask, Tensor value) -> Tensor(a!)": one(func(a *Args) *tensor {
		return a.first(0).MaskedFillInPlace(a.Tensor("mask"))
	}),
	"fill.Scalar(Tensor self, Scalar value) -> Tensor": unary(func(x *tensor) *tensor {
		return x.Filled("fill")
	}),
	"fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)": unary(func(x *tensor) *tensor {
		return x.FillInPlace("fill_")
	}),
	"fill_.Tensor(Tensor(a!) self, Tensor value) -> Tensor(a!)": unary(func(x *tensor) *tensor {
		return x.FillInPlace("fill_")
	}),
	"clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).ClampBetween(a.Tensor("min"), a.Tensor("max"))
	}),
	"clamp_min.Tensor(Tensor self, Tensor min) -> Tensor":             binary((*tensor).ClampBy),
	"clamp_max.Tensor(Tensor self, Tensor max) -> Tensor":             binary((*tensor).ClampBy),
	"clip(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor": one(clamp),
	"isin.Tensor_Scalar(Tensor elements, Scalar test_element, *, bool assume_unique=False, bool invert=False) -> " +
		"Tensor": unary(func(x *tensor) *tensor {
		return x.GtScalar()
	}),
	"isin.Tensor_Tensor(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> " +
		"Tensor": one(func(a *Args) *tensor {
		return a.Tensor("elements").IsIn(a.Tensor("test_elements"))
	}),
	"isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor": binary((*tensor).IsClose),
	"isnan(Tensor self) -> Tensor":                                     unary((*tensor).IsNaN),
	"isinf(Tensor self) -> Tensor":                                     unary((*tensor).IsInf),
	"logical_not(Tensor self) -> Tensor":                               unary((*tensor).GtScalar),
	"bitwise_not(Tensor self) -> Tensor":                               unary(bitwiseNot),
	"bitwise_and_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)": overwritten,
	"bitwise_or_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)":  overwritten,
	"bitwise_xor_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)": overwritten,
	"logical_and_(Tensor(a!) self, Tensor other) -> Tensor(a!)":        overwritten,
	"logical_or_(Tensor(a!) self, Tensor other) -> Tensor(a!)":         overwritten,
	"logical_xor_(Tensor(a!) self, Tensor other) -> Tensor(a!)":        overwritten,
	"logical_not_(Tensor(a!) self) -> Tensor(a!)":                      overwritten,
	"__iand__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)":     overwritten,
	"__ior__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)":      overwritten,
	"bitwise_not_(Tensor(a!) self) -> Tensor(a!)":                      overwritten,
	"logical_and(Tensor self, Tensor other) -> Tensor":                 comparison,
	"logical_or(Tensor self, Tensor other) -> Tensor":                  comparison,
	"logical_xor(Tensor self, Tensor other) -> Tensor":                 comparison,
}

// onBits are operators that autograd does not follow: comparisons, and operators on bits, which
// have overloads for a tensor and for a number.
var onBits = func() family {
	all := family{}
	add := func(run body, names ...string) {
		for _, name := range names {
			all[name+".Tensor(Tensor self, Tensor other) -> Tensor"] = run
			all[name+".Scalar(Tensor self, Scalar other) -> Tensor"] = run
		}
	}
	add(comparison, "eq", "ne", "gt", "ge", "lt", "le")
	add(comparison, "not_equal", "greater", "greater_equal", "less", "less_equal")
	add(bitwise, "__and__", "__or__", "__xor__", "bitwise_and", "bitwise_or", "bitwise_xor")
	for _, name := range []string{
		"__lshift__.Scalar", "__rshift__.Scalar",
		"bitwise_left_shift.Tensor_Scalar", "bitwise_right_shift.Tensor_Scalar",
	} {
		all[name+"(Tensor self, Scalar other) -> Tensor"] = bitwise
	}
	return all
}()

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
