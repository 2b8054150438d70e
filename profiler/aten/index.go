package aten

import (
	"errors"
	"fmt"

	"github.com/vprof/vprof/profiler/trace"
)

// indexing are operators that pick elements by number.
var indexing = family{
	"masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).MaskedScatter(a.Tensor("mask"), a.Tensor("source"))
	}),
	"embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool " +
		"sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False) -> (Tensor, Tensor, Tensor, " +
		"Tensor)": several(embeddingBag),
	"embedding_bag.padding_idx(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq, int mode, " +
		"bool sparse, Tensor? per_sample_weights, bool include_last_offset, int? padding_idx) -> (Tensor, Tensor, " +
		"Tensor, Tensor)": several(embeddingBag),
	"index.Tensor(Tensor self, Tensor?[] indices) -> Tensor": one(picked),
	"index_select(Tensor self, int dim, Tensor index) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).IndexSelect(a.Dim("dim"), a.Tensor("index"))
	}),
	"index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).IndexAdd(a.Dim("dim"), a.Tensor("index"), a.Tensor("source"))
		}),
	"index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).IndexPut(a.Tensors("indices"), a.Tensor("values"), a.Bool("accumulate"))
		}),
	"index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor(a!)": one(
		func(a *Args) *tensor {
			return a.first(0).IndexPutInPlace(a.Tensors("indices"), a.Tensor("values"), a.Bool("accumulate"))
		}),
	"index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor(a!)": one(
		func(a *Args) *tensor {
			return a.first(0).IndexAddInPlace(a.Dim("dim"), a.Tensor("index"), a.Tensor("source"))
		}),
	"index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).IndexCopy(a.Dim("dim"), a.Tensor("index"), a.Tensor("source"))
	}),
	"index_copy_(Tensor(a!) self, int dim, Tensor index, Tensor source) -> Tensor(a!)": one(func(a *Args) *tensor {
		return a.first(0).IndexCopyInPlace(a.Dim("dim"), a.Tensor("index"), a.Tensor("source"))
	}),
	"index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).IndexFill(a.Tensor("index"))
	}),
	"index_fill_.int_Scalar(Tensor(a!) self, int dim, Tensor index, Scalar value) -> Tensor(a!)": one(
		func(a *Args) *tensor {
			return a.first(0).IndexFillInPlace(a.Tensor("index"))
		}),
	"scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).ScatterValue(a.Tensor("index"))
	}),
	"scatter_.src(Tensor(a!) self, int dim, Tensor index, Tensor src) -> Tensor(a!)": one(func(a *Args) *tensor {
		return a.first(0).ScatterFromInPlace(a.Tensor("index"), a.Tensor("src"))
	}),
	"scatter_add_(Tensor(a!) self, int dim, Tensor index, Tensor src) -> Tensor(a!)": one(func(a *Args) *tensor {
		return a.first(0).ScatterAddInPlace(a.Tensor("index"), a.Tensor("src"))
	}),
	"scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> " +
		"Tensor": one(scatterReduce),
	"scatter_reduce_.two(Tensor(a!) self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) " +
		"-> Tensor(a!)": one(scatterReduceInPlace),
	"repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).InterleavedPlaces(a.outputSize())
	}),
	"repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, SymInt? output_size=None) -> " +
		"Tensor": one(func(a *Args) *tensor {
		return a.first(0).RepeatInterleaveBy(a.Tensor("repeats"), a.Dim("dim"), a.outputSize())
	}),
	"take(Tensor self, Tensor index) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Take(a.Tensor("index"))
	}),
	"take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Gather(a.Tensor("indices"))
	}),
	"select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).SelectScatter(a.Tensor("src"), a.Dim("dim"), a.Int("index"))
	}),
	"slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> " +
		"Tensor": one(func(a *Args) *tensor {
		return a.first(0).SliceScatter(a.Tensor("src"), a.Dim("dim"), a.Int("start"), a.sliceEnd(), a.Int("step"))
	}),
	"diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).DiagonalScatter(a.Tensor("src"), a.Int("offset"), a.Dim("dim1"), a.Dim("dim2"))
		}),
	"bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).Search(a.Tensor("boundaries"), a.indexType())
		}),
	"searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, str? " +
		"side=None, Tensor? sorter=None) -> Tensor": one(func(a *Args) *tensor {
		return a.first(1).Search(a.Tensor("sorted_sequence"), a.indexType())
	}),
	"gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Gather(a.Tensor("index"))
	}),
	"scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Scatter(a.Tensor("index"), a.Tensor("src"))
	}),
	"scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).ScatterAdd(a.Tensor("index"), a.Tensor("src"))
	}),
	"scatter_.value(Tensor(a!) self, int dim, Tensor index, Scalar value) -> Tensor(a!)": one(func(a *Args) *tensor {
		return a.first(0).ScatterInPlace(a.Tensor("index"))
	}),
	"one_hot(Tensor self, int num_classes=-1) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).OneHot(a.Int("num_classes"))
	}),
	"embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool " +
		"sparse=False) -> Tensor": one(func(a *Args) *tensor {
		return a.Tensor("indices").Embedding(a.Tensor("weight"))
	}),
}

// indexType is the type of places among sorted values.
func (a *Args) indexType() trace.DType {
	if a.Bool("out_int32") {
		return trace.I32
	}
	return trace.I64
}

// picked is x[indices]. How much a boolean mask picks depends on the data.
func picked(a *Args) *tensor {
	for _, i := range a.Tensors("indices") {
		if i != nil && (i.DType() == trace.Bool || i.DType() == trace.U8) {
			a.Tape().Raise(errors.New("the size of what a boolean mask picks depends on the data"))
		}
	}
	return a.first(0).Index(a.Tensors("indices")...)
}

func scatterReduce(a *Args) *tensor {
	x, index, src, withSelf := a.first(0), a.Tensor("index"), a.Tensor("src"), a.Bool("include_self")
	switch how := a.Text("reduce"); how {
	case "sum":
		return x.ScatterSum(index, src, withSelf)
	case "prod", "mean", "amax", "amin":
		return x.ScatterReduce(how, index, src, withSelf)
	default:
		a.Tape().Raise(fmt.Errorf("reduce=%q is not one of sum, prod, mean, amax and amin", how))
		return nil
	}
}

// scatterReduceInPlace needs nothing of its own unless autograd looks on, which keeps a copy
// of self.
func scatterReduceInPlace(a *Args) *tensor {
	x, src := a.first(0), a.Tensor("src")
	if !a.Tape().Tracks(x, src) && a.Text("reduce") != "mean" {
		return x.ScatterAddInPlace(a.Tensor("index"), src)
	}
	return x.CopyInPlace(scatterReduce(a))
}

// outputSize is the size that a call must tell: without it the data decide.
func (a *Args) outputSize() int64 {
	if a.IsNone("output_size") {
		a.Tape().Raise(errors.New("without output_size the size of the result depends on the data"))
	}
	return a.Int("output_size")
}

func embeddingBag(a *Args) []*tensor {
	return a.first(0).EmbeddingBag(a.Tensor("indices"), a.Tensor("offsets"), trace.BagMode(a.Int("mode")),
		a.Tensor("per_sample_weights"), a.Bool("include_last_offset"))
}
