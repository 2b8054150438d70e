package aten

import "fmt"

// special are operators with two names, and those that few models call.
var special = family{
	"special_softmax": func(a *Args) *tensor { return softmax(a, (*tensor).Softmax, (*tensor).SoftmaxTo) },
	"special_log_softmax": func(a *Args) *tensor {
		return softmax(a, (*tensor).LogSoftmax, (*tensor).LogSoftmaxTo)
	},
	"special_logsumexp":           with((*tensor).LogSumExp, "keepdim", "dim"),
	"special_expm1":               function("expm1"),
	"special_exp2":                function("exp2"),
	"special_erfc":                function("erfc"),
	"special_erfinv":              function("erfinv"),
	"special_gammaln":             function("lgamma"),
	"special_digamma special_psi": function("digamma"),
	"special_logit":               function("logit"),
	"special_round":               function("round"),
	"special_sinc":                function("sinc"),
	"special_i0":                  function("i0"),
	"angle":                       (*tensor).Angle,
	"pdist":                       (*tensor).PDist,
	"aminmax": func(a *Args) (x, y *tensor) {
		if a.IsNone("dim") {
			return a.first(0).AMinMax(false)
		}
		return a.first(0).AMinMax(a.Bool("keepdim"), a.Dim("dim"))
	},
	"index_reduce": func(a *Args) *tensor {
		how := a.Text("reduce")
		if how == "prod" {
			a.Tape().Raise(fmt.Errorf("index_reduce is described for mean, amax and amin, not %s", how))
		}
		return a.first(0).IndexReduce(how, a.Dim("dim"), a.Tensor("index"), a.Tensor("source"), a.Bool("include_self"))
	},
	"segment_reduce": func(a *Args) *tensor {
		if a.Dim("axis") != 0 || a.Tensor("lengths") == nil && a.Tensor("offsets") == nil {
			a.Tape().Raise(fmt.Errorf("segment_reduce is described along the first dimension, by lengths or offsets"))
		}
		return a.first(0).SegmentReduce(a.Tensor("lengths"), a.Tensor("offsets"))
	},
	"row_stack": joined(0, 2),
}
