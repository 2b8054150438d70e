package trace

import "github.com/vprof/vprof/profiler/trace/cudnn"

// convChannelsLast is cudnn_conv_suggest_memory_format: cuDNN works in
// channels_last if one of the two tensors is laid out so.
func convChannelsLast(x, w *Tensor) bool {
	if x.dtype == F64 || w.dtype == F64 {
		return false
	}
	return x.suggestChannelsLast() || w.suggestChannelsLast()
}

// contiguousIn is contiguous(memory_format) below autograd.
func (x *Tensor) contiguousIn(channelsLast bool) *Tensor {
	if !channelsLast {
		return x.contiguousUntracked()
	}
	if x.isChannelsLast() {
		return x
	}
	y := x.tape.emptyIn(x.dtype, x.shape, true)
	x.tape.launchCopy(y, x)
	return y
}

// emptyIn is at::empty in a memory format.
func (t *Tape) emptyIn(d DType, shape []int64, channelsLast bool) *Tensor {
	if !channelsLast {
		return t.empty(d, shape...)
	}
	return t.fresh(d, t.channelsLast(shape))
}

type convDirection = cudnn.Direction

const (
	convForward = cudnn.Forward
	convInput   = cudnn.GradInput
	convWeight  = cudnn.GradWeight
)

// cudnnConvForward is cudnn_convolution_forward: the result, a weight copy
// where its layout differs, and the workspace. The gradient of a transposed
// convolution runs through it too.
func cudnnConvForward(args ConvArgs, x, w *Tensor, dir convDirection) *Tensor {
	t := x.tape
	c := t.begin("cudnn_convolution", x, w)
	last := convChannelsLast(x, w)
	forward := args
	forward.Transposed = false
	y := c.let(t.emptyIn(x.dtype, forward.outShape(x, w), last))
	c.let(w.contiguousIn(last))
	if args.Transposed {
		t.convWorkspace(args, y, w, x, dir, last)
	} else {
		t.convWorkspace(args, x, w, y, dir, last)
	}
	return c.end(y)
}

// cudnnConvInput is cudnn_convolution_backward_input, which is also the
// forward of a transposed convolution.
func cudnnConvInput(args ConvArgs, shape []int64, g, w *Tensor, dir convDirection) *Tensor {
	t := g.tape
	c := t.begin("cudnn_convolution_backward_input", g, w)
	last := convChannelsLast(g, w)
	y := c.let(t.emptyIn(g.dtype, shape, last))
	c.let(w.contiguousIn(last))
	g = c.let(g.contiguousIn(last))
	if args.Transposed {
		t.convWorkspace(args, g, w, y, dir, last)
	} else {
		t.convWorkspace(args, y, w, g, dir, last)
	}
	return c.end(y)
}

// cudnnConvWeight is cudnn_convolution_backward_weight for input x and
// gradient g of the whole convolution.
func cudnnConvWeight(args ConvArgs, g, x, w *Tensor) *Tensor {
	t := g.tape
	c := t.begin("cudnn_convolution_backward_weight", g, x)
	last := convChannelsLast(x, g)
	c.let(g.contiguousIn(last))
	c.let(x.contiguousIn(last))
	y := c.let(t.emptyIn(w.dtype, w.shape, last))
	t.convWorkspace(args, x, y, g, convWeight, last)
	return c.end(y)
}

// cudnnConvBackward is cudnn_convolution_backward and
// cudnn_convolution_transpose_backward.
func cudnnConvBackward(g, x, w *Tensor, args ConvArgs, needX, needW bool) (gx, gw *Tensor) {
	c := g.tape.begin("cudnn_convolution_backward", g, x, w)
	if last := x.suggestChannelsLast(); last != g.suggestChannelsLast() {
		g = c.let(g.contiguousIn(last)) // grad_output.to(memory_format)
	}
	if needX {
		if args.Transposed {
			gx = c.let(cudnnConvForward(args, g, w, convInput))
		} else {
			gx = c.let(cudnnConvInput(args, x.shape, g, w, convInput))
		}
	}
	if needW {
		gw = c.let(cudnnConvWeight(args, g, x, w))
	}
	return c.endPair(gx, gw)
}

// convCall is the key under which the workspace of a convolution is cached.
type convCall struct {
	config cudnn.Config
	dir    convDirection
}

// convWorkspace allocates and frees what cuDNN asks for during one call. x, w
// and y are input, weight and output of the convolution as the model sees it.
func (t *Tape) convWorkspace(args ConvArgs, x, w, y *Tensor, dir convDirection, channelsLast bool) {
	k := convCall{convConfig(args, x, w, y, channelsLast), dir}
	sizes, known := t.convs[k]
	if !known {
		sizes = t.findWorkspace(k)
		if t.convs == nil {
			t.convs = make(map[convCall][]int64)
		}
		t.convs[k] = sizes
	}
	if len(sizes) == 0 {
		return
	}
	c := t.begin("run_conv_plan")
	for _, n := range sizes {
		c.let(t.workspace(n))
	}
	c.done()
}

// findWorkspace is what cuDNN asks for in a call: as it said itself, or by the rules.
func (t *Tape) findWorkspace(k convCall) []int64 {
	b := cudnn.Board{Name: t.board.Name, Capability: t.board.Capability, Memory: t.board.Memory}
	call := Convolution{Config: k.config, Direction: k.dir}
	var sizes []int64
	if t.answer == nil {
		sizes = t.rules.Convolutions.Workspaces(k.config, k.dir, b)
	} else {
		sizes, call.Asked = t.rules.Convolutions.Answered(k.config, k.dir, b, t.answer)
	}
	if b.Runs(k.config) {
		t.facts.Convolutions = append(t.facts.Convolutions, call)
	}
	return sizes
}

// AnswerConvolutions gives what cuDNN said itself about convolutions on the tape's
// board, which goes before the rules. It must come before the first of them.
func (t *Tape) AnswerConvolutions(answer cudnn.Answer) { t.answer, t.facts.Answered = answer, true }

func convConfig(args ConvArgs, x, w, y *Tensor, channelsLast bool) cudnn.Config {
	from := 0 // the first spatial dimension that is one
	if args.flat {
		from = 1
	}
	cfg := cudnn.Config{
		Dim: len(x.shape) - 2 - from, Transposed: args.Transposed,
		N: x.shape[0], Ci: x.shape[1], Co: y.shape[1], Groups: args.Groups,
	}
	copy(cfg.In[:], x.shape[2+from:])
	copy(cfg.Out[:], y.shape[2+from:])
	copy(cfg.K[:], w.shape[2+from:])
	copy(cfg.Stride[:], args.Stride[from:])
	copy(cfg.Pad[:], args.Padding[from:])
	copy(cfg.Dilation[:], args.Dilation[from:])
	switch x.dtype {
	case F16:
		cfg.DType = cudnn.F16
	case BF16:
		cfg.DType = cudnn.BF16
	default:
		cfg.DType = cudnn.F32
	}
	if channelsLast {
		// A contiguous weight has been copied by now.
		cfg.Layout = cudnn.ChannelsLast
	}
	return cfg
}

// Convolutions calls visit once for each call of cuDNN's convolutions that the
// tape has seen, in no order.
func (t *Tape) Convolutions(visit func(cudnn.Config, cudnn.Direction)) {
	for k := range t.convs {
		visit(k.config, k.dir)
	}
}
