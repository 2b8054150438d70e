package aten

import "fmt"

// special are operators with two names, and those that few models call.
var special = family{
	"special_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor": one(func(a *Args) *tensor {
		return softmax(a, (*tensor).Softmax, (*tensor).SoftmaxTo)
	}),
	"special_log_softmax(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor": one(func(a *Args) *tensor {
		return softmax(a, (*tensor).LogSoftmax, (*tensor).LogSoftmaxTo)
	}),
	"special_logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).LogSumExp(a.Bool("keepdim"), a.Dims("dim")...)
	}),
	"special_expm1(Tensor self) -> Tensor":                    function("expm1"),
	"special_exp2(Tensor self) -> Tensor":                     function("exp2"),
	"special_erfc(Tensor self) -> Tensor":                     function("erfc"),
	"special_erfinv(Tensor self) -> Tensor":                   function("erfinv"),
	"special_gammaln(Tensor self) -> Tensor":                  function("lgamma"),
	"special_digamma(Tensor self) -> Tensor":                  function("digamma"),
	"special_psi(Tensor self) -> Tensor":                      function("digamma"),
	"special_logit(Tensor self, float? eps=None) -> Tensor":   function("logit"),
	"special_round(Tensor self, *, int decimals=0) -> Tensor": function("round"),
	"special_sinc(Tensor self) -> Tensor":                     function("sinc"),
	"special_i0(Tensor self) -> Tensor":                       function("i0"),
	"angle(Tensor self) -> Tensor":                            unary((*tensor).Angle),
	"pdist(Tensor self, float p=2) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).PDist(a.Float("p"))
	}),
	"aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)": pair(
		func(a *Args) (x, y *tensor) {
			if a.IsNone("dim") {
				return a.first(0).AMinMax(false)
			}
			return a.first(0).AMinMax(a.Bool("keepdim"), a.Dim("dim"))
		}),
	"index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> " +
		"Tensor": one(func(a *Args) *tensor {
		how := a.Text("reduce")
		if how == "prod" {
			a.Tape().Raise(fmt.Errorf("index_reduce is described for mean, amax and amin, not %s", how))
		}
		return a.first(0).IndexReduce(how, a.Dim("dim"), a.Tensor("index"), a.Tensor("source"), a.Bool("include_self"))
	}),
	"segment_reduce(Tensor data, str reduce, *, Tensor? lengths=None, Tensor? indices=None, Tensor? offsets=None, " +
		"int axis=0, bool unsafe=False, Scalar? initial=None) -> Tensor": one(func(a *Args) *tensor {
		if a.Dim("axis") != 0 || a.Tensor("lengths") == nil && a.Tensor("offsets") == nil {
			a.Tape().Raise(fmt.Errorf("segment_reduce is described along the first dimension, by lengths or offsets"))
		}
		return a.first(0).SegmentReduce(a.Tensor("lengths"), a.Tensor("offsets"))
	}),
	"row_stack(Tensor[] tensors) -> Tensor": joined(0, 2),
}
