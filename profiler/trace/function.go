package trace

import "maps"

// functions are the pointwise functions of one tensor, by their names in
// torch.
var functions = func() map[string]*unary {
	all := map[string]*unary{}
	for _, group := range []map[string]*unary{elementary, trigonometric, rounding, thresholds, seldom} {
		maps.Copy(all, group)
	}
	return all
}()

// Function is torch.NAME(x) for a pointwise function of one tensor, such as
// "asin" or "hardshrink".
func (x *Tensor) Function(name string) *Tensor { return x.unary(functions[name]) }

// FunctionInPlace is x.NAME_().
func (x *Tensor) FunctionInPlace(name string) *Tensor { return x.unaryInPlace(functions[name]) }

var elementary = map[string]*unary{
	"abs":        &opAbs,
	"exp":        &opExp,
	"expm1":      &opExpm1,
	"log":        &opLog,
	"log1p":      &opLog1p,
	"log2":       &opLog2,
	"log10":      &opLog10,
	"sqrt":       &opSqrt,
	"rsqrt":      &opRsqrt,
	"reciprocal": &opReciprocal,
	"erf":        &opErf,
	"exp2":       {op: "exp2", node: "Exp2Backward0", keepOut: true, flops: transcendentalFLOPs, back: func(g, y *Tensor) *Tensor { return g.Mul(y).MulScalar() }},
	"erfc":       {op: "erfc", node: "ErfcBackward0", keepIn: true, flops: erfFLOPs, back: erfBackward},
	"erfinv":     {op: "erfinv", node: "ErfinvBackward0", keepIn: true, full: true, flops: 2 * erfFLOPs, back: erfinvBackward},
	"logit":      {op: "logit", node: "LogitBackward0", keepIn: true, flops: 10, back: kernel1("logit_backward", 4)},
	"lgamma":     {op: "lgamma", node: "LgammaBackward0", keepIn: true, flops: specialFLOPs, back: func(g, x *Tensor) *Tensor { return g.Mul(x.plain("digamma", specialFLOPs)) }},
	"digamma":    {op: "digamma", node: "DigammaBackward0", keepIn: true, flops: specialFLOPs, back: func(g, x *Tensor) *Tensor { return g.Mul(x.plain("polygamma", specialFLOPs)) }},
	"i0":         {op: "i0", node: "I0Backward0", keepIn: true, flops: specialFLOPs, back: func(g, x *Tensor) *Tensor { return g.Mul(x.plain("special_i1", specialFLOPs)) }},
}

// seldom are functions that few models call.
var seldom = map[string]*unary{
	"angle":         {op: "angle", node: "AngleBackward0", flops: 1, back: zerosBackward},
	"polygamma":     {op: "polygamma", node: "PolygammaBackward0", keepIn: true, flops: specialFLOPs, back: func(g, x *Tensor) *Tensor { return g.Mul(x.plain("polygamma", specialFLOPs)) }},
	"special_entr":  {op: "special_entr", node: "SpecialEntrBackward0", keepIn: true, flops: transcendentalFLOPs, back: entrBackward},
	"special_erfcx": {op: "special_erfcx", node: "SpecialErfcxBackward0", keepIn: true, flops: specialFLOPs, back: erfcxBackward},
}

// entrBackward is grad * (-log(self) - 1), where self is not zero.
func entrBackward(g, x *Tensor) *Tensor { return g.Mul(x.Log().Neg().AddScalar()) }

// erfcxBackward is (2.0 * self * result - 2.0 / sqrt(pi)) * grad.
func erfcxBackward(g, x *Tensor) *Tensor {
	return x.MulScalar().Mul(x).AddScalar().Mul(g)
}

// sincBackward is sinc_backward:
//
//	self_pi = self * pi, self_squared_pi = self * self * pi
//	out = grad * ((self_pi * self_pi.cos() - self_pi.sin()) / self_squared_pi)
//	where(self_squared_pi == 0.0, zeros({}), out)
func sincBackward(g, x *Tensor) *Tensor {
	t := g.tape
	c := t.begin("sinc_backward", g, x)
	angle := c.let(x.MulScalar())
	square := c.let(x.Mul(x).MulScalar())
	cosine := angle.Mul(angle.Cos())
	slope := c.let(g.Mul(cosine.Sub(angle.Sin()).Div(square)))
	zero := t.scalarTensor(g.dtype)
	return c.end(Where(square.compareScalar("eq"), zero, slope))
}

// erfinvBackward is 0.5 * sqrt(pi) * exp(self.erfinv().pow(2)) * grad.
func erfinvBackward(g, x *Tensor) *Tensor {
	return x.plain("erfinv", 20).Pow(2).Exp().MulScalar().Mul(g)
}

