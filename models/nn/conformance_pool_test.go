package nn_test

import (
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/opvectors"
)

func poolOperators() map[string]opvectors.Call {
	three := []aten.Arg{ints("kernel_size", 3), ints("stride", 2), ints("padding", 1)}
	return map[string]opvectors.Call{
		"max_pool1d":       operator("max_pool1d.default", three...),
		"max_pool2d":       operator("max_pool2d.default", three...),
		"max_pool2d_big":   operator("max_pool2d.default", three...),
		"max_pool3d":       operator("max_pool3d.default", three...),
		"avg_pool1d":       operator("avg_pool1d.default", ints("kernel_size", 2)),
		"avg_pool2d":       operator("avg_pool2d.default", ints("kernel_size", 2)),
		"adaptive_avg_1":   operator("adaptive_avg_pool2d.default", ints("output_size", 1, 1)),
		"adaptive_avg_7":   operator("adaptive_avg_pool2d.default", ints("output_size", 7, 7)),
		"interpolate_area": operator("adaptive_avg_pool2d.default", ints("output_size", 7, 7)),
		"adaptive_avg1d_1": operator("adaptive_avg_pool1d.default", ints("output_size", 1)),
		"adaptive_avg1d_5": operator("adaptive_avg_pool1d.default", ints("output_size", 5)),
		"adaptive_max_1":   first(operator("adaptive_max_pool2d.default", ints("output_size", 1, 1))),
		"lp_pool":          unary(lpPool2D),

		"upsample_nearest": operator("upsample_nearest2d.vec", ints("output_size", 46, 58),
			arg("scale_factors", nil)),
		"upsample_nearest1d": operator("upsample_nearest1d.vec", ints("output_size", 154), arg("scale_factors", nil)),
		"upsample_bilinear":  linear("upsample_bilinear2d.vec", 46, 58),
		"upsample_linear":    linear("upsample_linear1d.vec", 100),
		"upsample_trilinear": linear("upsample_trilinear3d.vec", 16, 20, 24),
		"upsample_bicubic":   linear("upsample_bicubic2d.vec", 31, 31),
		"grid_sample": operator("grid_sampler.default", arg("interpolation_mode", int64(0)),
			arg("padding_mode", int64(0)), arg("align_corners", false)),

		"F_unfold": operator("im2col.default", ints("kernel_size", 3, 3), ints("dilation", 1, 1),
			ints("padding", 1, 1), ints("stride", 1, 1)),
		"fold": operator("col2im.default", ints("output_size", 16, 16), ints("kernel_size", 2, 2),
			ints("dilation", 1, 1), ints("padding", 0, 0), ints("stride", 2, 2)),
		"pixel_shuffle":   operator("pixel_shuffle.default", arg("upscale_factor", int64(2))),
		"pixel_unshuffle": operator("pixel_unshuffle.default", arg("downscale_factor", int64(2))),
		"channel_shuffle": unary(func(x *tensor) *tensor {
			s := x.Shape()
			groups := at("reshape.default", x, ints("shape", s[0], 4, s[1]/4, s[2], s[3]))
			return at("reshape.default", at("transpose.int", groups, whole("dim0", 1), whole("dim1", 2)),
				ints("shape", s...))
		}),
		"stats_pool": statsPool,
	}
}

// statsPool records torch.cat([x.mean(-1), x.std(-1)], dim=1).
func statsPool(_ *trace.Frame, _ *vector, in []*tensor, _ params) []*tensor {
	return []*tensor{trace.Cat(1, in[0].Mean(false, -1), in[0].Std(false, -1))}
}

// linear returns an interpolation to a size, without aligned corners.
func linear(target string, sizes ...int64) opvectors.Call {
	return operator(target, ints("output_size", sizes...), arg("align_corners", false), arg("scale_factors", nil))
}

// first leaves out all results but the first, as a function of torch.nn.functional does
// whose operator returns indices, too.
func first(call opvectors.Call) opvectors.Call {
	return func(f *trace.Frame, v *vector, in []*tensor, p params) []*tensor {
		out := call(f, v, in, p)
		for _, other := range out[1:] {
			f.Bind(other)
			f.Del(&other)
		}
		return out[:1]
	}
}
