package distributed

import "github.com/vprof/vprof/profiler/trace"

// linear is DeepSpeed's linear layer (LinearFunctionForZeroStage3 in deepspeed/runtime/zero/linear.py), which
// zero.Init puts in the place of torch.nn.functional.linear: it keeps its input and its weight for backward
// whether or not the weight trains, and adds a bias of its own unless the input is a matrix.
func linear(f *trace.Frame, x, weight, bias *trace.Tensor) *trace.Tensor {
	return f.Apply(&trace.Function{
		Name: "LinearFunctionForZeroStage3Backward",
		Forward: func(f *trace.Frame, ctx *trace.FunctionContext, in []*trace.Tensor) []*trace.Tensor {
			ctx.SaveForBackward(in...)
			x, weight, bias := in[0], in[1], in[2]
			turned := f.Let(weight.T())
			if bias != nil && len(x.Shape()) == 2 {
				return []*trace.Tensor{bias.AddMM(x, turned)}
			}
			y := x.Matmul(turned)
			if bias != nil {
				y.AddInPlace(bias)
			}
			return []*trace.Tensor{y}
		},
		Backward: func(f *trace.Frame, ctx *trace.FunctionContext, grads []*trace.Tensor) []*trace.Tensor {
			out := make([]*trace.Tensor, 3)
			g := grads[0]
			rows := func(x *trace.Tensor) *trace.Tensor { return f.Let(x.Reshape(-1, x.Size(-1))) }
			if ctx.NeedsInputGrad(0) {
				out[0] = f.Let(g.Matmul(ctx.Saved(1)))
			}
			if ctx.NeedsInputGrad(1) {
				out[1] = f.Let(f.Let(rows(g).T()).Matmul(rows(ctx.Saved(0))))
			}
			if ctx.NeedsInputGrad(2) {
				out[2] = f.Let(rows(g).Sum(false, 0))
			}
			return out
		},
	}, x, weight, bias)[0]
}
