package nn_test

import (
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/tools/opvectors"
)

func convOperators() map[string]opvectors.Call {
	conv2d := convolution("conv2d")
	return map[string]opvectors.Call{
		"conv1d":           convolution("conv1d"),
		"conv1d_nc":        convolution("conv1d"),
		"conv2d":           conv2d,
		"conv2d_cl":        conv2d,
		"conv2d_cl_x_only": conv2d,
		"conv3d":           convolution("conv3d"),
		"conv_transpose1d": operatorWith("conv_transpose1d.default", convArgs),
		"conv_transpose2d": operatorWith("conv_transpose2d.input", convArgs),
	}
}

// convolution returns the overload whose padding is a number, or the one whose padding is a word, as the vector says.
func convolution(name string) opvectors.Call {
	numbers, words := operatorWith(name+".default", convArgs), operatorWith(name+".padding", convArgs)
	return func(f *frame, v *vector, in []*tensor, p params) []*tensor {
		if v.String("padding", "") != "" {
			return words(f, v, in, p)
		}
		return numbers(f, v, in, p)
	}
}

func convArgs(v *vector, _ *tensor, p params) []aten.Arg {
	given := append(learned(p, "weight", "bias"), arg("groups", v.Int("groups", 1)))
	for _, name := range []string{"stride", "padding", "dilation", "output_padding"} {
		if n := v.Ints(name); n != nil {
			given = append(given, ints(name, n...))
		}
	}
	if word := v.String("padding", ""); word != "" {
		given = append(given, arg("padding", word))
	}
	return given
}
