package aten

import (
	"errors"

	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// reductionOperators are operators that reduce dimensions, or all elements, to one value.
var reductionOperators = operatorFamily{
	"nansum": func(a *Args) *tensor {
		return a.castInput().NanSum(a.Bool("keepdim"), a.Dims("dim")...)
	},
	"nanmean": func(a *Args) *tensor {
		return a.castInput().NanMean(a.Bool("keepdim"), a.Dims("dim")...)
	},
	"prod":                              func(a *Args) *tensor { return a.castInput().ProdAll() },
	"median nanmedian":                  (*tensor).Median,
	"nanmedian.dim kthvalue median.dim": withTrailingArgs((*tensor).SelectExtreme, "keepdim", "dim"),
	"mode":                              withTrailingArgs((*tensor).Mode, "keepdim", "dim"),
	"trace":                             (*tensor).Trace,
	"histc":                             (*tensor).Histogram,
	"bincount":                          withTrailingArgs((*tensor).BinCount, "weights", "minlength"),
	"logcumsumexp":                      (*tensor).LogCumSumExp,
	"dist":                              ops.Dist,
	"renorm":                            (*tensor).Renorm,
	"sum sum.dim_IntList":               reductionWithType((*tensor).Sum, (*tensor).SumTo),
	"mean mean.dim":                     reductionWithType((*tensor).Mean, (*tensor).MeanTo),
	"var":                               func(x *tensor) *tensor { return x.Var(false) },
	"var.dim var.correction":            withTrailingArgs((*tensor).Var, "keepdim", "dim"),
	"std":                               func(x *tensor) *tensor { return x.Std(false) },
	"std.dim std.correction":            withTrailingArgs((*tensor).Std, "keepdim", "dim"),
	"var_mean.correction var_mean.dim":  withTrailingArgs((*tensor).VarMean, "keepdim", "dim"),
	"std_mean.correction std_mean.dim":  withTrailingArgs((*tensor).StdMean, "keepdim", "dim"),
	"prod.dim_int": func(a *Args) *tensor {
		return a.castInput().Prod(a.Bool("keepdim"), a.Dim("dim"))
	},
	"amax":                              withTrailingArgs((*tensor).AMax, "keepdim", "dim"),
	"amin":                              withTrailingArgs((*tensor).AMin, "keepdim", "dim"),
	"max":                               (*tensor).Max,
	"min":                               (*tensor).Min,
	"max.dim min.dim":                   withTrailingArgs((*tensor).MaxDim, "keepdim", "dim"),
	"all.dim any.dims all.dims any.dim": withTrailingArgs((*tensor).Any, "keepdim", "dim"),
	"all any _is_all_true _is_any_true": func(x *tensor) *tensor { return x.Any(false) },
	"var_mean":                          func(a *Args) (*tensor, *tensor) { return a.first(0).VarMean(false) },
	"std_mean":                          func(a *Args) (*tensor, *tensor) { return a.first(0).StdMean(false) },
	"msort": func(x *tensor) *tensor {
		v, _ := x.Sort(0)
		return v
	},
	"frobenius_norm.dim linalg_norm": func(a *Args) *tensor {
		return a.first(0).Norm(2, a.Bool("keepdim"), a.Dims("dim")...)
	},
	"count_nonzero count_nonzero.dim_IntList": func(x *tensor, dims ...int) *tensor {
		return x.GtScalar().Sum(false, dims...)
	},
	"cummax cummin":              (*tensor).CumMax,
	"logsumexp":                  withTrailingArgs((*tensor).LogSumExp, "keepdim", "dim"),
	"linalg_matrix_norm.str_ord": matrixNorm,
	"linalg_vector_norm": func(a *Args) *tensor {
		return a.first(0).Norm(a.normOrder("ord"), a.Bool("keepdim"), a.Dims("dim")...)
	},
	"cumsum":            func(a *Args) *tensor { return cumulative(a, (*tensor).CumSum, (*tensor).CumSumTo) },
	"cumprod":           func(a *Args) *tensor { return cumulative(a, (*tensor).CumProd, (*tensor).CumProdTo) },
	"sort":              (*tensor).Sort,
	"sort.stable":       withTrailingArgs((*tensor).Sort, "dim"),
	"argsort":           (*tensor).ArgSort,
	"argsort.stable":    withTrailingArgs((*tensor).ArgSort, "dim"),
	"topk":              (*tensor).TopK,
	"cosine_similarity": (*tensor).CosineSimilarity,
	"pairwise_distance": (*tensor).PairwiseDistance,
	"norm.ScalarOpt_dim": func(a *Args) *tensor {
		return a.first(0).Norm(a.normOrder("p"), a.Bool("keepdim"), a.Dims("dim")...)
	},
	"norm.Scalar": func(a *Args) *tensor { return a.first(0).Norm(a.normOrder("p"), false) },
	"argmax":      withTrailingArgs((*tensor).ArgMax, "keepdim", "dim"),
	"argmin":      withTrailingArgs((*tensor).ArgMin, "keepdim", "dim"),
	"cdist":       withTrailingArgs(ops.CDist, "x2", "p", "compute_mode"),
}

// castInput returns the first argument, converted to the type of the result.
func (a *Args) castInput() *tensor {
	x := a.first(0)
	if d := a.DType("dtype", x.DType()); d != x.DType() {
		return x.To(d)
	}
	return x
}

// cumulative records a cumulative sum or product in the type of the argument dtype.
func cumulative(a *Args, plain func(x *tensor, dim int) *tensor,
	to func(x *tensor, d trace.DType, dim int) *tensor,
) *tensor {
	if a.IsNone("dtype") {
		return plain(a.first(0), a.Dim("dim"))
	}
	return to(a.first(0), a.DType("dtype", trace.F32), a.Dim("dim"))
}

// normOrder returns the order of a norm; two by default.
func (a *Args) normOrder(name string) float64 {
	if a.IsNone(name) {
		return 2
	}
	return a.Float(name)
}

// reductionWithType returns the body of a reduction with an optional argument dtype.
func reductionWithType(plain func(x *tensor, keep bool, dims ...int) *tensor,
	to func(x *tensor, d trace.DType, keep bool, dims ...int) *tensor,
) func(a *Args) *tensor {
	return func(a *Args) *tensor {
		var dims []int
		keep := false
		if a.op.index("dim") >= 0 {
			dims, keep = a.Dims("dim"), a.Bool("keepdim")
		}
		if a.IsNone("dtype") {
			return plain(a.first(0), keep, dims...)
		}
		return to(a.first(0), a.DType("dtype", trace.F32), keep, dims...)
	}
}

// matrixNorm records the Frobenius norm or the nuclear norm (the sum of the singular values).
func matrixNorm(a *Args) *tensor {
	x, keep, dims := a.first(0), a.Bool("keepdim"), a.Dims("dim")
	if a.Text("ord") != "nuc" {
		return x.Norm(2, keep, dims...)
	}
	if keep || len(dims) != 2 || dims[0] != -2 || dims[1] != -1 {
		a.Tape().Raise(errors.New("vprof supports the nuclear norm only over the last two dimensions, without keepdim"))
	}
	return ops.LinalgSVDVals(x).Sum(false, -1)
}
