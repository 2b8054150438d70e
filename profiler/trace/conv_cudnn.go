package trace

import "github.com/vprof/vprof/profiler/trace/cudnn"

// convChannelsLast implements cudnn_conv_suggest_memory_format: cuDNN uses channels_last if one tensor has it.
func convChannelsLast(x, w *Tensor) bool {
	if x.dtype == F64 || w.dtype == F64 {
		return false
	}
	return x.SuggestsChannelsLast() || w.SuggestsChannelsLast()
}

// ContiguousIn records contiguous(memory_format) without autograd.
func (x *Tensor) ContiguousIn(channelsLast bool) *Tensor {
	if !channelsLast {
		return x.ContiguousUntracked()
	}
	if x.isChannelsLast() {
		return x
	}
	return x.copyIn(true)
}

// copyIn records a copy in a memory format.
func (x *Tensor) copyIn(channelsLast bool) *Tensor {
	y := x.tape.AllocIn(x.dtype, x.shape, channelsLast)
	x.tape.LaunchCopy(y, x)
	return y
}

// AllocIn records at::empty in a memory format.
func (t *Tape) AllocIn(d DType, shape []int64, channelsLast bool) *Tensor {
	if !channelsLast {
		return t.Alloc(d, shape...)
	}
	return t.newTensor(d, t.channelsLast(shape))
}

type convDirection = cudnn.Direction

const (
	convForward = cudnn.Forward
	convInput   = cudnn.GradInput
	convWeight  = cudnn.GradWeight
)

// cudnnConvForward records cudnn_convolution_forward: the result, a copy of the weight if its layout differs, and the
// workspace. The input gradient of a transposed convolution uses it, too.
func cudnnConvForward(args ConvArgs, x, w *Tensor, dir convDirection) *Tensor {
	c := x.tape.Begin("cudnn_convolution", x, w)
	last := convChannelsLast(x, w)
	forward := args
	forward.Transposed = false
	y := c.Bind(c.t.AllocIn(x.dtype, forward.outShape(x, w), last))
	c.Bind(w.ContiguousIn(last))
	if args.Transposed {
		c.t.convWorkspace(args, y, w, x, dir, last)
	} else {
		c.t.convWorkspace(args, x, w, y, dir, last)
	}
	return c.End(y)
}

// cudnnConvInput records cudnn_convolution_backward_input, which also is the forward of a transposed convolution.
func cudnnConvInput(args ConvArgs, shape []int64, g, w *Tensor, dir convDirection) *Tensor {
	c := g.tape.Begin("cudnn_convolution_backward_input", g, w)
	last := convChannelsLast(g, w)
	y := c.Bind(c.t.AllocIn(g.dtype, shape, last))
	c.Bind(w.ContiguousIn(last))
	g = c.Bind(g.ContiguousIn(last))
	if args.Transposed {
		c.t.convWorkspace(args, g, w, y, dir, last)
	} else {
		c.t.convWorkspace(args, y, w, g, dir, last)
	}
	return c.End(y)
}

// cudnnConvWeight records cudnn_convolution_backward_weight for input x and the gradient g of the result.
func cudnnConvWeight(args ConvArgs, g, x, w *Tensor) *Tensor {
	c := g.tape.Begin("cudnn_convolution_backward_weight", g, x)
	last := convChannelsLast(x, g)
	c.Bind(g.ContiguousIn(last))
	c.Bind(x.ContiguousIn(last))
	y := c.Bind(c.t.AllocIn(w.dtype, w.shape, last))
	c.t.convWorkspace(args, x, y, g, convWeight, last)
	return c.End(y)
}

// cudnnConvBackward records cudnn_convolution_backward and cudnn_convolution_transpose_backward.
func cudnnConvBackward(g, x, w *Tensor, args ConvArgs, needX, needW bool) (gx, gw *Tensor) {
	c := g.tape.Begin("cudnn_convolution_backward", g, x, w)
	if last := x.SuggestsChannelsLast(); last != g.SuggestsChannelsLast() {
		g = c.Bind(g.copyIn(last)) // grad_output.to(memory_format), even where dimensions of size one leave both open
	}
	if needX {
		if args.Transposed {
			gx = c.Bind(cudnnConvForward(args, g, w, convInput))
		} else {
			gx = c.Bind(cudnnConvInput(args, x.shape, g, w, convInput))
		}
	}
	if needW {
		gw = c.Bind(cudnnConvWeight(args, g, x, w))
	}
	return c.EndPair(gx, gw)
}

// convCall is the key under which the workspace of a convolution is cached.
type convCall struct {
	config cudnn.Config
	dir    convDirection
}

// convWorkspace allocates and frees cuDNN's workspace of one call. x, w and y are input, weight and output of the
// model's convolution.
func (t *Tape) convWorkspace(args ConvArgs, x, w, y *Tensor, dir convDirection, channelsLast bool) {
	t.ConvWorkspace(convConfig(args, x, w, y, channelsLast), dir)
}

