package trace

import "github.com/vprof/vprof/profiler/program"

// ConvArgs are the arguments of a convolution: one number per spatial dimension, or one for all dimensions.
type ConvArgs struct {
	Stride, Padding, Dilation []int64
	Groups                    int64
	// Same is padding="same": Padding is computed so that the output has the size of the input.
	Same bool
	// Transposed reports whether it is a transposed convolution, for which OutputPadding is used.
	Transposed    bool
	OutputPadding []int64

	flat bool // one spatial dimension, viewed as two with a height of one
}

// Spatial returns v for n spatial dimensions. A single number applies to all; def replaces missing ones.
func Spatial(v []int64, n int, def int64) []int64 {
	if len(v) == n {
		return v
	}
	out := make([]int64, n)
	for i := range out {
		switch {
		case len(v) == 0:
			out[i] = def
		case len(v) == 1:
			out[i] = v[0]
		default:
			out[i] = v[i]
		}
	}
	return out
}

func (a ConvArgs) normalized(dims int) ConvArgs {
	a.Stride = Spatial(a.Stride, dims, 1)
	a.Padding = Spatial(a.Padding, dims, 0)
	a.Dilation = Spatial(a.Dilation, dims, 1)
	a.OutputPadding = Spatial(a.OutputPadding, dims, 0)
	a.Groups = max(a.Groups, 1)
	return a
}

// outShape returns the shape of the result for input x and weight w.
func (a ConvArgs) outShape(x, w *Tensor) []int64 {
	dims := len(x.shape) - 2
	shape := make([]int64, dims+2)
	shape[0], shape[1] = x.shape[0], w.shape[0]
	if a.Transposed {
		shape[1] = w.shape[1] * a.Groups
	}
	for i := range dims {
		in, k := x.shape[i+2], w.shape[i+2]
		if a.Transposed {
			shape[i+2] = (in-1)*a.Stride[i] - 2*a.Padding[i] + a.Dilation[i]*(k-1) + a.OutputPadding[i] + 1
		} else {
			shape[i+2] = (in+2*a.Padding[i]-a.Dilation[i]*(k-1)-1)/a.Stride[i] + 1
		}
	}
	return shape
}

var (
	convNames          = [...]string{"", "conv1d", "conv2d", "conv3d"}
	convSameNames      = [...]string{"", "conv1d_padding", "conv2d_padding", "conv3d_padding"}
	convTransposeNames = [...]string{"", "conv_transpose1d", "conv_transpose2d_input", "conv_transpose3d_input"}
)

// Conv records torch.nn.functional.conv1d, conv2d or conv3d (or a transposed one), by the number of dimensions of x:
// [N, C, spatial...]. bias may be nil; it is added in place.
func (x *Tensor) Conv(weight, bias *Tensor, args ConvArgs) *Tensor {
	t := x.tape
	dims := len(x.shape) - 2
	name := convNames[dims]
	switch {
	case args.Transposed:
		name = convTransposeNames[dims]
	case args.Same:
		name = convSameNames[dims]
	}
	c := t.Begin(name, x, weight, bias)
	bias, weight, x = t.CastToLower(bias), t.CastToLower(weight), t.CastToLower(x)
	args = args.normalized(dims)
	if args.Same {
		x = x.padSame(weight, &args)
	}
	return c.End(x.convolution(weight, bias, args))
}

// padSame computes the padding of padding="same". If both ends differ, the input is padded first (convolution_same).
func (x *Tensor) padSame(w *Tensor, args *ConvArgs) *Tensor {
	dims := len(x.shape) - 2
	left := make([]int64, dims)
	uneven := make([]int64, 2*dims)
	symmetric := true
	for i := range dims {
		total := args.Dilation[i] * (w.shape[i+2] - 1)
		left[i] = total / 2
		if total%2 == 1 {
			uneven[2*(dims-1-i)+1] = 1
			symmetric = false
		}
	}
	args.Padding, args.Same = left, false
	if symmetric {
		return x
	}
	return x.PadConstant(uneven)
}

