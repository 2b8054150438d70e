package aten

import (
	"math"

	"github.com/vprof/vprof/profiler/trace"
)

// shapes are views and rearrangements.
var shapes = family{
	"view(Tensor(a) self, SymInt[] size) -> Tensor(a)":                                                                                    one(func(a *Args) *tensor { return a.first(0).View(a.Ints("size")...) }),
	"reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)":                                                                                one(func(a *Args) *tensor { return a.first(0).Reshape(a.Ints("shape")...) }),
	"flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)":                                                    one(func(a *Args) *tensor { return a.first(0).Flatten(a.Dim("start_dim"), a.Dim("end_dim")) }),
	"transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)":                                                                      one(func(a *Args) *tensor { return a.first(0).Transpose(a.Dim("dim0"), a.Dim("dim1")) }),
	"t(Tensor(a) self) -> Tensor(a)":                                                                                                      unary((*tensor).T),
	"permute(Tensor(a) self, int[] dims) -> Tensor(a)":                                                                                    one(func(a *Args) *tensor { return a.first(0).Permute(a.Dims("dims")...) }),
	"movedim.int(Tensor(a) self, int source, int destination) -> Tensor(a)":                                                               one(func(a *Args) *tensor { return a.first(0).MoveDim(a.Dim("source"), a.Dim("destination")) }),
	"unsqueeze(Tensor(a) self, int dim) -> Tensor(a)":                                                                                     one(func(a *Args) *tensor { return a.first(0).Unsqueeze(a.Dim("dim")) }),
	"squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)":                                                                                   one(func(a *Args) *tensor { return a.first(0).Squeeze(a.Dim("dim")) }),
	"expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)":                                                          one(func(a *Args) *tensor { return a.first(0).Expand(a.Ints("size")...) }),
	"expand_as(Tensor(a) self, Tensor other) -> Tensor(a)":                                                                                binary((*tensor).ExpandAs),
	"repeat(Tensor self, SymInt[] repeats) -> Tensor":                                                                                     one(func(a *Args) *tensor { return a.first(0).Repeat(a.Ints("repeats")...) }),
	"tile(Tensor self, SymInt[] dims) -> Tensor":                                                                                          one(func(a *Args) *tensor { return a.first(0).Tile(a.Ints("dims")...) }),
	"repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor":                       one(func(a *Args) *tensor { return a.first(0).RepeatInterleave(a.Int("repeats"), a.Dim("dim")) }),
	"split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]":                                                      list(func(a *Args) []*tensor { return a.first(0).Split(a.Int("split_size"), a.Dim("dim")) }),
	"split.sizes(Tensor(a -> *) self, SymInt[] split_size, int dim=0) -> Tensor(a)[]":                                                     list(func(a *Args) []*tensor { return a.first(0).SplitSizes(a.Ints("split_size"), a.Dim("dim")) }),
	"split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]":                                               list(func(a *Args) []*tensor { return a.first(0).SplitSizes(a.Ints("split_sizes"), a.Dim("dim")) }),
	"chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]":                                                                    list(func(a *Args) []*tensor { return a.first(0).Chunk(a.Int("chunks"), a.Dim("dim")) }),
	"unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]":                                                                           list(func(a *Args) []*tensor { return a.first(0).Unbind(a.Dim("dim")) }),
	"slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)":                           one(slice),
	"select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)":                                                                      one(func(a *Args) *tensor { return a.first(0).Select(a.Dim("dim"), a.Int("index")) }),
	"narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)":                                                           one(func(a *Args) *tensor { return a.first(0).Narrow(a.Dim("dim"), a.Int("start"), a.Int("length")) }),
	"unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)":                                                              one(func(a *Args) *tensor { return a.first(0).Unfold(a.Dim("dimension"), a.Int("size"), a.Int("step")) }),
	"cat(Tensor[] tensors, int dim=0) -> Tensor":                                                                                          one(func(a *Args) *tensor { return trace.Cat(a.Dim("dim"), a.Tensors("tensors")...) }),
	"stack(Tensor[] tensors, int dim=0) -> Tensor":                                                                                        one(func(a *Args) *tensor { return trace.Stack(a.Dim("dim"), a.Tensors("tensors")...) }),
	"flip(Tensor self, int[] dims) -> Tensor":                                                                                             one(func(a *Args) *tensor { return a.first(0).Flip(a.Dims("dims")...) }),
	"roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor":                                                                       one(func(a *Args) *tensor { return a.first(0).Roll(a.Dims("dims")...) }),
	"tril(Tensor self, SymInt diagonal=0) -> Tensor":                                                                                      unary((*tensor).Tril),
	"triu(Tensor self, SymInt diagonal=0) -> Tensor":                                                                                      unary((*tensor).Triu),
	"pixel_shuffle(Tensor self, int upscale_factor) -> Tensor":                                                                            one(func(a *Args) *tensor { return a.first(0).PixelShuffle(a.Int("upscale_factor")) }),
	"pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor":                                                                        one(func(a *Args) *tensor { return a.first(0).PixelUnshuffle(a.Int("downscale_factor")) }),
	"pad(Tensor self, SymInt[] pad, str mode='constant', float? value=None) -> Tensor":                                                    one(pad),
	"constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor":                                                                one(func(a *Args) *tensor { return a.first(0).Pad(a.Ints("pad")...) }),
	"contiguous(Tensor(a) self, *, MemoryFormat memory_format=contiguous_format) -> Tensor(a)":                                            one(contiguous),
	"clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor":                                                                   one(clone),
	"detach(Tensor(a) self) -> Tensor(a)":                                                                                                 unary((*tensor).Detach),
	"alias(Tensor(a) self) -> Tensor(a)":                                                                                                  unary(func(x *tensor) *tensor { return x.Slice(0, 0, math.MaxInt64) }),
	"to.dtype(Tensor(a) self, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)": one(func(a *Args) *tensor { return a.first(0).To(a.DType("dtype", a.first(0).DType())) }),
	"to.dtype_layout(Tensor(a) self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)": one(func(a *Args) *tensor { return a.first(0).To(a.DType("dtype", a.first(0).DType())) }),
	"to.device(Tensor(a) self, Device device, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)":                                                                  one(func(a *Args) *tensor { return a.first(0).To(a.DType("dtype", a.first(0).DType())) }),
	"type_as(Tensor self, Tensor other) -> Tensor":                              binary(func(x, y *tensor) *tensor { return x.To(y.DType()) }),
	"copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)": binary((*tensor).CopyInPlace),
}

// slice is x[..., start:end:step, ...]; a missing end is that of the dimension.
func slice(a *Args) *tensor {
	end := int64(math.MaxInt64)
	if !a.IsNone("end") {
		end = a.Int("end")
	}
	return a.first(0).SliceStep(a.Dim("dim"), a.Int("start"), end, a.Int("step"))
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
func clone(a *Args) *tensor { return a.first(0).Clone() }