// ConvWorkspace allocates and frees cuDNN's workspace for one direction of a convolution.
func (t *Tape) ConvWorkspace(c cudnn.Config, dir cudnn.Direction) {
	k := convCall{c, dir}
	sizes, known := t.libraries.convs[k]
	if !known {
		sizes = t.findWorkspaces(k)
		if t.libraries.convs == nil {
			t.libraries.convs = make(map[convCall][][]int64)
		}
		t.libraries.convs[k] = sizes
	}
	most := 0
	for _, s := range sizes {
		most = max(most, len(s))
	}
	if most == 0 {
		return
	}
	plan := t.Begin("run_conv_plan")
	for i := range most {
		t.sizedByGPU(func(gpu int) int64 {
			if s := sizes[gpu]; i < len(s) {
				return s[i]
			}
			return 0
		}, func(n int64) *Tensor { return plan.Bind(t.AllocWorkspace(n)) })
	}
	plan.Finish()
}

// findWorkspaces returns cuDNN's workspaces of a call for each GPU: its recorded answers if any, else estimates.
func (t *Tape) findWorkspaces(k convCall) [][]int64 {
	call := Convolution{Config: k.config, Direction: k.dir}
	sizes, plans := make([][]int64, len(t.gpus.all)), make([]cudnn.Plan, len(t.gpus.all))
	for i, b := range t.gpus.all {
		switch {
		case t.gpus.lost[i]:
		case t.libraries.answers == nil:
			plans[i] = t.modeledPlan(k, i, plans)
			sizes[i] = plans[i].Allocations
		default:
			var asked bool
			rules, answer := t.rules.Convolutions, t.libraries.answers(b)
			sizes[i], asked = rules.AnsweredWorkspaces(k.config, k.dir, b.cudnn(), answer)
			call.Asked = asked && (i == 0 || call.Asked)
		}
	}
	if GPUProperty(t, func(gpu GPU) bool { return gpu.cudnn().Runs(k.config) }) {
		t.facts.Convolutions = append(t.facts.Convolutions, call)
	}
	return sizes
}

// modeledPlan returns the plan that the rules predict for the GPU with an index. before has the plans of the GPUs
// before it: within a generation, plans differ only if the memory is too small for an engine.
func (t *Tape) modeledPlan(k convCall, gpu int, before []cudnn.Plan) cudnn.Plan {
	same := func(a, b GPU) bool { return cudnn.Generation(a.cudnn()) == cudnn.Generation(b.cudnn()) }
	own := t.gpus.all[gpu]
	for i, b := range t.gpus.all[:gpu] {
		if same(b, own) && b.Memory <= own.Memory && before[i].Choice != (cudnn.Choice{}) {
			return before[i]
		}
	}
	return t.rules.Convolutions.Explain(k.config, k.dir, own.cudnn())
}

func (gpu GPU) cudnn() cudnn.GPU {
	return cudnn.GPU{Name: gpu.Name, Capability: gpu.Capability, Memory: gpu.Memory}
}

// AnswerConvolutions sets cuDNN's recorded answers about convolutions for each GPU, which override the rules. It must
// be called before the first convolution.
func (t *Tape) AnswerConvolutions(answers func(GPU) cudnn.Answer) {
	t.libraries.answers, t.facts.Answered = answers, true
}

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
		// A contiguous weight was already copied.
		cfg.Layout = cudnn.ChannelsLast
	}
	return cfg
}

// Convolutions calls visit once for each distinct convolution call of cuDNN on the tape, in no order.
func (t *Tape) Convolutions(visit func(cudnn.Config, cudnn.Direction)) {
	for k := range t.libraries.convs {
		visit(k.config, k.dir)
	}
}

// depthwiseConv records _conv_depthwise2d (and conv_depthwise3d) of ATen's CUDA kernels, which need no workspace.
func (x *Tensor) depthwiseConv(w *Tensor, args ConvArgs) *Tensor {
	c := x.tape.Begin("_conv_depthwise2d", x, w)
	y := c.Bind(c.t.Alloc(x.dtype, args.outShape(x, w)...))
	c.Bind(w.ContiguousUntracked())
	return c.End(y)
}

// depthwiseConvBackward records the backward pass, which allocates the gradient of the weight first.
func depthwiseConvBackward(g, x, w *Tensor, needX, needW bool) (gx, gw *Tensor) {
	c := g.tape.Begin("conv_depthwise2d_backward", g, x, w)
	c.Bind(g.ContiguousUntracked())
	if needW {
		c.Bind(x.ContiguousUntracked())
		gw = c.Bind(c.t.Alloc(w.dtype, w.shape...))
	}
	if needX {
		c.Bind(w.ContiguousUntracked())
		gx = c.Bind(c.t.Alloc(x.dtype, x.shape...))
	}
	return c.EndPair(gx, gw)
}
