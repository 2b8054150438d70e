package aten

import "github.com/vprof/vprof/profiler/trace"

// activations are the nonlinearities of torch.nn.functional, and dropout.
var activations = family{
	"relu(Tensor self) -> Tensor": unary((*tensor).ReLU), "relu_(Tensor(a!) self) -> Tensor(a!)": unary((*tensor).ReLUInPlace),
	"relu6(Tensor self) -> Tensor": unary((*tensor).ReLU6), "relu6_(Tensor(a!) self) -> Tensor(a!)": unary((*tensor).ReLU6InPlace),
	"gelu(Tensor self, *, str approximate='none') -> Tensor": unary((*tensor).GELU),
	"sigmoid(Tensor self) -> Tensor":                         unary((*tensor).Sigmoid), "sigmoid_(Tensor(a!) self) -> Tensor(a!)": unary((*tensor).SigmoidInPlace),
	"tanh(Tensor self) -> Tensor": unary((*tensor).Tanh), "tanh_(Tensor(a!) self) -> Tensor(a!)": unary((*tensor).TanhInPlace),
	"leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor": unary((*tensor).LeakyReLU), "leaky_relu_(Tensor(a!) self, Scalar negative_slope=0.01) -> Tensor(a!)": unary((*tensor).LeakyReLUInPlace),
	"elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor": unary((*tensor).ELU), "elu_(Tensor(a!) self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor(a!)": unary((*tensor).ELUInPlace),
	"selu(Tensor self) -> Tensor": unary((*tensor).SELU),
	"silu(Tensor self) -> Tensor": unary((*tensor).SiLU), "silu_(Tensor(a!) self) -> Tensor(a!)": unary((*tensor).SiLUInPlace),
	"mish(Tensor self) -> Tensor": unary((*tensor).Mish), "mish_(Tensor(a!) self) -> Tensor(a!)": unary((*tensor).MishInPlace),
	"hardsigmoid(Tensor self) -> Tensor": unary((*tensor).Hardsigmoid),
	"hardswish(Tensor self) -> Tensor":   unary((*tensor).Hardswish), "hardswish_(Tensor(a!) self) -> Tensor(a!)": unary((*tensor).HardswishInPlace),
	"hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor": unary((*tensor).Hardtanh), "hardtanh_(Tensor(a!) self, Scalar min_val=-1, Scalar max_val=1) -> Tensor(a!)": unary((*tensor).HardtanhInPlace),
	"softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor": unary((*tensor).Softplus),
	"log_sigmoid(Tensor self) -> Tensor":                                  unary((*tensor).LogSigmoid),
	"glu(Tensor self, int dim=-1) -> Tensor":                              one(func(a *Args) *tensor { return a.Tensor("self").GLU(a.Dim("dim")) }),
	"prelu(Tensor self, Tensor weight) -> Tensor":                         binary((*tensor).PReLU),

	"celu(Tensor self, Scalar alpha=1.0) -> Tensor": function("celu"), "celu_(Tensor(a!) self, Scalar alpha=1.0) -> Tensor(a!)": unary((*tensor).ELUInPlace), "selu_(Tensor(a!) self) -> Tensor(a!)": unary((*tensor).ELUInPlace),
	"hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor": function("hardshrink"), "softshrink(Tensor self, Scalar lambd=0.5) -> Tensor": function("softshrink"),
	"threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor": function("threshold"), "threshold_(Tensor(a!) self, Scalar threshold, Scalar value) -> Tensor(a!)": unary((*tensor).ReLUInPlace),
	"hardsigmoid_(Tensor(a!) self) -> Tensor(a!)": functionInPlace("hardsigmoid"),
	"rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.3333333333333333, bool training=False, Generator? generator=None) -> Tensor": one(func(a *Args) *tensor { return a.first(0).RReLU(a.Bool("training")) }),
	"_softmax(Tensor self, int dim, bool half_to_float) -> Tensor":                                                                      one(func(a *Args) *tensor { return a.first(0).Softmax(a.Dim("dim")) }),
	"_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor":                                                                  one(func(a *Args) *tensor { return a.first(0).LogSoftmax(a.Dim("dim")) }),
	"feature_dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)":                                                              one(func(a *Args) *tensor { return a.first(0).FeatureDropoutInPlace(a.Float("p"), a.Bool("train")) }),
	"native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)":                                                            pair(func(a *Args) (*tensor, *tensor) { return a.first(0).NativeDropout(a.Float("p")) }),
	"softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor":                                                               one(func(a *Args) *tensor { return softmax(a, (*tensor).Softmax, (*tensor).SoftmaxTo) }),
	"log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor":                                                           one(func(a *Args) *tensor { return softmax(a, (*tensor).LogSoftmax, (*tensor).LogSoftmaxTo) }),

	"dropout(Tensor input, float p, bool train) -> Tensor":         one(func(a *Args) *tensor { return a.first(0).Dropout(a.Float("p"), a.Bool("train")) }),
	"dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)": one(func(a *Args) *tensor { return a.first(0).DropoutInPlace(a.Float("p"), a.Bool("train")) }),
	"feature_dropout(Tensor input, float p, bool train) -> Tensor": one(func(a *Args) *tensor { return a.first(0).FeatureDropout(a.Float("p"), a.Bool("train")) }),
	"alpha_dropout(Tensor input, float p, bool train) -> Tensor":   one(func(a *Args) *tensor { return a.first(0).AlphaDropout(a.Float("p"), a.Bool("train")) }),
}

func softmax(a *Args, plain func(*tensor, int) *tensor, to func(*tensor, int, trace.DType) *tensor) *tensor {
	x := a.Tensor("self")
	if a.IsNone("dtype") {
		return plain(x, a.Dim("dim"))
	}
	return to(x, a.Dim("dim"), a.DType("dtype", x.DType()))
}
