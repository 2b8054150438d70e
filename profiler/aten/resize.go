package aten

import (
	"math"

	"github.com/vprof/vprof/profiler/trace"
)

// resizing are pooling, interpolation and sampling.
var resizing = family{
	"max_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool ceil_mode=False) -> Tensor":                                       one(func(a *Args) *tensor { return a.first(0).MaxPool(a.pool()) }),
	"max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> Tensor":                                       one(func(a *Args) *tensor { return a.first(0).MaxPool(a.pool()) }),
	"max_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) -> Tensor":                                       one(func(a *Args) *tensor { return a.first(0).MaxPool(a.pool()) }),
	"avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, bool ceil_mode=False, bool count_include_pad=True) -> Tensor":                             one(func(a *Args) *tensor { return a.first(0).AvgPool(a.pool()) }),
	"avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor": one(func(a *Args) *tensor { return a.first(0).AvgPool(a.pool()) }),
	"avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor": one(func(a *Args) *tensor { return a.first(0).AvgPool(a.pool()) }),
	"adaptive_avg_pool1d(Tensor self, int[1] output_size) -> Tensor":                                                                                                           one(adaptiveAvgPool),
	"adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor":                                                                                                        one(adaptiveAvgPool),
	"adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor":                                                                                                        one(adaptiveAvgPool),
	"im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor":                                                                        one(func(a *Args) *tensor { return a.first(0).Im2Col(a.window()) }),
	"col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor": one(func(a *Args) *tensor {
		size := a.Ints("output_size")
		return a.first(0).Col2Im(size[0], size[len(size)-1], a.window())
	}),

	"upsample_nearest1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor":                       one(func(a *Args) *tensor { return a.first(0).UpsampleNearest(a.resized()...) }),
	"upsample_nearest2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor":                       one(func(a *Args) *tensor { return a.first(0).UpsampleNearest(a.resized()...) }),
	"upsample_nearest3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor":                       one(func(a *Args) *tensor { return a.first(0).UpsampleNearest(a.resized()...) }),
	"upsample_linear1d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor":    one(func(a *Args) *tensor { return a.first(0).UpsampleLinear(a.resized()...) }),
	"upsample_bilinear2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor":  one(func(a *Args) *tensor { return a.first(0).UpsampleLinear(a.resized()...) }),
	"upsample_trilinear3d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor": one(func(a *Args) *tensor { return a.first(0).UpsampleLinear(a.resized()...) }),
	"upsample_bicubic2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor":   one(func(a *Args) *tensor { return a.first(0).UpsampleBicubic(a.resized()...) }),
	"grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor":     binary((*tensor).GridSample),
}

// pool are the arguments of a pooling.
func (a *Args) pool() trace.PoolArgs {
	p := trace.PoolArgs{Kernel: a.Ints("kernel_size"), Stride: a.Ints("stride"), Padding: a.Ints("padding"), Ceil: a.Bool("ceil_mode")}
	if a.op.index("dilation") >= 0 {
		p.Dilation = a.Ints("dilation")
	}
	return p
}

// window are those of taking images apart into columns, and back.
func (a *Args) window() trace.PoolArgs {
	return trace.PoolArgs{Kernel: a.Ints("kernel_size"), Stride: a.Ints("stride"), Padding: a.Ints("padding"), Dilation: a.Ints("dilation")}
}

func adaptiveAvgPool(a *Args) *tensor { return a.first(0).AdaptiveAvgPool(a.Ints("output_size")...) }

// resized is the size that an interpolation ends with: given, or the input's
// times the factors (compute_output_size of UpSample.cpp).
func (a *Args) resized() []int64 {
	if size := a.Ints("output_size"); size != nil {
		return size
	}
	in := a.first(0).Shape()[2:]
	size := make([]int64, len(in))
	for i, f := range a.Floats("scale_factors") {
		size[i] = int64(math.Floor(float64(in[i]) * f))
	}
	return size
}
