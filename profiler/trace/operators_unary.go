package trace

// unaryOperators are functions of one tensor. Derivatives are those of derivatives.yaml for
// real tensors.
var unaryOperators = []*Operator{
	{
		Schema: "exp(Tensor self) -> Tensor", InPlace: true, flops: transcendentalFLOPs, casts: castFull,
		gradients: gradient("grad * result"),
	},
	{
		Schema: "exp2(Tensor self) -> Tensor", InPlace: true, flops: transcendentalFLOPs,
		gradients: gradient("grad * result * M_LN2"),
	},
	{
		Schema: "expm1(Tensor self) -> Tensor", InPlace: true, flops: transcendentalFLOPs, casts: castFull,
		gradients: gradient("grad * (result + 1)"),
	},
	{
		Schema: "log(Tensor self) -> Tensor", InPlace: true, flops: transcendentalFLOPs, casts: castFull,
		gradients: gradient("grad / self"),
	},
	{
		Schema: "log1p(Tensor self) -> Tensor", Aliases: []string{"special_log1p"}, InPlace: true,
		flops: transcendentalFLOPs, casts: castFull,
		gradients: gradient("grad / (self + 1)"),
	},
	{
		Schema: "log2(Tensor self) -> Tensor", InPlace: true, flops: transcendentalFLOPs, casts: castFull,
		gradients: gradient("grad / (self * M_LN2)"),
	},
	{
		Schema: "log10(Tensor self) -> Tensor", InPlace: true, flops: transcendentalFLOPs, casts: castFull,
		gradients: gradient("grad / (self * M_LN10)"),
	},
	{
		Schema: "sqrt(Tensor self) -> Tensor", InPlace: true, flops: rootFLOPs,
		gradients: gradient("grad / (2 * result)"),
	},
	{
		Schema: "rsqrt(Tensor self) -> Tensor", InPlace: true, flops: rootFLOPs, casts: castFull,
		gradients: gradient("-0.5 * grad * result.pow(3)"),
	},
	{
		Schema: "reciprocal(Tensor self) -> Tensor", InPlace: true, flops: rootFLOPs, casts: castFull,
		gradients: gradient("-grad * (result * result)"),
	},
	{
		Schema: "abs(Tensor self) -> Tensor", Aliases: []string{"absolute"}, InPlace: true, flops: 1, result: absolute,
		gradients: gradient("grad * self.sgn()"),
	},
	{
		Schema: "neg(Tensor self) -> Tensor", Aliases: []string{"negative"}, InPlace: true, flops: 1, result: promoted,
		gradients: gradient("-grad"),
	},
	{
		Schema: "sin(Tensor self) -> Tensor", InPlace: true, flops: transcendentalFLOPs,
		gradients: gradient("grad * self.cos()"),
	},
	{
		Schema: "cos(Tensor self) -> Tensor", InPlace: true, flops: transcendentalFLOPs,
		gradients: gradient("grad * -self.sin()"),
	},
	{
		Schema: "tan(Tensor self) -> Tensor", InPlace: true, flops: composedFLOPs, casts: castFull,
		gradients: gradient("grad * (1 + result.pow(2))"),
	},
	{
		Schema: "sinh(Tensor self) -> Tensor", InPlace: true, flops: composedFLOPs, casts: castFull,
		gradients: gradient("grad * self.cosh()"),
	},
	{
		Schema: "cosh(Tensor self) -> Tensor", InPlace: true, flops: composedFLOPs, casts: castFull,
		gradients: gradient("grad * self.sinh()"),
	},
	{
		Schema: "asin(Tensor self) -> Tensor", Aliases: []string{"arcsin"}, InPlace: true,
		flops: composedFLOPs, casts: castFull,
		gradients: gradient("grad * (-self * self + 1).rsqrt()"),
	},
	{
		Schema: "acos(Tensor self) -> Tensor", Aliases: []string{"arccos"}, InPlace: true,
		flops: composedFLOPs, casts: castFull,
		gradients: gradient("grad * -((-self * self + 1).rsqrt())"),
	},
	{
		Schema: "atan(Tensor self) -> Tensor", Aliases: []string{"arctan"}, InPlace: true, flops: composedFLOPs,
		gradients: gradient("grad / (self * self + 1)"),
	},
	{
		Schema: "asinh(Tensor self) -> Tensor", Aliases: []string{"arcsinh"}, flops: composedFLOPs,
		gradients: gradient("grad * (self.pow(2) + 1).rsqrt()"),
	},
	{
		Schema: "acosh(Tensor self) -> Tensor", Aliases: []string{"arccosh"}, flops: composedFLOPs,
		gradients: gradient("grad * (self * self - 1).rsqrt()"),
	},
	{
		Schema: "atanh(Tensor self) -> Tensor", Aliases: []string{"arctanh"}, flops: composedFLOPs,
		gradients: gradient("grad * 1 / (1 - self.pow(2))"),
	},
	{
		Schema: "sinc(Tensor self) -> Tensor", flops: composedFLOPs,
		gradients: gradient("sinc_backward(grad, self)"),
	},
	{
		Schema: "erf(Tensor self) -> Tensor", Aliases: []string{"special_erf"}, InPlace: true, flops: erfFLOPs,
		gradients: gradient("2.0 / sqrt(M_PI) * exp(-(self.pow(2))) * grad"),
	},
	{
		Schema: "erfc(Tensor self) -> Tensor", InPlace: true, flops: erfFLOPs,
		gradients: gradient("-2.0 / sqrt(M_PI) * exp(-(self.pow(2))) * grad"),
	},
	{
		Schema: "erfinv(Tensor self) -> Tensor", InPlace: true, flops: 2 * erfFLOPs, casts: castFull,
		gradients: gradient("0.5 * sqrt(M_PI) * exp(self.erfinv().pow(2)) * grad"),
	},
	{
		Schema: "special_erfcx(Tensor self) -> Tensor", flops: specialFLOPs,
		gradients: gradient("(2.0 * self * result - 2.0 / sqrt(M_PI)) * grad"),
	},
	{
		Schema: "special_entr(Tensor self) -> Tensor", flops: transcendentalFLOPs,
		gradients: gradient("grad * (-self.log() - 1)"),
	},
	{
		Schema: "lgamma(Tensor self) -> Tensor", flops: specialFLOPs,
		gradients: gradient("grad * digamma(self)"),
	},
	{
		Schema: "digamma(Tensor self) -> Tensor", flops: specialFLOPs,
		gradients: gradient("grad * polygamma(1, self)"),
	},
	{
		Schema: "polygamma(int n, Tensor self) -> Tensor", Aliases: []string{"special_polygamma"}, flops: specialFLOPs,
		gradients: gradient("grad * polygamma(n + 1, self)"),
	},
	{
		Schema: "i0(Tensor self) -> Tensor", flops: specialFLOPs,
		gradients: gradient("grad * special_i1(self)"),
	},
	{Schema: "special_i1(Tensor self) -> Tensor", flops: specialFLOPs},
	{Schema: "ceil(Tensor self) -> Tensor", InPlace: true, flops: 1, result: promoted, gradients: flat},
	{Schema: "floor(Tensor self) -> Tensor", InPlace: true, flops: 1, result: promoted, gradients: flat},
	{Schema: "round(Tensor self) -> Tensor", InPlace: true, flops: 1, result: promoted, gradients: flat},
	{
		Schema: "trunc(Tensor self) -> Tensor", Aliases: []string{"fix"}, InPlace: true, flops: 1, result: promoted,
		gradients: flat,
	},
	{Schema: "sign(Tensor self) -> Tensor", InPlace: true, flops: 1, result: promoted, gradients: flat},
	{Schema: "sgn(Tensor self) -> Tensor", flops: 1, result: promoted, gradients: flat},
	{Schema: "angle(Tensor self) -> Tensor", flops: 1, gradients: flat},
	{Schema: "frac(Tensor self) -> Tensor", flops: 1, gradients: gradient("grad")},
	{Schema: "deg2rad(Tensor self) -> Tensor", flops: 1, gradients: gradient("grad * M_PI_180")},
	{Schema: "rad2deg(Tensor self) -> Tensor", flops: 1, gradients: gradient("grad * M_180_PI")},
	{
		Schema:  "nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor",
		InPlace: true, flops: 2, result: promoted,
		gradients: gradient("grad * isfinite(self)"),
	},
	{
		Schema:  "clamp_min(Tensor self, Scalar min) -> Tensor",
		Aliases: []string{"clamp_max(Tensor self, Scalar max) -> Tensor"}, InPlace: true, flops: 1, result: promoted,
		gradients: gradient("clamp_min_backward(grad, self, min)"),
	},
	{
		Schema: "logit(Tensor self, float? eps=None) -> Tensor", InPlace: true, flops: 10,
		gradients: gradient("logit_backward(grad, self, eps)"),
	},
}

