package aten

import (
	"math"

	"github.com/vprof/vprof/profiler/trace"
)

// resizing are pooling, interpolation and sampling.
var resizing = family{
	"max_pool1d_with_indices(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] " +
		"dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)": pair(func(a *Args) (*tensor, *tensor) {
		return a.first(0).MaxPoolIndices(a.pool())
	}),
	"max_unpool2d(Tensor self, Tensor indices, SymInt[2] output_size) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).MaxUnpool(a.Tensor("indices"), a.Ints("output_size")...)
	}),
	"max_unpool3d(Tensor self, Tensor indices, SymInt[3] output_size, int[3] stride, int[3] padding) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).MaxUnpool(a.Tensor("indices"), a.Ints("output_size")...)
		}),
	"fractional_max_pool2d(Tensor self, int[2] kernel_size, int[2] output_size, Tensor random_samples) -> (Tensor, " +
		"Tensor)": pair(fractionalMaxPool),
	"fractional_max_pool3d(Tensor self, int[3] kernel_size, int[3] output_size, Tensor random_samples) -> (Tensor, " +
		"Tensor)": pair(fractionalMaxPool),
	"max_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool " +
		"ceil_mode=False) -> Tensor": batched((*tensor).MaxPool),
	"max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool " +
		"ceil_mode=False) -> Tensor": batched((*tensor).MaxPool),
	"max_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool " +
		"ceil_mode=False) -> Tensor": batched((*tensor).MaxPool),
	"avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, bool ceil_mode=False, bool " +
		"count_include_pad=True) -> Tensor": batched((*tensor).AvgPool),
	"avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, bool " +
		"count_include_pad=True, int? divisor_override=None) -> Tensor": batched((*tensor).AvgPool),
	"avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool ceil_mode=False, bool " +
		"count_include_pad=True, int? divisor_override=None) -> Tensor": batched((*tensor).AvgPool),
	"adaptive_avg_pool1d(Tensor self, int[1] output_size) -> Tensor":    one(adaptiveAvgPool),
	"adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor": one(adaptiveAvgPool),
	"adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor": one(adaptiveAvgPool),
	"im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).Im2Col(a.window())
		}),
	"col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) " +
		"-> Tensor": one(func(a *Args) *tensor {
		size := a.Ints("output_size")
		return a.first(0).Col2Im(size[0], size[len(size)-1], a.window())
	}),

	"max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] " +
		"dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)": pair(func(a *Args) (*tensor, *tensor) {
		return a.first(0).MaxPoolIndices(a.pool())
	}),
	"max_pool3d_with_indices(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] " +
		"dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)": pair(func(a *Args) (*tensor, *tensor) {
		return a.first(0).MaxPoolIndices(a.pool())
	}),
	"adaptive_max_pool1d(Tensor self, int[1] output_size) -> (Tensor, Tensor)": pair(adaptiveMaxPool),
	"adaptive_max_pool2d(Tensor self, int[2] output_size) -> (Tensor, Tensor)": pair(adaptiveMaxPool),
	"adaptive_max_pool3d(Tensor self, int[3] output_size) -> (Tensor, Tensor)": pair(adaptiveMaxPool),
	"_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor":       one(adaptiveAvgPool),
	"_adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor":       one(adaptiveAvgPool),
	"upsample_nearest1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor": resized((*tensor).
		UpsampleNearest), "upsample_nearest1d(Tensor self, SymInt[1] output_size, float? scales=None) -> Tensor": resized((*tensor).UpsampleNearest),
	"upsample_nearest2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor": resized((*tensor).
		UpsampleNearest),
	"upsample_nearest2d(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None) -> Tensor":                       resized((*tensor).UpsampleNearest),
	"upsample_nearest3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor":                                      resized((*tensor).UpsampleNearest),
	"upsample_nearest3d(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None, float? scales_w=None) -> Tensor": resized((*tensor).UpsampleNearest),
	"upsample_linear1d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> " +
		"Tensor": resized((*tensor).UpsampleLinear),
	"upsample_linear1d(Tensor self, SymInt[1] output_size, bool align_corners, float? scales=None) -> Tensor": resized((*tensor).UpsampleLinear),
	"upsample_bilinear2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> " +
		"Tensor": resized((*tensor).UpsampleLinear),
	"upsample_bilinear2d(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? " +
		"scales_w=None) -> Tensor": resized((*tensor).UpsampleLinear),
	"upsample_trilinear3d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> " +
		"Tensor": resized((*tensor).UpsampleLinear),
	"upsample_trilinear3d(Tensor self, SymInt[3] output_size, bool align_corners, float? scales_d=None, float? " +
		"scales_h=None, float? scales_w=None) -> Tensor": resized((*tensor).UpsampleLinear),
	"upsample_bicubic2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> " +
		"Tensor": resized((*tensor).UpsampleBicubic),
	"upsample_bicubic2d(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? " +
		"scales_w=None) -> Tensor": resized((*tensor).UpsampleBicubic),
	"_upsample_nearest_exact1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor": resized(
		(*tensor).UpsampleNearestExact),
	"_upsample_nearest_exact1d(Tensor self, SymInt[1] output_size, float? scales=None) -> Tensor": resized((*tensor).UpsampleNearestExact),
	"_upsample_nearest_exact2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor": resized(
		(*tensor).UpsampleNearestExact),
	"_upsample_nearest_exact2d(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None) -> " +
		"Tensor": resized((*tensor).UpsampleNearestExact),
	"_upsample_nearest_exact3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor": resized(
		(*tensor).UpsampleNearestExact),
	"_upsample_nearest_exact3d(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None, " +
		"float? scales_w=None) -> Tensor": resized((*tensor).UpsampleNearestExact),
	"_upsample_bilinear2d_aa.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) " +
		"-> Tensor": resized((*tensor).UpsampleLinearAntialiased),
	"_upsample_bilinear2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? " +
		"scales_w=None) -> Tensor": resized((*tensor).UpsampleLinearAntialiased),
	"_upsample_bicubic2d_aa.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> " +
		"Tensor": resized((*tensor).UpsampleBicubicAntialiased),
	"_upsample_bicubic2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? " +
		"scales_w=None) -> Tensor": resized((*tensor).UpsampleBicubicAntialiased),
	"grid_sampler_2d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> " +
		"Tensor": binary((*tensor).GridSample),
	"grid_sampler_3d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> " +
		"Tensor": binary((*tensor).GridSample),
	"affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).AffineGrid(a.Ints("size")...)
	}),
	"grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor": binary((*tensor).GridSample),
}

