package aten

import "github.com/vprof/vprof/profiler/trace"

// composed are operators that PyTorch makes of others (CompositeImplicitAutograd), each
// as its source has it.
var composed = family{
	"addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor": one(
		func(a *Args) *tensor {
			return a.first(0).AddR(a.Tensor("vec1"), a.Tensor("vec2"))
		}),
	"cartesian_prod(Tensor[] tensors) -> Tensor":                              one(cartesianProduct),
	"cumulative_trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor": one(cumulativeTrapezoid),
	"float_power.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).To(trace.F64).Pow(a.Float("exponent"))
	}),
	"ldexp.Tensor(Tensor self, Tensor other) -> Tensor": binary(func(x, y *tensor) *tensor {
		return x.Mul(y.NumberPow(trace.RealNumber))
	}),
	"feature_alpha_dropout(Tensor input, float p, bool train) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).FeatureAlphaDropout(a.Float("p"), a.Bool("train"))
	}),
	"blackman_window(int window_length, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.Tape().Window("blackman_window", a.Int("window_length"), true, 4)
	}),
	"blackman_window.periodic(int window_length, bool periodic, *, ScalarType? dtype=None, Layout? layout=None, " +
		"Device? device=None, bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.Tape().Window("blackman_window", a.Int("window_length"), a.Bool("periodic"), 4)
	}),
	"bartlett_window(int window_length, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.Tape().Window("bartlett_window", a.Int("window_length"), true, 0)
	}),
	"bartlett_window.periodic(int window_length, bool periodic, *, ScalarType? dtype=None, Layout? layout=None, " +
		"Device? device=None, bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.Tape().Window("bartlett_window", a.Int("window_length"), a.Bool("periodic"), 0)
	}),
	"kaiser_window(int window_length, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.Tape().Window("kaiser_window", a.Int("window_length"), true, 1)
	}),
	"kaiser_window.periodic(int window_length, bool periodic, *, ScalarType? dtype=None, Layout? layout=None, " +
		"Device? device=None, bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.Tape().Window("kaiser_window", a.Int("window_length"), a.Bool("periodic"), 1)
	}),
	"kaiser_window.beta(int window_length, bool periodic, float beta, *, ScalarType? dtype=None, Layout? " +
		"layout=None, Device? device=None, bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.Tape().Window("kaiser_window", a.Int("window_length"), a.Bool("periodic"), 1)
	}),
	"atleast_3d(Tensor self) -> Tensor":  unary(atLeast3D),
	"dstack(Tensor[] tensors) -> Tensor": one(depthStack),
	"diagflat(Tensor self, int offset=0) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).Contiguous().View(-1).DiagEmbed(a.Int("offset"))
	}),
	"native_channel_shuffle(Tensor self, SymInt groups) -> Tensor": one(func(a *Args) *tensor {
		return a.first(0).ChannelShuffle(a.Int("groups"))
	}),
	"trapz.dx(Tensor y, *, float dx=1, int dim=-1) -> Tensor":      one(trapezoid),
	"trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor": one(trapezoid),
	"normal.float_float(float mean, float std, SymInt[] size, *, Generator? generator=None, ScalarType? dtype=None, " +
		"Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.filled("normal")
	}),
	// A window is that of Hann with other constants.
	"hamming_window(int window_length, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? " +
		"pin_memory=None) -> Tensor": one(func(a *Args) *tensor {
		return a.Tape().HannWindow(a.Int("window_length"))
	}),
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
