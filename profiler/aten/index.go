package aten

// indexing are operators that pick elements by number.
var indexing = family{
	"index.Tensor(Tensor self, Tensor?[] indices) -> Tensor":                                    one(func(a *Args) *tensor { return a.first(0).Index(a.Tensors("indices")...) }),
	"index_select(Tensor self, int dim, Tensor index) -> Tensor":                                one(func(a *Args) *tensor { return a.first(0).IndexSelect(a.Dim("dim"), a.Tensor("index")) }),
	"index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor": one(func(a *Args) *tensor { return a.first(0).IndexAdd(a.Dim("dim"), a.Tensor("index"), a.Tensor("source")) }),
	"index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).IndexPut(a.Tensors("indices"), a.Tensor("values"), a.Bool("accumulate"))
	}),
	"gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor":                                             one(func(a *Args) *tensor { return a.first(0).Gather(a.Tensor("index")) }),
	"scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor":                                                       one(func(a *Args) *tensor { return a.first(0).Scatter(a.Tensor("index"), a.Tensor("src")) }),
	"scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor":                                                       one(func(a *Args) *tensor { return a.first(0).ScatterAdd(a.Tensor("index"), a.Tensor("src")) }),
	"scatter_.value(Tensor(a!) self, int dim, Tensor index, Scalar value) -> Tensor(a!)":                                          one(func(a *Args) *tensor { return a.first(0).ScatterInPlace(a.Tensor("index")) }),
	"one_hot(Tensor self, int num_classes=-1) -> Tensor":                                                                          one(func(a *Args) *tensor { return a.first(0).OneHot(a.Int("num_classes")) }),
	"embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor": one(func(a *Args) *tensor { return a.Tensor("indices").Embedding(a.Tensor("weight")) }),
}