// convolution records at::convolution, the operator that autograd records.
func (x *Tensor) convolution(weight, bias *Tensor, args ConvArgs) *Tensor {
	c := x.tape.Begin("convolution", x, weight, bias)
	y := c.Bind(x.convForward(weight, bias, args))
	return c.End(y.SetGradFn("ConvolutionBackward0", inputs{x, weight, bias}, saves{x, weight},
		func(b *Gradients) { convBackward(b, args) }))
}

// view1dAs2d returns the arguments of the same convolution of images with a height of one, as PyTorch runs conv1d.
func (a ConvArgs) view1dAs2d() ConvArgs {
	a.flat = true
	a.Stride = []int64{1, a.Stride[0]}
	a.Padding = []int64{0, a.Padding[0]}
	a.Dilation = []int64{1, a.Dilation[0]}
	a.OutputPadding = []int64{0, a.OutputPadding[0]}
	return a
}

// view4d records a view of [N, C, L] with a height of one, without autograd.
func (x *Tensor) view4d() *Tensor {
	s, z := x.shape, x.strides
	return x.Alias([]int64{s[0], s[1], 1, s[2]}, []int64{z[0], z[1], s[2] * z[2], z[2]}, x.offset)
}

// view3d records a view without the height of one.
func (x *Tensor) view3d() *Tensor {
	s, z := x.shape, x.strides
	return x.Alias([]int64{s[0], s[1], s[3]}, []int64{z[0], z[1], z[3]}, x.offset)
}

// convForward records _convolution.
func (x *Tensor) convForward(w, bias *Tensor, args ConvArgs) *Tensor {
	c := x.tape.Begin("_convolution", x, w, bias)
	if len(w.shape) == 3 {
		x = c.Bind(x.ContiguousUntracked())
		args, x, w = args.view1dAs2d(), c.Bind(x.view4d()), c.Bind(w.view4d())
	}
	var y *Tensor
	switch {
	case args.nativeDepthwise(x, w):
		y = c.Bind(x.ContiguousUntracked().depthwiseConv(w, args))
	case args.Transposed:
		in := x.ContiguousIn(convChannelsLast(x, w))
		y = c.Bind(cudnnConvInput(args, args.outShape(x, w), in, w, convForward))
	default:
		y = c.Bind(cudnnConvForward(args, x.ContiguousIn(convChannelsLast(x, w)), w, convForward))
	}
	args.launch(x, w, y, convForward, y, x, w)
	if bias != nil {
		c.t.LaunchElementwise(y, 1, y, bias)
	}
	if args.flat {
		y = y.view3d()
	}
	return c.End(y)
}

// launch records the kernel of one direction of a convolution: an implicit matrix product, batched over the groups. The
// weight is [F, C/groups, taps], where F is the number of output channels, or of input channels if transposed.
func (a ConvArgs) launch(x, w, y *Tensor, dir convDirection, out *Tensor, ins ...*Tensor) {
	features := y
	if a.Transposed {
		features = x
	}
	filters, taps := w.shape[0]/a.Groups, Numel(w.shape[1:])
	positions := features.numel / max(features.shape[1], 1)
	p := program.Product{Batch: a.Groups, Window: a.window(x, w, y)}
	switch {
	case dir == convWeight:
		p.M, p.N, p.K = filters, taps, positions
	case (dir == convForward) != a.Transposed:
		p.M, p.N, p.K = filters, positions, taps
	default: // the sum over features: a gradient of images
		p.M, p.N, p.K = taps, positions, filters
	}
	op := x.tape.Launch(program.Convolution, 2*features.numel*taps, []*Tensor{out}, ins)
	x.tape.setProduct(op, p)
	x.tape.useTF32(op, x.tape.rules.TF32 != NoneInTF32 && x.dtype == F32 && !a.nativeDepthwise(x, w))
}

