package aten

import "github.com/vprof/vprof/profiler/trace"

// activations are the nonlinearities of torch.nn.functional, and dropout.
var activations = family{
	"glu(Tensor self, int dim=-1) -> Tensor": one(func(a *Args) *tensor {
		return a.Tensor("self").GLU(a.Dim("dim"))
	}),
	"prelu(Tensor self, Tensor weight) -> Tensor":                               binary((*tensor).PReLU),
	"threshold_(Tensor(a!) self, Scalar threshold, Scalar value) -> Tensor(a!)": unary((*tensor).ReLUInPlace),
	"rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.3333333333333333, bool training=False, Generator? " +
		"generator=None) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).RReLU(a.Bool("training"))
	}),
	"_softmax(Tensor self, int dim, bool half_to_float) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Softmax(a.Dim("dim"))
	}),
	"_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).LogSoftmax(a.Dim("dim"))
	}),
	"feature_dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)": one(func(a *Args) *tensor {
		return a.first(0).FeatureDropoutInPlace(a.Float("p"), a.Bool("train"))
	}),
	"native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)": pair(func(a *Args) (*tensor, *tensor) {
		return a.first(0).NativeDropout(a.Float("p"))
	}),
	"softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor": one(func(a *Args) *tensor {
		return softmax(a, (*tensor).Softmax, (*tensor).SoftmaxTo)
	}),
	"log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor": one(func(a *Args) *tensor {
		return softmax(a, (*tensor).LogSoftmax, (*tensor).LogSoftmaxTo)
	}),
	"dropout(Tensor input, float p, bool train) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Dropout(a.Float("p"), a.Bool("train"))
	}),
	"dropout_(Tensor(a!) self, float p, bool train) -> Tensor(a!)": one(func(a *Args) *tensor {
		return a.first(0).DropoutInPlace(a.Float("p"), a.Bool("train"))
	}),
	"feature_dropout(Tensor input, float p, bool train) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).FeatureDropout(a.Float("p"), a.Bool("train"))
	}),
	"alpha_dropout(Tensor input, float p, bool train) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).AlphaDropout(a.Float("p"), a.Bool("train"))
	}),
}

func softmax(a *Args, plain func(*tensor, int) *tensor, to func(*tensor, int, trace.DType) *tensor) *tensor {
	x := a.Tensor("self")
	if a.IsNone("dtype") {
		return plain(x, a.Dim("dim"))
	}
	return to(x, a.Dim("dim"), a.DType("dtype", x.DType()))
}
