package nn_test

import (
	"github.com/vprof/vprof/profiler/aten/opvectors"
	"github.com/vprof/vprof/profiler/trace"
)

func poolOperators() map[string]opvectors.Call {
	three := trace.PoolArgs{Kernel: []int64{3}, Stride: []int64{2}, Padding: []int64{1}}
	two := trace.PoolArgs{Kernel: []int64{2}}
	maxPool := unary(func(x *tensor) *tensor { return x.MaxPool(three) })
	avgPool := unary(func(x *tensor) *tensor { return x.AvgPool(two) })
	return map[string]opvectors.Call{
		"max_pool1d":       maxPool,
		"max_pool2d":       maxPool,
		"max_pool2d_big":   maxPool,
		"max_pool3d":       maxPool,
		"avg_pool1d":       avgPool,
		"avg_pool2d":       avgPool,
		"adaptive_avg_1":   sized((*tensor).AdaptiveAvgPool, 1, 1),
		"adaptive_avg_7":   sized((*tensor).AdaptiveAvgPool, 7, 7),
		"interpolate_area": sized((*tensor).AdaptiveAvgPool, 7, 7),
		"adaptive_avg1d_1": sized((*tensor).AdaptiveAvgPool, 1),
		"adaptive_avg1d_5": sized((*tensor).AdaptiveAvgPool, 5),
		"adaptive_max_1":   sized((*tensor).AdaptiveMaxPool, 1, 1),
		"lp_pool":          unary(func(x *tensor) *tensor { return x.LPPool2D(2, 2) }),

		"upsample_nearest":   sized((*tensor).UpsampleNearest, 46, 58),
		"upsample_nearest1d": sized((*tensor).UpsampleNearest, 154),
		"upsample_bilinear":  sized((*tensor).UpsampleLinear, 46, 58),
		"upsample_linear":    sized((*tensor).UpsampleLinear, 100),
		"upsample_trilinear": sized((*tensor).UpsampleLinear, 16, 20, 24),
		"upsample_bicubic":   sized((*tensor).UpsampleBicubic, 31, 31),
		"grid_sample":        binary((*tensor).GridSample),

		"F_unfold": unary(func(x *tensor) *tensor {
			return x.Im2Col(trace.PoolArgs{Kernel: []int64{3}, Padding: []int64{1}})
		}),
		"fold": unary(func(x *tensor) *tensor {
			return x.Col2Im(16, 16, trace.PoolArgs{Kernel: []int64{2}, Stride: []int64{2}})
		}),
		"pixel_shuffle":   unary(func(x *tensor) *tensor { return x.PixelShuffle(2) }),
		"pixel_unshuffle": unary(func(x *tensor) *tensor { return x.PixelUnshuffle(2) }),
		"channel_shuffle": unary(func(x *tensor) *tensor {
			s := x.Shape()
			return x.Reshape(s[0], 4, s[1]/4, s[2], s[3]).Transpose(1, 2).Reshape(s...)
		}),
		"stats_pool": statsPool,
	}
}

// statsPool is torch.cat([x.mean(-1), x.std(-1)], dim=1).
func statsPool(_ *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
	return []*tensor{trace.Cat(1, in[0].Mean(false, -1), in[0].Std(false, -1))}
}

// sized adapts an operator that is told the sizes of its result.
func sized(f func(*tensor, ...int64) *tensor, sizes ...int64) opvectors.Call {
	return unary(func(x *tensor) *tensor { return f(x, sizes...) })
}