var trigonometric = map[string]*unary{
	"sin":     &opSin,
	"cos":     &opCos,
	"sinh":    &opSinh,
	"cosh":    &opCosh,
	"acosh":   &opAcosh,
	"tan":     {op: "tan", node: "TanBackward0", keepOut: true, full: true, flops: composedFLOPs, back: func(g, y *Tensor) *Tensor { return g.Mul(y.Pow(2).AddScalar()) }},
	"asin":    {op: "asin", node: "AsinBackward0", keepIn: true, full: true, flops: composedFLOPs, back: func(g, x *Tensor) *Tensor { return g.Mul(x.Neg().Mul(x).AddScalar().Rsqrt()) }},
	"acos":    {op: "acos", node: "AcosBackward0", keepIn: true, full: true, flops: composedFLOPs, back: func(g, x *Tensor) *Tensor { return g.Mul(x.Neg().Mul(x).AddScalar().Rsqrt().Neg()) }},
	"atan":    {op: "atan", node: "AtanBackward0", keepIn: true, flops: composedFLOPs, back: func(g, x *Tensor) *Tensor { return g.Div(x.Mul(x).AddScalar()) }},
	"asinh":   {op: "asinh", node: "AsinhBackward0", keepIn: true, flops: composedFLOPs, back: func(g, x *Tensor) *Tensor { return g.Mul(x.Pow(2).AddScalar().Rsqrt()) }},
	"atanh":   {op: "atanh", node: "AtanhBackward0", keepIn: true, flops: composedFLOPs, back: atanhBackward},
	"sinc":    {op: "sinc", node: "SincBackward0", keepIn: true, flops: composedFLOPs, back: sincBackward},
	"deg2rad": {op: "deg2rad", node: "Deg2RadBackward0", flops: 1, back: func(g, _ *Tensor) *Tensor { return g.MulScalar() }},
	"rad2deg": {op: "rad2deg", node: "Rad2DegBackward0", flops: 1, back: func(g, _ *Tensor) *Tensor { return g.MulScalar() }},
}

// atanhBackward is grad * 1 / (1 - self.pow(2)).
func atanhBackward(g, x *Tensor) *Tensor {
	slope := x.Pow(2).RSubScalar()
	return g.MulScalar().Div(slope)
}

var rounding = map[string]*unary{
	"neg":        {op: "neg", node: "NegBackward0", exact: true, flops: 1, back: func(g, _ *Tensor) *Tensor { return g.Neg() }},
	"ceil":       {op: "ceil", node: "CeilBackward0", exact: true, flops: 1, back: zerosBackward},
	"floor":      {op: "floor", node: "FloorBackward0", exact: true, flops: 1, back: zerosBackward},
	"round":      {op: "round", node: "RoundBackward0", exact: true, flops: 1, back: zerosBackward},
	"trunc":      {op: "trunc", node: "TruncBackward0", exact: true, flops: 1, back: zerosBackward},
	"sign":       {op: "sign", node: "SignBackward0", exact: true, flops: 1, back: zerosBackward},
	"frac":       {op: "frac", node: "FracBackward0", flops: 1, back: func(g, _ *Tensor) *Tensor { return g }},
	"nan_to_num": {op: "nan_to_num", node: "NanToNumBackward0", exact: true, keepIn: true, flops: 2, back: func(g, x *Tensor) *Tensor { return g.Mul(x.IsFinite()) }},
}

func zerosBackward(g, _ *Tensor) *Tensor { return g.ZerosLike() }

var thresholds = map[string]*unary{
	"relu":        &opReLU,
	"relu6":       &opReLU6,
	"sigmoid":     &opSigmoid,
	"tanh":        &opTanh,
	"selu":        &opSELU,
	"silu":        &opSiLU,
	"mish":        &opMish,
	"hardsigmoid": &opHardsigmoid,
	"hardswish":   &opHardswish,
	"hardtanh":    &opHardtanh,
	"celu":        {op: "celu", node: "CeluBackward0", keepIn: true, flops: eluFLOPs, back: kernel1("elu_backward", eluFLOPs)},
	"hardshrink":  {op: "hardshrink", node: "HardshrinkBackward0", keepIn: true, flops: 2, back: kernel1("hardshrink_backward", 2)},
	"softshrink":  {op: "softshrink", node: "SoftshrinkBackward0", keepIn: true, flops: 2, back: kernel1("softshrink_backward", 2)},
	"threshold":   {op: "threshold", node: "ThresholdBackward0", keepIn: true, flops: 1, back: kernel1Kept("threshold_backward", 1)},
}

// IsFinite is torch.isfinite(x): (x == x) * (x.abs() != inf).
func (x *Tensor) IsFinite() *Tensor {
	c := x.tape.begin("isfinite", x)
	if !x.dtype.differentiable() {
		return c.end(x.tape.Filled("ones_like", Bool, x.shape...))
	}
	bounded := x.plain("abs", 1).compareScalar("ne_Scalar")
	return c.end(x.compare("eq_Tensor", x).Mul(bounded))
}
