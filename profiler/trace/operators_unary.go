package trace

// unaryOperators are functions of one tensor, with the derivatives of derivatives.yaml for real tensors.
var unaryOperators = []*Operator{
	row("exp", inPlace|inFull, transcendentalFLOPs, "grad * result.conj()"),
	row("exp2", inPlace, transcendentalFLOPs, "grad * result * M_LN2"),
	row("expm1", inPlace|inFull, transcendentalFLOPs, "grad * (result + 1)"),
	row("log", inPlace|inFull, transcendentalFLOPs, "grad / self.conj()"),
	row("log1p", inPlace|inFull, transcendentalFLOPs, "grad / (self + 1)", "special_log1p"),
	row("log2", inPlace|inFull, transcendentalFLOPs, "grad / (self * M_LN2)"),
	row("log10", inPlace|inFull, transcendentalFLOPs, "grad / (self * M_LN10)"),
	row("sqrt", inPlace, rootFLOPs, "grad / (2 * result.conj())"),
	row("rsqrt", inPlace|inFull, rootFLOPs, "-0.5 * grad * result.pow(3)"),
	row("reciprocal", inPlace|inFull, rootFLOPs, "-grad * (result * result).conj()"),
	row("abs", inPlace|keepsSize, 1, "grad * self.sgn()", "absolute"),
	row("neg", inPlace|keepsType, 1, "-grad", "negative"),
	row("sin", inPlace, transcendentalFLOPs, "grad * self.cos().conj()"),
	row("cos", inPlace, transcendentalFLOPs, "grad * -self.sin().conj()"),
	row("tan", inPlace|inFull, composedFLOPs, "grad * (1 + result.pow(2))"),
	row("sinh", inPlace|inFull, composedFLOPs, "grad * self.cosh().conj()"),
	row("cosh", inPlace|inFull, composedFLOPs, "grad * self.sinh().conj()"),
	row("asin", inPlace|inFull, composedFLOPs, "grad * (-self * self + 1).rsqrt()", "arcsin"),
	row("acos", inPlace|inFull, composedFLOPs, "grad * -((-self * self + 1).rsqrt())", "arccos"),
	row("atan", inPlace, composedFLOPs, "grad / (self * self + 1)", "arctan"),
	row("asinh", 0, composedFLOPs, "grad * (self.pow(2) + 1).rsqrt()", "arcsinh"),
	row("acosh", 0, composedFLOPs, "grad * (self * self - 1).rsqrt()", "arccosh"),
	row("atanh", 0, composedFLOPs, "grad * 1 / (1 - self.pow(2))", "arctanh"),
	row("sinc", 0, composedFLOPs, "sinc_backward(grad, self)"),
	row("erf", inPlace, erfFLOPs, "2.0 / sqrt(M_PI) * exp(-(self.pow(2))) * grad", "special_erf"),
	row("erfc", inPlace, erfFLOPs, "-2.0 / sqrt(M_PI) * exp(-(self.pow(2))) * grad"),
	row("erfinv", inPlace|inFull, 2*erfFLOPs, "0.5 * sqrt(M_PI) * exp(self.erfinv().pow(2)) * grad"),
	row("special_erfcx", 0, specialFLOPs, "(2.0 * self * result - 2.0 / sqrt(M_PI)) * grad"),
	row("special_entr", 0, transcendentalFLOPs, "grad * (-self.log() - 1)"),
	row("lgamma", 0, specialFLOPs, "grad * digamma(self)"),
	row("digamma", 0, specialFLOPs, "grad * polygamma(1, self)"),
	row("polygamma(int n, Tensor self) -> Tensor", 0, specialFLOPs, "grad * polygamma(n + 1, self)",
		"special_polygamma"),
	row("_standard_gamma(Tensor self, Generator? generator=None) -> Tensor", 0, specialFLOPs,
		"grad * _standard_gamma_grad(self, result)"),
	row("i0", 0, specialFLOPs, "grad * special_i1(self)"),
	row("special_i1", 0, specialFLOPs, ""),
	row("ceil", inPlace|keepsType, 1, flat),
	row("floor", inPlace|keepsType, 1, flat),
	row("round", inPlace|keepsType, 1, flat),
	row("trunc", inPlace|keepsType, 1, flat, "fix"),
	row("sign", inPlace|keepsType, 1, flat),
	row("sgn", keepsType, 1, flat),
	row("angle", 0, 1, flat),
	row("frac", 0, 1, "grad"),
	row("deg2rad", 0, 1, "grad * M_PI_180"),
	row("rad2deg", 0, 1, "grad * M_180_PI"),

	row("nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor", inPlace|keepsType,
		2, "grad * isfinite(self)"),
	row("clamp_min(Tensor self, Scalar min) -> Tensor", inPlace|keepsType, 1,
		"clamp_min_backward(grad, self, min)", "clamp_max(Tensor self, Scalar max) -> Tensor"),
	row("logit(Tensor self, float? eps=None) -> Tensor", inPlace, 10, "logit_backward(grad, self, eps)"),
}

