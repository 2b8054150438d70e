package aten

import "github.com/vprof/vprof/profiler/trace"

// composed are operators that PyTorch makes of others (CompositeImplicitAutograd), each
// as its source has it.
var composed = family{
	"addr":                      (*tensor).AddR,
	"cartesian_prod":            cartesianProduct,
	"cumulative_trapezoid.dx":   cumulativeTrapezoid,
	"float_power.Tensor_Scalar": func(a *Args) *tensor { return a.first(0).To(trace.F64).Pow(a.Float("exponent")) },
	"ldexp.Tensor":              func(x, y *tensor) *tensor { return x.Mul(y.NumberPow(trace.RealNumber)) },
	"feature_alpha_dropout":     (*tensor).FeatureAlphaDropout,
	"blackman_window blackman_window.periodic":                window(4),
	"bartlett_window bartlett_window.periodic":                window(0),
	"kaiser_window kaiser_window.periodic kaiser_window.beta": window(1),
	"atleast_3d": atLeast3D,
	"dstack":     depthStack,
	"diagflat": func(a *Args) *tensor {
		return a.first(0).Contiguous().View(-1).DiagEmbed(a.Int("offset"))
	},
	"native_channel_shuffle": (*tensor).ChannelShuffle,
	"trapz.dx trapezoid.dx":  trapezoid,
	"normal.float_float":     filled,
	"hamming_window":         (*trace.Tape).HannWindow, // with other constants
}

// window is a window of a signal that is computed in so many further operations; it is periodic unless the
// call says otherwise.
func window(operations int) func(a *Args) *tensor {
	return func(a *Args) *tensor {
		periodic := a.op.index("periodic") < 0 || a.Bool("periodic")
		return a.tape.Window(a.op.base(), a.Int("window_length"), periodic, operations)
	}
}

func atLeast3D(x *tensor) *tensor {
	switch x.NDim() {
	case 0:
		return x.Reshape(1, 1, 1)
	case 1:
		return x.Unsqueeze(0).Unsqueeze(-1)
	case 2:
		return x.Unsqueeze(-1)
	}
	return x
}

func depthStack(a *Args) *tensor {
	var xs []*tensor
	for _, x := range a.Tensors("tensors") {
		xs = append(xs, atLeast3D(x))
	}
	return trace.Cat(2, xs...)
}

func trapezoid(a *Args) *tensor { return a.first(0).Trapezoid(a.Dim("dim")) }

// cartesianProduct is the grid of all tensors, flattened, as the columns of a matrix.
func cartesianProduct(a *Args) *tensor {
	xs := a.Tensors("tensors")
	if len(xs) == 1 {
		return xs[0]
	}
	var flat []*tensor
	for _, x := range trace.Meshgrid(false, xs...) {
		flat = append(flat, x.Reshape(-1))
	}
	return trace.Stack(1, flat...)
}

// cumulativeTrapezoid is (dx / 2 * (left + right)).cumsum(dim).
func cumulativeTrapezoid(a *Args) *tensor {
	y, d := a.first(0), a.Dim("dim")
	n := y.Size(d)
	sum := y.Slice(d, 0, n-1).Add(y.Slice(d, 1, n))
	return sum.MulScalar().CumSum(d)
}