// flat is the gradient of a function that is constant between its steps.
var flat = gradient("zeros_like(grad)")

// gradient is the derivative of a function of self alone.
func gradient(formula string) map[string]string { return map[string]string{"self": formula} }

// activationOperators are those of torch.nn.functional.
var activationOperators = []*Operator{
	{
		Schema: "tanh(Tensor self) -> Tensor", InPlace: true, flops: tanhFLOPs,
		gradients: gradient("tanh_backward(grad, result)"),
	},
	{
		Schema: "sigmoid(Tensor self) -> Tensor", Aliases: []string{"special_expit"}, InPlace: true, flops: sigmoidFLOPs,
		gradients: gradient("sigmoid_backward(grad, result)"),
	},
	{
		Schema: "relu(Tensor self) -> Tensor", InPlace: true, flops: 1, result: promoted,
		gradients: gradient("threshold_backward(grad, result, 0)"),
	},
	{
		Schema: "relu6(Tensor self) -> Tensor", InPlace: true, flops: 2, node: "HardtanhBackward0",
		gradients: gradient("hardtanh_backward(grad, self, 0, 6)"),
	},
	{
		Schema:  "hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor",
		InPlace: true, flops: 2,
		gradients: gradient("hardtanh_backward(grad, self, min_val, max_val)"),
	},
	{
		Schema: "gelu(Tensor self, *, str approximate='none') -> Tensor", flops: geluFLOPs,
		gradients: gradient("gelu_backward(grad, self, approximate)"),
	},
	{
		Schema: "leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor", flops: 2,
		gradients: gradient("leaky_relu_backward(grad, self, negative_slope)"),
	},
	{
		Schema: "leaky_relu_(Tensor(a!) self, Scalar negative_slope=0.01) -> Tensor(a!)",
		flops:  2, node: "LeakyReluBackward1",
		gradients: gradient("leaky_relu_backward(grad, result, negative_slope)"),
	},
	{
		Schema: "elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor", flops: eluFLOPs,
		gradients: gradient("elu_backward(grad, self, alpha, scale, input_scale)"),
	},
	{
		Schema:  "elu_(Tensor(a!) self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor(a!)",
		Aliases: []string{"celu_(Tensor(a!) self, Scalar alpha=1.0) -> Tensor(a!)", "selu_(Tensor(a!) self) -> Tensor(a!)"},
		flops:   eluFLOPs, node: "EluBackward1",
		gradients: gradient("elu_backward(grad, result, alpha, scale, input_scale)"),
	},
	{
		Schema: "selu(Tensor self) -> Tensor", flops: eluFLOPs, node: "EluBackward0",
		gradients: gradient("elu_backward(grad, self)"),
	},
	{
		Schema: "celu(Tensor self, Scalar alpha=1.0) -> Tensor", flops: eluFLOPs,
		gradients: gradient("elu_backward(grad, self, alpha)"),
	},
	{
		Schema: "silu(Tensor self) -> Tensor", InPlace: true, flops: siluFLOPs,
		gradients: gradient("silu_backward(grad, self)"),
	},
	{
		Schema: "mish(Tensor self) -> Tensor", InPlace: true, flops: mishFLOPs,
		gradients: gradient("mish_backward(grad, self)"),
	},
	{
		Schema: "hardsigmoid(Tensor self) -> Tensor", InPlace: true, flops: 4,
		gradients: gradient("hardsigmoid_backward(grad, self)"),
	},
	{
		Schema: "hardswish(Tensor self) -> Tensor", InPlace: true, flops: 5,
		gradients: gradient("hardswish_backward(grad, self)"),
	},
	{
		Schema: "softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor",
		flops:  softplusFLOPs, casts: castFull,
		gradients: gradient("softplus_backward(grad, self, beta, threshold)"),
	},
	{
		Schema: "log_sigmoid(Tensor self) -> Tensor", flops: logSigmoidFLOPs,
		gradients: gradient("log_sigmoid_backward(grad, self)"),
	},
	{
		Schema: "hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor", flops: 2,
		gradients: gradient("hardshrink_backward(grad, self, lambd)"),
	},
	{
		Schema: "softshrink(Tensor self, Scalar lambd=0.5) -> Tensor", flops: 2,
		gradients: gradient("softshrink_backward(grad, self, lambd)"),
	},
	{
		Schema: "threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor", flops: 1,
		gradients: gradient("threshold_backward(grad, self, threshold)"),
	},
}

