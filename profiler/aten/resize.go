package aten

import (
	"math"

	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// resizingOperators are pooling, interpolation and sampling.
var resizingOperators = operatorFamily{
	"fractional_max_pool2d fractional_max_pool3d": withTrailingArgs(
		(*tensor).FractionalMaxPool, "random_samples", "output_size"),
	"max_pool1d max_pool2d max_pool3d":                                        poolBody((*tensor).MaxPool),
	"adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d":             (*tensor).AdaptiveMaxPoolIndices,
	"max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices": (*tensor).MaxPoolIndices,
	"max_unpool2d max_unpool3d":                                               (*tensor).MaxUnpool,
	"avg_pool1d avg_pool2d avg_pool3d":                                        poolBody((*tensor).AvgPool),
	"adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d":             adaptiveAvgPool,
	"_adaptive_avg_pool2d _adaptive_avg_pool3d":                               adaptiveAvgPool,
	"im2col": ops.Im2Col,
	"col2im": func(a *Args) *tensor {
		size := a.Ints("output_size")
		return ops.Col2Im(a.first(0), size[0], size[len(size)-1], a.poolArgs())
	},
	"grid_sampler_2d grid_sampler_3d grid_sampler": ops.GridSample,
	"affine_grid_generator":                        ops.AffineGrid,

	"upsample_nearest1d upsample_nearest2d upsample_nearest3d":                                    upsample,
	"upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec":                        upsample,
	"_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d":               upsample,
	"_upsample_nearest_exact1d.vec _upsample_nearest_exact2d.vec":                                 upsample,
	"_upsample_nearest_exact3d.vec _upsample_bilinear2d_aa.vec _upsample_bilinear2d_aa":           upsample,
	"upsample_linear1d.vec upsample_linear1d upsample_bilinear2d.vec":                             upsample,
	"upsample_bilinear2d upsample_trilinear3d.vec upsample_trilinear3d":                           upsample,
	"upsample_bicubic2d.vec upsample_bicubic2d _upsample_bicubic2d_aa.vec _upsample_bicubic2d_aa": upsample,
}

func (a *Args) poolArgs() trace.PoolArgs {
	p := trace.PoolArgs{Kernel: a.Ints("kernel_size"), Stride: a.Ints("stride"), Padding: a.Ints("padding")}
	if a.op.index("ceil_mode") >= 0 {
		p.Ceil = a.Bool("ceil_mode")
	}
	if a.op.index("dilation") >= 0 {
		p.Dilation = a.Ints("dilation")
	}
	return p
}

func adaptiveAvgPool(a *Args) *tensor {
	x, size := a.first(0), a.Ints("output_size")
	if x.NDim() == len(size)+1 {
		return x.Unsqueeze(0).AdaptiveAvgPool(size...).Squeeze(0)
	}
	return x.AdaptiveAvgPool(size...)
}

// interpolationSize returns the output size of an interpolation: the given size, or the input's size times the scale
// factors (compute_output_size of UpSample.cpp).
func (a *Args) interpolationSize() []int64 {
	if size := a.Ints("output_size"); size != nil {
		return size
	}
	in := a.first(0).Shape()[2:]
	size := make([]int64, len(in))
	if a.op.index("scale_factors") < 0 {
		return size
	}
	for i, f := range valueOf[[]float64](a, "scale_factors") {
		size[i] = int64(math.Floor(float64(in[i]) * f))
	}
	return size
}

func upsample(a *Args) *tensor {
	return ops.Upsample(a.op.base(), a.first(0), a.interpolationSize()...)
}

// poolBody returns the body of a pooling operator. It adds a batch dimension to inputs without one.
func poolBody(f func(x *tensor, p trace.PoolArgs) *tensor) any {
	return func(x *tensor, p trace.PoolArgs) *tensor {
		if x.NDim() == len(p.Kernel)+1 {
			return f(x.Unsqueeze(0), p).Squeeze(0)
		}
		return f(x, p)
	}
}
