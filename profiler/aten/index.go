package aten

import (
	"errors"
	"fmt"

	"github.com/vprof/vprof/profiler/trace"
)

// indexOperators has the operators that select elements by index.
var indexOperators = operatorFamily{
	"masked_scatter": (*tensor).MaskedScatter,
	"embedding_bag embedding_bag.padding_idx": withTrailingArgs((*tensor).EmbeddingBag,
		"indices", "offsets", "mode", "per_sample_weights", "include_last_offset"),
	"index.Tensor":             selectByIndex,
	"nonzero":                  nonzero,
	"nonzero_numpy where":      func(a *Args) []*tensor { return nonzero(a).Unbind(1) },
	"_unique2":                 unique,
	"masked_select":            func(a *Args) *tensor { return a.first(0).MaskedSelect(a.maskIndex(a.Tensor("mask"))) },
	"index_select":             (*tensor).IndexSelect,
	"index_add":                (*tensor).IndexAdd,
	"index_put":                (*tensor).IndexPut,
	"index_put_":               (*tensor).IndexPutInPlace,
	"index_add_":               (*tensor).IndexAddInPlace,
	"index_copy":               (*tensor).IndexCopy,
	"index_copy_":              (*tensor).IndexCopyInPlace,
	"index_fill.int_Scalar":    withTrailingArgs((*tensor).IndexFill, "index"),
	"index_fill_.int_Scalar":   withTrailingArgs((*tensor).IndexFillInPlace, "index"),
	"scatter.value":            withTrailingArgs((*tensor).ScatterValue, "index"),
	"scatter_.src":             withTrailingArgs((*tensor).ScatterFromInPlace, "index", "src"),
	"scatter_add_":             withTrailingArgs((*tensor).ScatterAddInPlace, "index", "src"),
	"scatter_reduce.two":       scatterReduce,
	"scatter_reduce_.two":      scatterReduceInPlace,
	"repeat_interleave.Tensor": func(a *Args) *tensor { return a.first(0).InterleavedPlaces(a.outputSize()) },
	"repeat_interleave.self_Tensor": func(a *Args) *tensor {
		return a.first(0).RepeatInterleaveBy(a.Tensor("repeats"), a.Dim("dim"), a.outputSize())
	},
	"take":           (*tensor).Take,
	"take_along_dim": (*tensor).Gather,
	"select_scatter": (*tensor).SelectScatter,
	"slice_scatter": func(a *Args) *tensor {
		return a.first(0).SliceScatter(a.Tensor("src"), a.Dim("dim"), a.Int("start"), a.sliceEnd(), a.Int("step"))
	},
	"diagonal_scatter": (*tensor).DiagonalScatter,
	"bucketize.Tensor": func(a *Args) *tensor { return a.first(0).SearchSorted(a.Tensor("boundaries"), a.indexType()) },
	"searchsorted.Tensor": func(a *Args) *tensor {
		return a.first(1).SearchSorted(a.Tensor("sorted_sequence"), a.indexType())
	},
	"gather":         withTrailingArgs((*tensor).Gather, "index"),
	"scatter.src":    withTrailingArgs((*tensor).Scatter, "index", "src"),
	"scatter_add":    withTrailingArgs((*tensor).ScatterAdd, "index", "src"),
	"scatter_.value": withTrailingArgs((*tensor).ScatterInPlace, "index"),
	"one_hot":        (*tensor).OneHot,
	"embedding":      withTrailingArgs((*tensor).Embedding, "indices", "weight"),
}

// indexType returns the type of an index result: int32 if out_int32 is set, else int64.
func (a *Args) indexType() trace.DType {
	if a.Bool("out_int32") {
		return trace.I32
	}
	return trace.I64
}

// selectByIndex records x[indices].
func selectByIndex(a *Args) *tensor {
	for _, i := range a.Tensors("indices") {
		a.maskIndex(i)
	}
	return a.first(0).Index(a.Tensors("indices")...)
}

// maskIndex returns an index tensor that may be a mask. The number of elements that it selects depends on the data, so
// the caller must set it.
func (a *Args) maskIndex(x *tensor) *tensor {
	if x != nil && (x.DType() == trace.Bool || x.DType() == trace.U8) && !x.TrueIsKnown() {
		a.Tape().Raise(errors.New("the number of elements that a boolean mask selects depends on the data, which " +
			"vprof does not have; run your own script with \"vprof run\""))
	}
	return x
}

// nonzero records x.nonzero(), see [Args.maskIndex].
func nonzero(a *Args) *tensor {
	if x := a.first(0); !x.TrueIsKnown() {
		a.Tape().Raise(errors.New("the number of nonzero elements depends on the data, which vprof does not have; " +
			"run your own script with \"vprof run\""))
	}
	return a.first(0).Nonzero()
}

// unique records torch.unique(x). The caller must set the number of distinct elements.
func unique(a *Args) []*tensor {
	x := a.first(0)
	if !x.TrueIsKnown() {
		a.Tape().Raise(errors.New("the number of unique elements depends on the data, which vprof does not have; run " +
			"your own script with \"vprof run\""))
	}
	return x.Unique(x.Trues(), a.Bool("return_inverse"), a.Bool("return_counts"))
}

func scatterReduce(a *Args) *tensor {
	x, index, src, withSelf := a.first(0), a.Tensor("index"), a.Tensor("src"), a.Bool("include_self")
	switch how := a.Text("reduce"); how {
	case "sum":
		return x.ScatterSum(index, src, withSelf)
	case "prod", "mean", "amax", "amin":
		return x.ScatterReduce(how, index, src, withSelf)
	default:
		a.Tape().Raise(fmt.Errorf("invalid reduce=%q: need sum, prod, mean, amax or amin", how))
		return nil
	}
}

// scatterReduceInPlace records scatter_reduce_. It allocates only if autograd records it: then it saves a copy of self.
func scatterReduceInPlace(a *Args) *tensor {
	x, src := a.first(0), a.Tensor("src")
	if !a.Tape().RequiresGrad(x, src) && a.Text("reduce") != "mean" {
		return x.ScatterAddInPlace(a.Tensor("index"), src)
	}
	return x.CopyInPlace(scatterReduce(a))
}

// outputSize returns the argument output_size, which a call must pass since the size otherwise depends on the data.
func (a *Args) outputSize() int64 {
	if a.IsNone("output_size") {
		a.Tape().Raise(errors.New("output_size is missing, so the size of the result depends on the data; pass " +
			"output_size, or run your own script with \"vprof run\""))
	}
	return a.Int("output_size")
}
