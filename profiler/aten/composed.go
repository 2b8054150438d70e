package aten

import "github.com/vprof/vprof/profiler/trace"

// composed are operators that PyTorch makes of others (CompositeImplicitAutograd), each
// as its source has it.
var composed = family{
	"atleast_3d(Tensor self) -> Tensor":                            unary(atLeast3D),
	"dstack(Tensor[] tensors) -> Tensor":                           one(depthStack),
	"cross(Tensor self, Tensor other, int? dim=None) -> Tensor":    binary((*tensor).Cross),
	"diagflat(Tensor self, int offset=0) -> Tensor":                one(func(a *Args) *tensor { return a.first(0).Contiguous().View(-1).DiagEmbed(a.Int("offset")) }),
	"native_channel_shuffle(Tensor self, SymInt groups) -> Tensor": one(func(a *Args) *tensor { return a.first(0).ChannelShuffle(a.Int("groups")) }),
	"trapezoid.dx(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor": one(trapezoid),
	"normal.float_float(float mean, float std, SymInt[] size, *, Generator? generator=None, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor { return a.filled("normal") }),
	// A window is that of Hann with other constants.
	"hamming_window(int window_length, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor": one(func(a *Args) *tensor { return a.Tape().HannWindow(a.Int("window_length")) }),
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

// trapezoid is (y.sum(dim) - (y.select(dim, 0) + y.select(dim, -1)) * 0.5) * dx.
func trapezoid(a *Args) *tensor {
	y, d := a.first(0), a.Dim("dim")
	ends := y.Select(d, 0).Add(y.Select(d, -1)).MulScalar()
	return y.Sum(false, d).Sub(ends).MulScalar()
}