// activationOperators are the activations of torch.nn.functional.
var activationOperators = []*Operator{
	row("tanh", inPlace, tanhFLOPs, "tanh_backward(grad, result)"),
	row("sigmoid", inPlace, sigmoidFLOPs, "sigmoid_backward(grad, result)", "special_expit"),
	row("relu", inPlace|keepsType, 1, "threshold_backward(grad, result, 0)"),
	row("relu6", inPlace, 2, "hardtanh_backward(grad, self, 0, 6)").as("HardtanhBackward0"),
	row("hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor", inPlace, 2,
		"hardtanh_backward(grad, self, min_val, max_val)"),
	row("gelu(Tensor self, *, str approximate='none') -> Tensor", 0, geluFLOPs,
		"gelu_backward(grad, self, approximate)"),
	row("leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor", 0, 2,
		"leaky_relu_backward(grad, self, negative_slope)"),
	row("leaky_relu_(Tensor(a!) self, Scalar negative_slope=0.01) -> Tensor(a!)", 0, 2,
		"leaky_relu_backward(grad, result, negative_slope)").as("LeakyReluBackward1"),
	row("elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor", 0, eluFLOPs,
		"elu_backward(grad, self, alpha, scale, input_scale)"),
	row("elu_(Tensor(a!) self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor(a!)", 0, eluFLOPs,
		"elu_backward(grad, result, alpha, scale, input_scale)",
		"celu_(Tensor(a!) self, Scalar alpha=1.0) -> Tensor(a!)", "selu_(Tensor(a!) self) -> Tensor(a!)").
		as("EluBackward1"),
	row("selu", 0, eluFLOPs, "elu_backward(grad, self)").as("EluBackward0"),
	row("celu(Tensor self, Scalar alpha=1.0) -> Tensor", 0, eluFLOPs, "elu_backward(grad, self, alpha)"),
	row("silu", inPlace, siluFLOPs, "silu_backward(grad, self)"),
	row("mish", inPlace, mishFLOPs, "mish_backward(grad, self)"),
	row("hardsigmoid", inPlace, 4, "hardsigmoid_backward(grad, self)"),
	row("hardswish", inPlace, 5, "hardswish_backward(grad, self)"),
	row("softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor", inFull, softplusFLOPs,
		"softplus_backward(grad, self, beta, threshold)"),
	row("log_sigmoid", 0, logSigmoidFLOPs, "log_sigmoid_backward(grad, self)"),
	row("hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor", 0, 2, "hardshrink_backward(grad, self, lambd)"),
	row("softshrink(Tensor self, Scalar lambd=0.5) -> Tensor", 0, 2, "softshrink_backward(grad, self, lambd)"),
	row("threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor", 0, 1,
		"threshold_backward(grad, self, threshold)"),
}

// backwardKernel is a kernel of a backward pass, over the gradient and the saved tensor.
type backwardKernel struct {
	flops int64
	// savedFirst reports whether the iterator has the saved tensor first: the gradient is laid out as that is.
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
	c := t.Begin(op, grad, saved)
	if k.savedFirst {
		return c.End(t.Map(op, grad.dtype, k.flops, saved, grad))
	}
	return c.End(t.Map(op, grad.dtype, k.flops, grad, saved))
}
