package aten

import "github.com/vprof/vprof/profiler/trace"

// activations are the nonlinearities of torch.nn.functional, and dropout.
var activations = family{
	"glu":              (*tensor).GLU,
	"prelu":            (*tensor).PReLU,
	"threshold_":       (*tensor).ReLUInPlace,
	"rrelu":            with((*tensor).RReLU, "training"),
	"_softmax":         (*tensor).Softmax,
	"_log_softmax":     (*tensor).LogSoftmax,
	"feature_dropout_": (*tensor).FeatureDropoutInPlace,
	"native_dropout":   (*tensor).NativeDropout,
	"softmax.int":      func(a *Args) *tensor { return softmax(a, (*tensor).Softmax, (*tensor).SoftmaxTo) },
	"log_softmax.int":  func(a *Args) *tensor { return softmax(a, (*tensor).LogSoftmax, (*tensor).LogSoftmaxTo) },
	"dropout":          (*tensor).Dropout,
	"dropout_":         (*tensor).DropoutInPlace,
	"feature_dropout":  (*tensor).FeatureDropout,
	"alpha_dropout":    (*tensor).AlphaDropout,
}

func softmax(a *Args, plain func(*tensor, int) *tensor, to func(*tensor, int, trace.DType) *tensor) *tensor {
	x := a.Tensor("self")
	if a.IsNone("dtype") {
		return plain(x, a.Dim("dim"))
	}
	return to(x, a.Dim("dim"), a.DType("dtype", x.DType()))
}