// pool are the arguments of a pooling.
func (a *Args) pool() trace.PoolArgs {
	p := trace.PoolArgs{
		Kernel: a.Ints("kernel_size"), Stride: a.Ints("stride"), Padding: a.Ints("padding"),
		Ceil: a.Bool("ceil_mode"),
	}
	if a.op.index("dilation") >= 0 {
		p.Dilation = a.Ints("dilation")
	}
	return p
}

// window are those of taking images apart into columns, and back.
func (a *Args) window() trace.PoolArgs {
	return trace.PoolArgs{
		Kernel: a.Ints("kernel_size"), Stride: a.Ints("stride"), Padding: a.Ints("padding"),
		Dilation: a.Ints("dilation"),
	}
}

func adaptiveAvgPool(a *Args) *tensor {
	x, size := a.first(0), a.Ints("output_size")
	if x.NDim() == len(size)+1 {
		return x.Unsqueeze(0).AdaptiveAvgPool(size...).Squeeze(0)
	}
	return x.AdaptiveAvgPool(size...)
}

// resized is the size that an interpolation ends with: given, or the input's
// times the factors (compute_output_size of UpSample.cpp).
func (a *Args) resized() []int64 {
	if size := a.Ints("output_size"); size != nil {
		return size
	}
	in := a.first(0).Shape()[2:]
	size := make([]int64, len(in))
	if a.op.index("scale_factors") < 0 {
		return size
	}
	for i, f := range a.Floats("scale_factors") {
		size[i] = int64(math.Floor(float64(in[i]) * f))
	}
	return size
}

// resized is the body of an interpolation to a size.
func resized(f func(x *tensor, sizes ...int64) *tensor) body {
	return one(func(a *Args) *tensor { return f(a.first(0), a.resized()...) })
}

func adaptiveMaxPool(a *Args) (y, indices *tensor) {
	return a.first(0).AdaptiveMaxPoolIndices(a.Ints("output_size")...)
}

// batched is the body of a pooling, which adds the dimension of the batch where
// the input has none.
func batched(f func(x *tensor, p trace.PoolArgs) *tensor) body {
	return one(func(a *Args) *tensor {
		x, p := a.first(0), a.pool()
		if x.NDim() == len(p.Kernel)+1 {
			return f(x.Unsqueeze(0), p).Squeeze(0)
		}
		return f(x, p)
	})
}

func fractionalMaxPool(a *Args) (y, indices *tensor) {
	return a.first(0).FractionalMaxPool(a.Tensor("random_samples"), a.Ints("output_size")...)
}