// backwardKernel is a kernel of a backward pass, over the gradient and what was saved.
type backwardKernel struct {
	flops int64
	// savedFirst says that the iterator has the saved tensor first: the gradient is laid out
	// as that is.
	savedFirst bool
}

var backwardKernels = map[string]backwardKernel{
	"tanh_backward":                 {flops: sigmoidGradFLOPs},
	"sigmoid_backward":              {flops: sigmoidGradFLOPs},
	"logit_backward":                {flops: 4},
	"gelu_backward":                 {flops: geluGradFLOPs},
	"elu_backward":                  {flops: eluFLOPs},
	"silu_backward":                 {flops: siluGradFLOPs},
	"mish_backward":                 {flops: mishGradFLOPs},
	"hardsigmoid_backward":          {flops: 3},
	"hardswish_backward":            {flops: 5},
	"hardtanh_backward":             {flops: 2},
	"hardshrink_backward":           {flops: 2},
	"softshrink_backward":           {flops: 2},
	"softplus_backward":             {flops: softplusGradFLOPs},
	"rrelu_with_noise_backward":     {flops: 2},
	"binary_cross_entropy_backward": {flops: 6},
	"threshold_backward":            {flops: 1, savedFirst: true},
	"leaky_relu_backward":           {flops: 2, savedFirst: true},
	"log_sigmoid_backward":          {flops: logSigmoidGradFLOPs, savedFirst: true},
}

func callBackwardKernel(op string, grad, saved *Tensor) *Tensor {
	t, k := grad.tape, backwardKernels[op]
	c := t.begin(op, grad, saved)
	if k.savedFirst {
		return c.end(t.map1(op, grad.dtype, k.flops, saved, grad))
	}
	return c.end(t.map1(op, grad.dtype, k.flops, grad, saved))
}
