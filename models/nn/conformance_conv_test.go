package nn_test

import (
	"github.com/vprof/vprof/profiler/aten/opvectors"
	"github.com/vprof/vprof/profiler/trace"
)

func convOperators() map[string]opvectors.Call {
	return map[string]opvectors.Call{
		"conv1d":           one(convolution),
		"conv1d_nc":        one(convolution),
		"conv2d":           one(convolution),
		"conv2d_cl":        one(convolution),
		"conv2d_cl_x_only": one(convolution),
		"conv3d":           one(convolution),
		"conv_transpose1d": one(transposedConvolution),
		"conv_transpose2d": one(transposedConvolution),
	}
}

func convArgs(v *vector) trace.ConvArgs {
	return trace.ConvArgs{
		Stride: v.Ints("stride"), Padding: v.Ints("padding"), Dilation: v.Ints("dilation"),
		OutputPadding: v.Ints("output_padding"),
		Groups:        v.Int("groups", 1), Same: v.String("padding", "") == "same",
	}
}

func convolution(v *vector, in []*tensor, p params) *tensor {
	return in[0].Conv(p["weight"], p["bias"], convArgs(v))
}

func transposedConvolution(v *vector, in []*tensor, p params) *tensor {
	args := convArgs(v)
	args.Transposed = true
	return in[0].Conv(p["weight"], p["bias"], args)
}
