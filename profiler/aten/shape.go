package aten

import (
	"math"
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// shapeOperators are the operators for views and rearranged elements.
var shapeOperators = operatorFamily{
	"view":               view,
	"reshape":            (*tensor).Reshape,
	"flatten.using_ints": (*tensor).Flatten,
	"transpose.int transpose_ swapaxes swapdims": (*tensor).Transpose,
	"t t_":                             (*tensor).T,
	"permute":                          (*tensor).Permute,
	"movedim.int moveaxis.int":         (*tensor).MoveDim,
	"unsqueeze unsqueeze_":             (*tensor).Unsqueeze,
	"squeeze.dim":                      (*tensor).Squeeze,
	"expand broadcast_to":              (*tensor).Expand,
	"expand_as":                        (*tensor).ExpandAs,
	"repeat":                           (*tensor).Repeat,
	"tile":                             (*tensor).Tile,
	"repeat_interleave.self_int":       repeatInterleave,
	"split.Tensor unsafe_split.Tensor": (*tensor).Split,
	"split.sizes split_with_sizes unsafe_split_with_sizes": (*tensor).SplitSizes,
	"chunk unsafe_chunk":     (*tensor).Chunk,
	"unbind.int":             (*tensor).Unbind,
	"slice.Tensor":           slice,
	"select.int":             (*tensor).Select,
	"narrow":                 (*tensor).Narrow,
	"unfold":                 (*tensor).Unfold,
	"cat concat concatenate": withTrailingArgs(trace.Cat, "dim", "tensors"),
	"block_diag":             ops.BlockDiag,
	"squeeze_ squeeze_.dim squeeze_.dims squeeze squeeze.dims": (*tensor).SqueezeAll,
	"stack":                              withTrailingArgs(trace.Stack, "dim", "tensors"),
	"flip":                               (*tensor).Flip,
	"roll":                               withTrailingArgs((*tensor).Roll, "dims"),
	"tril":                               (*tensor).Tril,
	"triu":                               (*tensor).Triu,
	"pixel_shuffle":                      ops.PixelShuffle,
	"pixel_unshuffle":                    ops.PixelUnshuffle,
	"pad":                                pad,
	"constant_pad_nd":                    (*tensor).Pad,
	"contiguous":                         contiguous,
	"clone":                              clone,
	"detach detach_":                     (*tensor).Detach,
	"alias":                              func(x *tensor) *tensor { return x.Slice(0, 0, math.MaxInt64) },
	"to.dtype to.dtype_layout to.device": convertTo,
	"type_as":                            func(x, y *tensor) *tensor { return x.To(y.DType()) },
	"to.other":                           func(a *Args) *tensor { return a.first(0).To(a.Tensor("other").DType()) },
	"_to_copy": func(a *Args) *tensor {
		return a.first(0).ToCopy(a.DType("dtype", a.first(0).DType()))
	},
	"view_as":    func(x, y *tensor) *tensor { return x.View(y.Shape()...) },
	"reshape_as": func(x, y *tensor) *tensor { return x.Reshape(y.Shape()...) },
	"view.dtype": func(a *Args) *tensor {
		return a.first(0).ViewType(a.DType("dtype", trace.F32))
	},
	"unflatten.int":                    unflatten,
	"ravel":                            func(x *tensor) *tensor { return x.Contiguous().View(-1) },
	"movedim.intlist moveaxis.intlist": (*tensor).MoveDims,
	"numpy_T":                          reversed,
	"mT mH adjoint matrix_H":           transposeLast,
	"diagonal":                         (*tensor).Diagonal,
	"diag":                             diag,
	"diag_embed":                       (*tensor).DiagEmbed,
	"as_strided":                       asStrided,
	"broadcast_tensors":                trace.BroadcastAll,
	"meshgrid": func(a *Args) []*tensor {
		return trace.Meshgrid(false, a.Tensors("tensors")...)
	},
	"meshgrid.indexing": func(a *Args) []*tensor {
		return trace.Meshgrid(a.Text("indexing") == "xy", a.Tensors("tensors")...)
	},
	"tensor_split.sections": func(a *Args) []*tensor {
		x, d := a.first(0), a.Dim("dim")
		return x.TensorSplit(trace.Sections(x.Size(d), a.Int("sections")), d)
	},
	"tensor_split.indices": (*tensor).TensorSplit,
	"hsplit.int": func(a *Args) []*tensor {
		x := a.first(0)
		d := min(1, x.NDim()-1)
		return x.TensorSplit(trace.Sections(x.Size(d), a.Int("sections")), d)
	},
	"vsplit.int": func(a *Args) []*tensor {
		return a.first(0).TensorSplit(trace.Sections(a.first(0).Size(0), a.Int("sections")), 0)
	},
	"hstack":       concatenate(1, 1),
	"vstack":       concatenate(0, 2),
	"column_stack": concatenate(1, 2),
	"atleast_1d":   atLeast(1),
	"atleast_2d":   atLeast(2),
	"rot90": func(a *Args) *tensor {
		return a.first(0).Rot90(a.Int("k"), a.Dims("dims")[0], a.Dims("dims")[1])
	},
	"fliplr":          func(x *tensor) *tensor { return x.Flip(1) },
	"flipud":          func(x *tensor) *tensor { return x.Flip(0) },
	"channel_shuffle": (*tensor).ChannelShuffle,
	"diff":            diff,
	"reflection_pad1d reflection_pad2d reflection_pad3d":    (*tensor).PadReflect,
	"replication_pad1d replication_pad2d replication_pad3d": (*tensor).PadReplicate,
	"lift_fresh":      identity,
	"lift_fresh_copy": (*tensor).Clone,
	"tril_ triu_":     (*tensor).TriangleInPlace,
	"expand_copy":     func(a *Args) *tensor { return a.first(0).Expand(a.Ints("size")...).CloneContiguous() },
	"permute_copy":    func(a *Args) *tensor { return a.first(0).Permute(a.Dims("dims")...).CloneContiguous() },
	"view_as_real":    (*tensor).ViewAsReal,
	"view_as_complex": (*tensor).ViewAsComplex,
	"real":            (*tensor).Real,
	"imag":            (*tensor).Imag,
	"_conj":           (*tensor).Conj,
	"complex":         trace.Complex,
	"copy_":           (*tensor).CopyInPlace,
}

// slice records x[..., start:end:step, ...]. Without an end, it is the dimension's end.
func slice(a *Args) *tensor {
	return a.first(0).SliceStep(a.Dim("dim"), a.Int("start"), a.sliceEnd(), a.Int("step"))
}

func (a *Args) sliceEnd() int64 {
	if a.IsNone("end") {
		return math.MaxInt64
	}
	return a.Int("end")
}

func pad(a *Args) *tensor {
	x, pads := a.first(0), a.Ints("pad")
	switch a.Text("mode") {
	case "reflect":
		return x.PadReflect(pads...)
	case "replicate":
		return x.PadReplicate(pads...)
	case "circular":
		return x.PadCircular(pads...)
	default:
		return x.Pad(pads...)
	}
}

func contiguous(a *Args) *tensor {
	if a.Format("memory_format") == ChannelsLast {
		return a.first(0).ContiguousChannelsLast()
	}
	return a.first(0).Contiguous()
}

// clone records x.clone(). The result keeps the strides unless memory_format is set.
func clone(a *Args) *tensor {
	switch a.Format("memory_format") {
	case ContiguousFormat:
		return a.first(0).CloneContiguous()
	case ChannelsLast:
		return a.first(0).CloneChannelsLast()
	default:
		return a.first(0).Clone()
	}
}

// convertTo records x.to(). With copy=True it copies even if nothing changes.
func convertTo(a *Args) *tensor {
	x := a.first(0)
	d := a.DType("dtype", x.DType())
	last := a.Format("memory_format") == ChannelsLast
	switch {
	case d != x.DType():
		x = x.To(d)
	case a.op.index("copy") >= 0 && a.Bool("copy") && !last:
		return x.Clone()
	}
	if last {
		return x.ContiguousChannelsLast()
	}
	return x
}

// repeatInterleave records x.repeat_interleave along a dimension, or of the flattened tensor.
func repeatInterleave(a *Args) *tensor {
	x, dim := a.first(0), a.Dim("dim")
	if a.IsNone("dim") {
		return x.FlatRepeatInterleave(a.Int("repeats"))
	}
	return x.RepeatInterleave(a.Int("repeats"), dim)
}

func transposeLast(x *tensor) *tensor { return x.Transpose(-2, -1) }

func reversed(x *tensor) *tensor {
	return x.Permute(lists.Make(x.NDim(), func(d int) int { return x.NDim() - 1 - d })...)
}

// unflatten records a view of dimension dim as several dimensions.
func unflatten(a *Args) *tensor {
	x := a.first(0)
	dim := a.Dim("dim")
	if dim < 0 {
		dim += x.NDim()
	}
	sizes := slices.Clone(a.Ints("sizes"))
	known := int64(1)
	for _, n := range sizes {
		if n >= 0 {
			known *= n
		}
	}
	for i, n := range sizes {
		if n < 0 && known > 0 {
			sizes[i] = x.Size(dim) / known
		}
	}
	return x.View(slices.Concat(x.Shape()[:dim], sizes, x.Shape()[dim+1:])...)
}

// diff records torch.diff: the differences of neighboring elements, n times.
func diff(a *Args) *tensor {
	x, d := a.first(0), a.Dim("dim")
	ends := []*tensor{a.Tensor("prepend"), x, a.Tensor("append")}
	if ends[0] != nil || ends[2] != nil {
		x = trace.Cat(d, slices.DeleteFunc(ends, func(x *tensor) bool { return x == nil })...)
	}
	for range a.Int("n") {
		x = x.Diff(d)
	}
	return x
}

// atLeast returns an operator that adds dimensions of size one until there are n.
func atLeast(n int) func(x *tensor) *tensor {
	return func(x *tensor) *tensor {
		for x.NDim() < n {
			x = x.Unsqueeze(0)
		}
		return x
	}
}

// concatenate returns an operator such as torch.hstack, which concatenates tensors along dim, or along the first
// dimension if they are vectors.
func concatenate(dim, atLeast int) func(a *Args) *tensor {
	return func(a *Args) *tensor {
		xs := slices.Clone(a.Tensors("tensors"))
		for i, x := range xs {
			for x.NDim() < atLeast {
				x = x.Unsqueeze(0)
			}
			xs[i] = x
		}
		return trace.Cat(min(dim, xs[0].NDim()-1), xs...)
	}
}

// diag records torch.diag: the diagonal of a matrix, or a matrix with a vector as its diagonal.
func diag(a *Args) *tensor {
	x, offset := a.first(0), a.Int("diagonal")
	if x.NDim() == 1 {
		return x.DiagEmbed(offset)
	}
	return x.Diagonal(offset, 0, 1).CloneContiguous()
}

func asStrided(a *Args) *tensor {
	x := a.first(0)
	offset := x.Offset()
	if !a.IsNone("storage_offset") {
		offset = a.Int("storage_offset")
	}
	return x.AsStrided(a.Ints("size"), a.Ints("stride"), offset)
}

// view records x.view(size), or a copy if the strides do not allow a view. A graph may be exported without a GPU, where
// the result of attention was contiguous and contiguous() was left out.
func view(a *Args) *tensor {
	x, size := a.first(0), a.Ints("size")
	if !x.Viewable(size...) {
		return x.Reshape(size...)
	}
	return x.View(size...)
}
