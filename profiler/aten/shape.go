package aten

import (
	"math"
	"slices"

	"github.com/vprof/vprof/profiler/trace"
)

// shapes are views and rearrangements.
var shapes = family{
	"view(Tensor(a) self, SymInt[] size) -> Tensor(a)": one(view),
	"reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).Reshape(a.Ints("shape")...)
	}),
	"flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).Flatten(a.Dim("start_dim"), a.Dim("end_dim"))
	}),
	"transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).Transpose(a.Dim("dim0"), a.Dim("dim1"))
	}),
	"t(Tensor(a) self) -> Tensor(a)": unary((*tensor).T),
	"permute(Tensor(a) self, int[] dims) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).Permute(a.Dims("dims")...)
	}),
	"movedim.int(Tensor(a) self, int source, int destination) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).MoveDim(a.Dim("source"), a.Dim("destination"))
	}),
	"unsqueeze(Tensor(a) self, int dim) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).Unsqueeze(a.Dim("dim"))
	}),
	"squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).Squeeze(a.Dim("dim"))
	}),
	"expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).Expand(a.Ints("size")...)
	}),
	"expand_as(Tensor(a) self, Tensor other) -> Tensor(a)": binary((*tensor).ExpandAs),
	"repeat(Tensor self, SymInt[] repeats) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Repeat(a.Ints("repeats")...)
	}),
	"tile(Tensor self, SymInt[] dims) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Tile(a.Ints("dims")...)
	}),
	"repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor": one(repeatInterleave),
	"split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]": list(func(a *Args) []*tensor {
		return a.first(0).Split(a.Int("split_size"), a.Dim("dim"))
	}),
	"split.sizes(Tensor(a -> *) self, SymInt[] split_size, int dim=0) -> Tensor(a)[]": list(func(a *Args) []*tensor {
		return a.first(0).SplitSizes(a.Ints("split_size"), a.Dim("dim"))
	}),
	"split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]": list(
		func(a *Args) []*tensor {
			return a.first(0).SplitSizes(a.Ints("split_sizes"), a.Dim("dim"))
		}),
	"chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]": list(func(a *Args) []*tensor {
		return a.first(0).Chunk(a.Int("chunks"), a.Dim("dim"))
	}),
	"unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]": list(func(a *Args) []*tensor {
		return a.first(0).Unbind(a.Dim("dim"))
	}),
	"slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)": one(slice),
	"select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).Select(a.Dim("dim"), a.Int("index"))
	}),
	"narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).Narrow(a.Dim("dim"), a.Int("start"), a.Int("length"))
	}),
	"unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).Unfold(a.Dim("dimension"), a.Int("size"), a.Int("step"))
	}),
	"cat(Tensor[] tensors, int dim=0) -> Tensor": one(func(a *Args) *tensor {
		return trace.Cat(a.Dim("dim"), a.Tensors("tensors")...)
	}),
	"block_diag(Tensor[] tensors) -> Tensor": one(func(a *Args) *tensor {
		return trace.BlockDiag(a.Tensors("tensors")...)
	}),
	"t_(Tensor(a!) self) -> Tensor(a!)": unary((*tensor).T),
	"transpose_(Tensor(a!) self, int dim0, int dim1) -> Tensor(a!)": one(func(a *Args) *tensor {
		return a.first(0).Transpose(a.Dim("dim0"), a.Dim("dim1"))
	}),
	"squeeze_(Tensor(a!) self) -> Tensor(a!)": unary(func(x *tensor) *tensor {
		return x.SqueezeAll()
	}),
	"squeeze_.dim(Tensor(a!) self, int dim) -> Tensor(a!)": one(func(a *Args) *tensor {
		return a.first(0).SqueezeAll(a.Dim("dim"))
	}),
	"squeeze_.dims(Tensor(a!) self, int[] dim) -> Tensor(a!)": one(func(a *Args) *tensor {
		return a.first(0).SqueezeAll(a.Dims("dim")...)
	}),
	"unsqueeze_(Tensor(a!) self, int dim) -> Tensor(a!)": one(func(a *Args) *tensor {
		return a.first(0).Unsqueeze(a.Dim("dim"))
	}),
	"stack(Tensor[] tensors, int dim=0) -> Tensor": one(func(a *Args) *tensor {
		return trace.Stack(a.Dim("dim"), a.Tensors("tensors")...)
	}),
	"flip(Tensor self, int[] dims) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Flip(a.Dims("dims")...)
	}),
	"roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Roll(a.Dims("dims")...)
	}),
	"tril(Tensor self, SymInt diagonal=0) -> Tensor": unary((*tensor).Tril),
	"triu(Tensor self, SymInt diagonal=0) -> Tensor": unary((*tensor).Triu),
	"pixel_shuffle(Tensor self, int upscale_factor) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).PixelShuffle(a.Int("upscale_factor"))
	}),
	"pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).PixelUnshuffle(a.Int("downscale_factor"))
	}),
	"pad(Tensor self, SymInt[] pad, str mode='constant', float? value=None) -> Tensor": one(pad),
	"constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Pad(a.Ints("pad")...)
	}),
	"contiguous(Tensor(a) self, *, MemoryFormat memory_format=contiguous_format) -> Tensor(a)": one(contiguous),
	"clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor":                        one(clone),
	"detach(Tensor(a) self) -> Tensor(a)":                                                      unary((*tensor).Detach),
	"alias(Tensor(a) self) -> Tensor(a)": unary(func(x *tensor) *tensor {
		return x.Slice(0, 0, math.MaxInt64)
	}),
	"to.dtype(Tensor(a) self, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? " +
		"memory_format=None) -> Tensor(a)": one(to),
	"to.dtype_layout(Tensor(a) self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)": one(to),
	"to.device(Tensor(a) self, Device device, ScalarType dtype, bool non_blocking=False, bool copy=False, " +
		"MemoryFormat? memory_format=None) -> Tensor(a)": one(to),
	"type_as(Tensor self, Tensor other) -> Tensor": binary(func(x, y *tensor) *tensor { return x.To(y.DType()) }),
	"to.other(Tensor(a) self, Tensor other, bool non_blocking=False, bool copy=False, MemoryFormat? " +
		"memory_format=None) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).To(a.Tensor("other").DType())
	}),
	"_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None, bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).ToCopy(a.DType("dtype", a.first(0).DType()))
		}),
	"view_as(Tensor(a) self, Tensor other) -> Tensor(a)": binary(func(x, y *tensor) *tensor {
		return x.View(y.Shape()...)
	}),
	"reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)": binary(func(x, y *tensor) *tensor {
		return x.Reshape(y.Shape()...)
	}),
	"view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).ViewType(a.DType("dtype", trace.F32))
	}),
	"squeeze(Tensor(a) self) -> Tensor(a)": unary(func(x *tensor) *tensor {
		return x.SqueezeAll()
	}),
	"squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).SqueezeAll(a.Dims("dim")...)
	}),
	"unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)": one(unflatten),
	"ravel(Tensor(a) self) -> Tensor(a)": unary(func(x *tensor) *tensor {
		return x.Contiguous().View(-1)
	}),
	"swapaxes(Tensor(a) self, int axis0, int axis1) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).Transpose(a.Dim("axis0"), a.Dim("axis1"))
	}),
	"swapdims(Tensor(a) self, int dim0, int dim1) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).Transpose(a.Dim("dim0"), a.Dim("dim1"))
	}),
	"movedim.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).MoveDims(a.Dims("source"), a.Dims("destination"))
	}),
	"moveaxis.int(Tensor(a) self, int source, int destination) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).MoveDim(a.Dim("source"), a.Dim("destination"))
	}),
	"moveaxis.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).MoveDims(a.Dims("source"), a.Dims("destination"))
	}),
	"numpy_T(Tensor(a) self) -> Tensor(a)": unary(reversed), "mT(Tensor(a) self) -> Tensor(a)": unary(transposeLast),
	"mH(Tensor(a) self) -> Tensor(a)":       unary(transposeLast),
	"adjoint(Tensor(a) self) -> Tensor(a)":  unary(transposeLast),
	"matrix_H(Tensor(a) self) -> Tensor(a)": unary(transposeLast),
	"diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).Diagonal(a.Int("offset"), a.Dim("dim1"), a.Dim("dim2"))
	}),
	"diag(Tensor self, int diagonal=0) -> Tensor": one(diag),
	"diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).DiagEmbed(a.Int("offset"))
	}),
	"as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)": one(asStrided),
	"broadcast_to(Tensor(a) self, SymInt[] size) -> Tensor(a)": one(func(a *Args) *tensor {
		return a.first(0).Expand(a.Ints("size")...)
	}),
	"broadcast_tensors(Tensor[] tensors) -> Tensor[]": list(func(a *Args) []*tensor {
		return trace.BroadcastAll(a.Tensors("tensors")...)
	}),
	"meshgrid(Tensor[] tensors) -> Tensor[]": list(func(a *Args) []*tensor {
		return trace.Meshgrid(false, a.Tensors("tensors")...)
	}),
	"meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]": list(func(a *Args) []*tensor {
		return trace.Meshgrid(a.Text("indexing") == "xy", a.Tensors("tensors")...)
	}),
	"tensor_split.sections(Tensor(a -> *) self, SymInt sections, int dim=0) -> Tensor(a)[]": list(
		func(a *Args) []*tensor {
			x, d := a.first(0), a.Dim("dim")
			return x.TensorSplit(trace.Sections(x.Size(d), a.Int("sections")), d)
		}),
	"tensor_split.indices(Tensor(a -> *) self, SymInt[] indices, int dim=0) -> Tensor(a)[]": list(
		func(a *Args) []*tensor {
			return a.first(0).TensorSplit(a.Ints("indices"), a.Dim("dim"))
		}),
	"unsafe_split.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]": list(func(a *Args) []*tensor {
		return a.first(0).Split(a.Int("split_size"), a.Dim("dim"))
	}),
	"unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]": list(func(a *Args) []*tensor {
		return a.first(0).Chunk(a.Int("chunks"), a.Dim("dim"))
	}),
	"unsafe_split_with_sizes(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]": list(func(a *Args) []*tensor {
		return a.first(0).SplitSizes(a.Ints("split_sizes"), a.Dim("dim"))
	}),
	"hsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]": list(func(a *Args) []*tensor {
		x := a.first(0)
		d := min(1, x.NDim()-1)
		return x.TensorSplit(trace.Sections(x.Size(d), a.Int("sections")), d)
	}),
	"vsplit.int(Tensor(a -> *) self, int sections) -> Tensor(a)[]": list(func(a *Args) []*tensor {
		return a.first(0).TensorSplit(trace.Sections(a.first(0).Size(0), a.Int("sections")), 0)
	}),
	"concat(Tensor[] tensors, int dim=0) -> Tensor": one(func(a *Args) *tensor {
		return trace.Cat(a.Dim("dim"), a.Tensors("tensors")...)
	}),
	"concatenate(Tensor[] tensors, int dim=0) -> Tensor": one(func(a *Args) *tensor {
		return trace.Cat(a.Dim("dim"), a.Tensors("tensors")...)
	}),
	"hstack(Tensor[] tensors) -> Tensor": joined(1, 1), "vstack(Tensor[] tensors) -> Tensor": joined(0, 2),
	"column_stack(Tensor[] tensors) -> Tensor": joined(1, 2),
	"atleast_1d(Tensor self) -> Tensor":        atLeast(1), "atleast_2d(Tensor self) -> Tensor": atLeast(2),
	"rot90(Tensor self, int k=1, int[] dims=[0,1]) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Rot90(a.Int("k"), a.Dims("dims")[0], a.Dims("dims")[1])
	}),
	"fliplr(Tensor self) -> Tensor": unary(func(x *tensor) *tensor {
		return x.Flip(1)
	}), "flipud(Tensor self) -> Tensor": unary(func(x *tensor) *tensor { return x.Flip(0) }),
	"channel_shuffle(Tensor self, SymInt groups) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).ChannelShuffle(a.Int("groups"))
	}),
	"diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor": one(diff),
	"reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).PadReflect(a.Ints("padding")...)
	}),
	"reflection_pad2d(Tensor self, SymInt[4] padding) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).PadReflect(a.Ints("padding")...)
	}),
	"reflection_pad3d(Tensor self, SymInt[6] padding) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).PadReflect(a.Ints("padding")...)
	}),
	"replication_pad1d(Tensor self, SymInt[2] padding) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).PadReplicate(a.Ints("padding")...)
	}),
	"replication_pad2d(Tensor self, SymInt[4] padding) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).PadReplicate(a.Ints("padding")...)
	}),
	"replication_pad3d(Tensor self, SymInt[6] padding) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).PadReplicate(a.Ints("padding")...)
	}),
	"lift_fresh(Tensor(a) self) -> Tensor(a)":                 unary(itself),
	"lift_fresh_copy(Tensor self) -> Tensor":                  unary((*tensor).Clone),
	"detach_(Tensor(a!) self) -> Tensor(a!)":                  unary((*tensor).Detach),
	"tril_(Tensor(a!) self, SymInt diagonal=0) -> Tensor(a!)": unary((*tensor).TriangleInPlace),
	"triu_(Tensor(a!) self, SymInt diagonal=0) -> Tensor(a!)": unary((*tensor).TriangleInPlace),
	"expand_copy(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Expand(a.Ints("size")...).CloneContiguous()
	}),
	"permute_copy(Tensor self, int[] dims) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Permute(a.Dims("dims")...).CloneContiguous()
	}),
	"view_as_real(Tensor(a) self) -> Tensor(a)":                                 unary((*tensor).ViewAsReal),
	"view_as_complex(Tensor(a) self) -> Tensor(a)":                              unary((*tensor).ViewAsComplex),
	"real(Tensor(a) self) -> Tensor(a)":                                         unary((*tensor).Real),
	"imag(Tensor(a) self) -> Tensor(a)":                                         unary((*tensor).Imag),
	"_conj(Tensor(a) self) -> Tensor(a)":                                        unary((*tensor).Conj),
	"complex(Tensor real, Tensor imag) -> Tensor":                               binary(trace.Complex),
	"copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)": binary((*tensor).CopyInPlace),
}

