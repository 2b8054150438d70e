package aten

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/ops"
)

// specialOperators are operators with several names, and operators that few models call.
var specialOperators = operatorFamily{
	"special_softmax": func(a *Args) *tensor { return softmax(a, (*tensor).Softmax, (*tensor).SoftmaxTo) },
	"special_log_softmax": func(a *Args) *tensor {
		return softmax(a, (*tensor).LogSoftmax, (*tensor).LogSoftmaxTo)
	},
	"special_logsumexp":           withTrailingArgs((*tensor).LogSumExp, "keepdim", "dim"),
	"special_expm1":               unaryFunction("expm1"),
	"special_exp2":                unaryFunction("exp2"),
	"special_erfc":                unaryFunction("erfc"),
	"special_erfinv":              unaryFunction("erfinv"),
	"special_gammaln":             unaryFunction("lgamma"),
	"special_digamma special_psi": unaryFunction("digamma"),
	"special_logit":               unaryFunction("logit"),
	"special_round":               unaryFunction("round"),
	"special_sinc":                unaryFunction("sinc"),
	"special_i0":                  unaryFunction("i0"),
	"angle":                       (*tensor).Angle,
	"pdist":                       ops.PDist,
	"aminmax": func(a *Args) (x, y *tensor) {
		if a.IsNone("dim") {
			return a.first(0).AMinMax(false)
		}
		return a.first(0).AMinMax(a.Bool("keepdim"), a.Dim("dim"))
	},
	"index_reduce": func(a *Args) *tensor {
		how := a.Text("reduce")
		if how == "prod" {
			a.Tape().Raise(fmt.Errorf("vprof supports index_reduce only with mean, amax and amin, not %s", how))
		}
		return a.first(0).IndexReduce(how, a.Dim("dim"), a.Tensor("index"), a.Tensor("source"), a.Bool("include_self"))
	},
	"segment_reduce": func(a *Args) *tensor {
		if a.Dim("axis") != 0 || a.Tensor("lengths") == nil && a.Tensor("offsets") == nil {
			a.Tape().Raise(fmt.Errorf("vprof supports segment_reduce only along the first dimension, with lengths or " +
				"offsets"))
		}
		return a.first(0).SegmentReduce(a.Tensor("lengths"), a.Tensor("offsets"))
	},
	"row_stack": concatenate(0, 2),
}

// libraryOperators are operators that torchvision and transformers add to PyTorch.
var libraryOperators = operatorFamily{
	"transformers::grouped_mm_fallback": (*tensor).GroupedMM,
	"torchvision::roi_align": func(a *Args) *tensor {
		y, _ := a.regionOperator("roi_align", a.first(0).Size(1), false)
		return y
	},
	"torchvision::roi_pool": func(a *Args) (*tensor, *tensor) {
		return a.regionOperator("roi_pool", a.first(0).Size(1), true)
	},
	"torchvision::ps_roi_align": positionSensitive("ps_roi_align"),
	"torchvision::ps_roi_pool":  positionSensitive("ps_roi_pool"),
	"torchvision::deform_conv2d": func(a *Args) *tensor {
		return ops.DeformConv2D(a.first(0), ops.DeformConv2DArgs{
			Weight: a.Tensor("weight"), Offset: a.Tensor("offset"), Mask: a.Tensor("mask"), Bias: a.Tensor("bias"),
			Stride: a.heightAndWidth("stride_h", "stride_w"), Padding: a.heightAndWidth("pad_h", "pad_w"),
			Dilation: a.heightAndWidth("dilation_h", "dilation_w"),
			Groups:   a.Int("groups"),
		})
	},
}

// regionOperator records an operator on regions of interest (torchvision). from is the position of each value in the
// input, if places is set.
func (a *Args) regionOperator(op string, channels int64, places bool) (y, from *tensor) {
	return ops.Regions(a.first(0), a.Tensor("rois"), ops.RegionArgs{
		Op: op, Height: a.Int("pooled_height"), Width: a.Int("pooled_width"), Channels: channels, Places: places,
	})
}