// window returns the geometry of a two-dimensional convolution's filters.
func (a ConvArgs) window(x, w, y *Tensor) program.Window {
	if len(w.shape) != 4 {
		return program.Window{}
	}
	images := x
	if a.Transposed {
		images = y
	}
	stride, pad, dilation := Spatial(a.Stride, 2, 1), Spatial(a.Padding, 2, 0), Spatial(a.Dilation, 2, 1)
	channels := w.shape[0] | w.shape[1]*a.Groups
	return program.Window{
		Images: images.shape[0], Height: images.shape[2], Width: images.shape[3],
		TapsY: w.shape[2], TapsX: w.shape[3], StrideY: stride[0], StrideX: stride[1],
		PadY: pad[0], PadX: pad[1], DilationY: dilation[0], DilationX: dilation[1],
		Groups: channels & -channels,
	}
}

// convBackward records convolution_backward: the gradients of input and weight, then the sum for the bias.
func convBackward(b *Gradients, args ConvArgs) {
	t, g, x, w := b.t, b.Grad, b.Saved(0), b.Saved(1)
	c := t.Begin("convolution_backward", g, x, w)
	if len(w.shape) == 3 {
		x = c.Bind(x.ContiguousUntracked())
		args, g, x, w = args.view1dAs2d(), c.Bind(g.view4d()), c.Bind(x.view4d()), c.Bind(w.view4d())
	}
	if b.Needs(0) || b.Needs(1) {
		var gx, gw *Tensor
		if args.nativeDepthwise(x, w) {
			gx, gw = depthwiseConvBackward(g, x, w, b.Needs(0), b.Needs(1))
		} else {
			in := x
			if b.Needs(1) {
				in = x.ContiguousIn(convChannelsLast(x, w))
			}
			gx, gw = cudnnConvBackward(g, in, w, args, b.Needs(0), b.Needs(1))
		}
		for i, y := range []*Tensor{gx, gw} {
			if y != nil {
				other := [...]*Tensor{w, x}[i]
				args.launch(x, w, g, [...]convDirection{convInput, convWeight}[i], y, g, other)
				if args.flat {
					y = y.view3d()
				}
				b.Out[i] = y.Retain()
			}
		}
		c.EndStatement()
	}
	if b.Needs(2) {
		dims := []int{0, 2, 3, 4}[:len(g.shape)-1]
		b.Out[2] = g.SumUncast("convolution_backward", dims, false).Retain()
	}
	c.Finish()
	b.EndStatement()
}

// nativeDepthwise reports whether PyTorch's own depthwise kernels run the convolution (ConvParams::is_depthwise and
// use_cudnn_depthwise of ATen/native/Convolution.cpp).
func (a ConvArgs) nativeDepthwise(x, w *Tensor) bool {
	channels := x.shape[1]
	if a.Transposed || channels != a.Groups || a.Groups == 1 || w.shape[0]%channels != 0 {
		return false
	}
	if convChannelsLast(x, w) {
		return false
	}
	if x.dtype != F16 || len(x.shape) == 5 || channels < 32 {
		return true
	}
	for _, d := range a.Dilation {
		if d > 1 {
			return true
		}
	}
	height := x.shape[2]
	if a.Stride[0] != a.Stride[1] && height != 1 {
		return true
	}
	oneDimensional := height == 1 && a.Stride[1] == 1
	return !oneDimensional && !cudnnDepthwise2d(x, a.Stride[1], w.shape[2], w.shape[3])
}

// cudnnDepthwise2d implements check_cudnn_depthwise_workload_with_filter, which PyTorch's developers measured.
func cudnnDepthwise2d(x *Tensor, stride, kh, kw int64) bool {
	batch, channels, width := x.shape[0], x.shape[1], x.Size(-1)
	if kh != kw || (kw != 1 && kw != 3 && kw != 5) || width < 7 {
		return false
	}
	switch {
	case stride == 1:
		return true
	case stride != 2:
		return false
	case batch == 1:
		return kw != 1 || width <= 28
	case kw == 1:
		return batch <= 16 && channels >= 128 && width <= 7
	default:
		return channels >= 512 || (channels >= 256 && width >= 28)
	}
}
