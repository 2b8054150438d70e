package aten

import "github.com/vprof/vprof/profiler/trace"

// reductions make one value of many, along dimensions or of all.
var reductions = family{
	"nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor": one(
		func(a *Args) *tensor {
			return a.cast("dtype").NanSum(a.Bool("keepdim"), a.Dims("dim")...)
		}),
	"nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor": one(
		func(a *Args) *tensor {
			return a.cast("dtype").NanMean(a.Bool("keepdim"), a.Dims("dim")...)
		}),
	"prod(Tensor self, *, ScalarType? dtype=None) -> Tensor": one(func(a *Args) *tensor {
		return a.cast("dtype").ProdAll()
	}),
	"median(Tensor self) -> Tensor":    unary((*tensor).Median),
	"nanmedian(Tensor self) -> Tensor": unary((*tensor).Median),
	"nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)": pair(
		func(a *Args) (*tensor, *tensor) {
			return a.first(0).PickDim(a.Bool("keepdim"), a.Dim("dim"))
		}),
	"kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)": pair(
		func(a *Args) (*tensor, *tensor) {
			return a.first(0).PickDim(a.Bool("keepdim"), a.Dim("dim"))
		}),
	"mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)": pair(
		func(a *Args) (*tensor, *tensor) {
			return a.first(0).Mode(a.Bool("keepdim"), a.Dim("dim"))
		}),
	"trace(Tensor self) -> Tensor": unary((*tensor).Trace),
	"histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Histogram(a.Int("bins"))
	}),
	"logcumsumexp(Tensor self, int dim) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).LogCumSumExp(a.Dim("dim"))
	}),
	"dist(Tensor self, Tensor other, Scalar p=2) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Dist(a.Tensor("other"), a.Float("p"))
	}),
	"renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Renorm(a.Float("p"), a.Dim("dim"))
	}),
	"sum(Tensor self, *, ScalarType? dtype=None) -> Tensor":                                              typed((*tensor).Sum, (*tensor).SumTo),
	"sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor": typed((*tensor).Sum, (*tensor).SumTo),
	"mean(Tensor self, *, ScalarType? dtype=None) -> Tensor":                                             typed((*tensor).Mean, (*tensor).MeanTo),
	"mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor":        typed((*tensor).Mean, (*tensor).MeanTo),
	"var(Tensor self, bool unbiased=True) -> Tensor": unary(func(x *tensor) *tensor {
		return x.Var(false)
	}),
	"var.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Var(a.Bool("keepdim"), a.Dims("dim")...)
	}),
	"var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).Var(a.Bool("keepdim"), a.Dims("dim")...)
		}),
	"std(Tensor self, bool unbiased=True) -> Tensor": unary(func(x *tensor) *tensor {
		return x.Std(false)
	}),
	"std.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Std(a.Bool("keepdim"), a.Dims("dim")...)
	}),
	"std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).Std(a.Bool("keepdim"), a.Dims("dim")...)
		}),
	"var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, " +
		"Tensor)": pair(func(a *Args) (*tensor, *tensor) {
		return a.first(0).VarMean(a.Bool("keepdim"), a.Dims("dim")...)
	}),
	"std_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, " +
		"Tensor)": pair(func(a *Args) (*tensor, *tensor) {
		return a.first(0).StdMean(a.Bool("keepdim"), a.Dims("dim")...)
	}),
	"prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor": one(
		func(a *Args) *tensor {
			return a.cast("dtype").Prod(a.Bool("keepdim"), a.Dim("dim"))
		}),
	"amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).AMax(a.Bool("keepdim"), a.Dims("dim")...)
	}),
	"amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).AMin(a.Bool("keepdim"), a.Dims("dim")...)
	}),
	"max(Tensor self) -> Tensor": unary((*tensor).Max),
	"min(Tensor self) -> Tensor": unary((*tensor).Min),
	"max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)": pair(
		func(a *Args) (*tensor, *tensor) {
			return a.first(0).MaxDim(a.Bool("keepdim"), a.Dim("dim"))
		}),
	"min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)": pair(
		func(a *Args) (*tensor, *tensor) {
			return a.first(0).MaxDim(a.Bool("keepdim"), a.Dim("dim"))
		}),
	"argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).ArgMax(a.Bool("keepdim"), a.optionalDim("dim")...)
	}),
	"argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).ArgMin(a.Bool("keepdim"), a.optionalDim("dim")...)
	}),
	"all.dim(Tensor self, int dim, bool keepdim=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Any(a.Bool("keepdim"), a.Dim("dim"))
	}),
	"all(Tensor self) -> Tensor": unary(func(x *tensor) *tensor { return x.Any(false) }),
	"any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Any(a.Bool("keepdim"), a.Dims("dim")...)
	}),
	"all.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Any(a.Bool("keepdim"), a.Dims("dim")...)
	}),
	"var_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)": pair(func(a *Args) (*tensor, *tensor) {
		return a.first(0).VarMean(false)
	}),
	"var_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)": pair(
		func(a *Args) (*tensor, *tensor) {
			return a.first(0).VarMean(a.Bool("keepdim"), a.Dims("dim")...)
		}),
	"std_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)": pair(func(a *Args) (*tensor, *tensor) {
		return a.first(0).StdMean(false)
	}),
	"std_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)": pair(
		func(a *Args) (*tensor, *tensor) {
			return a.first(0).StdMean(a.Bool("keepdim"), a.Dims("dim")...)
		}),
	"msort(Tensor self) -> Tensor": unary(func(x *tensor) *tensor {
		v, _ := x.Sort(0)
		return v
	}),
	"frobenius_norm.dim(Tensor self, int[1] dim, bool keepdim=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Norm(2, a.Bool("keepdim"), a.Dims("dim")...)
	}),
	"linalg_norm(Tensor self, Scalar? ord=None, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> " +
		"Tensor": one(func(a *Args) *tensor {
		return a.first(0).Norm(2, a.Bool("keepdim"), a.Dims("dim")...)
	}),
	"cdist(Tensor x1, Tensor x2, float p=2, int? compute_mode=None) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).CDist(a.Tensor("x2"), a.Float("p"), trace.Products(a.Int("compute_mode")))
	}),
	"count_nonzero(Tensor self, int? dim=None) -> Tensor": one(countNonzero),
	"count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).GtScalar().Sum(false, a.Dims("dim")...)
	}),
	"median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)": pair(
		func(a *Args) (*tensor, *tensor) {
			return a.first(0).PickDim(a.Bool("keepdim"), a.Dim("dim"))
		}),
	"cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)": pair(func(a *Args) (*tensor, *tensor) {
		return a.first(0).CumMax()
	}),
	"cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)": pair(func(a *Args) (*tensor, *tensor) {
		return a.first(0).CumMax()
	}),
	"any.dim(Tensor self, int dim, bool keepdim=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Any(a.Bool("keepdim"), a.Dim("dim"))
	}),
	"any(Tensor self) -> Tensor": unary(func(x *tensor) *tensor {
		return x.Any(false)
	}),
	"logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).LogSumExp(a.Bool("keepdim"), a.Dims("dim")...)
	}),
	"linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) " +
		"-> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Norm(a.power("ord"), a.Bool("keepdim"), a.Dims("dim")...)
	}),
	"cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor": one(func(a *Args) *tensor {
		return scanned(a, (*tensor).CumSum, (*tensor).CumSumTo)
	}),
	"cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor": one(func(a *Args) *tensor {
		return scanned(a, (*tensor).CumProd, (*tensor).CumProdTo)
	}),
	"sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)": pair(
		func(a *Args) (*tensor, *tensor) {
			return a.first(0).Sort(a.Dim("dim"))
		}),
	"sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values, Tensor " +
		"indices)": pair(func(a *Args) (*tensor, *tensor) {
		return a.first(0).Sort(a.Dim("dim"))
	}),
	"argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).ArgSort(a.Dim("dim"))
	}),
	"argsort.stable(Tensor self, *, bool stable, int dim=-1, bool descending=False) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).ArgSort(a.Dim("dim"))
		}),
	"topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor " +
		"indices)": pair(func(a *Args) (*tensor, *tensor) {
		return a.first(0).TopK(a.Int("k"), a.Dim("dim"))
	}),

	"cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor": one(func(a *Args) *tensor {
		return a.Tensor("x1").CosineSimilarity(a.Tensor("x2"), a.Dim("dim"))
	}),
	"pairwise_distance(Tensor x1, Tensor x2, float p=2, float eps=1e-06, bool keepdim=False) -> Tensor": one(
		func(a *Args) *tensor {
			return a.Tensor("x1").PairwiseDistance(a.Tensor("x2"), a.Float("p"))
		}),
	"norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, bool keepdim=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Norm(a.power("p"), a.Bool("keepdim"), a.Dims("dim")...)
	}),
	"norm.Scalar(Tensor self, Scalar p=2) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Norm(a.power("p"), false)
	}),
}