// positionSensitive returns an operator such as ps_roi_align, which computes each position of a region's result from
// its own channels.
func positionSensitive(op string) func(a *Args) (y, from *tensor) {
	return func(a *Args) (*tensor, *tensor) {
		return a.regionOperator(op, a.first(0).Size(1)/(a.Int("pooled_height")*a.Int("pooled_width")), true)
	}
}

func (a *Args) heightAndWidth(height, width string) [2]int64 {
	return [2]int64{a.Int(height), a.Int(width)}
}

// queryOperators are operators that have no result or return properties of tensors. They allocate nothing.
var queryOperators = operatorFamily{
	"_assert_tensor_metadata _assert_async _assert_async.msg _assert_scalar sym_constrain_range": noResult,
	"sym_constrain_range_for_size": noResult,
	"sym_size.int size.int":        (*tensor).Size,
	"sym_stride.int stride.int":    stride,
	"sym_numel":                    (*tensor).Numel,
	"is_floating_point":            func(x *tensor) bool { return x.DType().IsFloat() },
	"is_complex":                   func(x *tensor) bool { return x.DType() == trace.C64 },
	"is_same_size":                 func(x, y *tensor) bool { return slices.Equal(x.Shape(), y.Shape()) },
}

func noResult(*Args) []Value { return nil }

func stride(a *Args) Value {
	x := a.first(0)
	d := a.Dim("dim")
	if d < 0 {
		d += x.NDim()
	}
	return x.Strides()[d]
}

// composedOperators are operators that PyTorch implements by other operators (CompositeImplicitAutograd), each recorded
// as in its source.
var composedOperators = operatorFamily{
	"addr":                      (*tensor).AddR,
	"cartesian_prod":            cartesianProduct,
	"cumulative_trapezoid.dx":   cumulativeTrapezoid,
	"float_power.Tensor_Scalar": func(a *Args) *tensor { return a.first(0).To(trace.F64).Pow(a.Float("exponent")) },
	"ldexp.Tensor":              func(x, y *tensor) *tensor { return x.Mul(y.NumberPow(trace.RealNumber)) },
	"blackman_window blackman_window.periodic":                windowBody(4),
	"bartlett_window bartlett_window.periodic":                windowBody(0),
	"kaiser_window kaiser_window.periodic kaiser_window.beta": windowBody(1),
	"atleast_3d": atLeast3D,
	"dstack":     depthStack,
	"diagflat": func(a *Args) *tensor {
		return a.first(0).Contiguous().View(-1).DiagEmbed(a.Int("offset"))
	},
	"native_channel_shuffle": (*tensor).ChannelShuffle,
	"trapz.dx trapezoid.dx":  withTrailingArgs((*tensor).Trapezoid, "dim"),
	"normal.float_float":     newFilled,
	"hamming_window":         ops.HannWindow, // with other constants
}

// windowBody returns the body of a signal window, such as torch.hamming_window, which takes the given number of
// operations. The window is periodic by default.
func windowBody(operations int) func(a *Args) *tensor {
	return func(a *Args) *tensor {
		periodic := a.op.index("periodic") < 0 || a.Bool("periodic")
		return ops.Window(a.tape, a.op.base(), a.Int("window_length"), periodic, operations)
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

func depthStack(a *Args) *tensor { return trace.Cat(2, lists.Map(a.Tensors("tensors"), atLeast3D)...) }

// cartesianProduct records torch.cartesian_prod: a matrix whose columns are the flattened grids of all tensors.
func cartesianProduct(a *Args) *tensor {
	xs := a.Tensors("tensors")
	if len(xs) == 1 {
		return xs[0]
	}
	flat := lists.Map(trace.Meshgrid(false, xs...), func(x *tensor) *tensor { return x.Reshape(-1) })
	return trace.Stack(1, flat...)
}

// cumulativeTrapezoid records (dx / 2 * (left + right)).cumsum(dim).
func cumulativeTrapezoid(a *Args) *tensor {
	y, d := a.first(0), a.Dim("dim")
	n := y.Size(d)
	sum := y.Slice(d, 0, n-1).Add(y.Slice(d, 1, n))
	return sum.MulScalar().CumSum(d)
}