// slice is x[..., start:end:step, ...]; a missing end is that of the dimension.
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

// clone keeps the strides unless it is told otherwise.
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

// to is a conversion; with copy=True there is one even if nothing changes.
func to(a *Args) *tensor {
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

// repeatInterleave repeats along a dimension, or the flattened tensor.
func repeatInterleave(a *Args) *tensor {
	x, dim := a.first(0), a.Dim("dim")
	if a.IsNone("dim") {
		return x.FlatRepeatInterleave(a.Int("repeats"))
	}
	return x.RepeatInterleave(a.Int("repeats"), dim)
}

func transposeLast(x *tensor) *tensor { return x.Transpose(-2, -1) }

func reversed(x *tensor) *tensor {
	order := make([]int, x.NDim())
	for d := range order {
		order[d] = x.NDim() - 1 - d
	}
	return x.Permute(order...)
}

// unflatten views dimension dim as several.
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

// diff is the difference of neighbors, n times.
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

// atLeast adds dimensions of size one until there are n.
func atLeast(n int) body {
	return unary(func(x *tensor) *tensor {
		for x.NDim() < n {
			x = x.Unsqueeze(0)
		}
		return x
	})
}

// joined puts tensors together along a dimension, which is the first of
// vectors.
func joined(dim, atLeast int) body {
	return one(func(a *Args) *tensor {
		xs := slices.Clone(a.Tensors("tensors"))
		for i, x := range xs {
			for x.NDim() < atLeast {
				x = x.Unsqueeze(0)
			}
			xs[i] = x
		}
		return trace.Cat(min(dim, xs[0].NDim()-1), xs...)
	})
}

// diag is the diagonal of a matrix, or a matrix with a vector as its diagonal.
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

// view is x.view(size). An exported graph leaves out contiguous() of a tensor that was
// contiguous where it was exported, and need not be on a GPU: attention lays out its
// result otherwise there.
func view(a *Args) *tensor {
	x, size := a.first(0), a.Ints("size")
	if !x.Viewable(size...) {
		return x.Reshape(size...)
	}
	return x.View(size...)
}