// cast is the first argument in the type that the result is to have.
func (a *Args) cast(name string) *tensor {
	x := a.first(0)
	if d := a.DType(name, x.DType()); d != x.DType() {
		return x.To(d)
	}
	return x
}

// scanned is a running sum or product, of the type that the call asks for.
func scanned(a *Args, plain func(x *tensor, dim int) *tensor,
	to func(x *tensor, d trace.DType, dim int) *tensor,
) *tensor {
	if a.IsNone("dtype") {
		return plain(a.first(0), a.Dim("dim"))
	}
	return to(a.first(0), a.DType("dtype", trace.F32), a.Dim("dim"))
}

// countNonzero counts in a dimension, or in all.
func countNonzero(a *Args) *tensor {
	return a.first(0).GtScalar().Sum(false, a.optionalDim("dim")...)
}

// optionalDim is an argument that names a dimension or None.
func (a *Args) optionalDim(name string) []int {
	if a.IsNone(name) {
		return nil
	}
	return []int{a.Dim(name)}
}

// power is the order of a norm, two unless it is told otherwise.
func (a *Args) power(name string) float64 {
	if a.IsNone(name) {
		return 2
	}
	return a.Float(name)
}

// typed is the body of a reduction that may be told the type of its result.
func typed(plain func(x *tensor, keep bool, dims ...int) *tensor,
	to func(x *tensor, d trace.DType, keep bool, dims ...int) *tensor,
) body {
	return one(func(a *Args) *tensor {
		var dims []int
		keep := false
		if a.op.index("dim") >= 0 {
			dims, keep = a.Dims("dim"), a.Bool("keepdim")
		}
		if a.IsNone("dtype") {
			return plain(a.first(0), keep, dims...)
		}
		return to(a.first(0), a.DType("dtype", trace.F32), keep, dims...)
	})
}
