package optim

import (
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// singleGrokAdamW is GrokAdamW.step of grokadamw 0.1, whose state is in the host's memory but
// for that of the parameter that it updates. Its names live on from one parameter to the next.
func singleGrokAdamW(o *Optimizer, f *trace.Frame, l *lists) {
	const states = 3
	var state [states]*trace.Tensor
	var slow *trace.Tensor
	for i, p := range l.params {
		var now [states]*trace.Tensor
		for k := range now {
			now[k] = f.Let(o.tape.New("to_device", program.OptimizerState, p.DType(), p.Shape()...))
		}
		for k := range state {
			if state[k] != nil {
				f.Del(&state[k])
			}
			state[k] = now[k]
		}
		f.Discard(ClipGradNorm([]*trace.Tensor{p}, Foreach))
		grad := l.grads[i]
		trace.Update("add__Tensor", 2, trace.Update("mul__Tensor", 1, state[2]), grad)
		f.Set(&slow, trace.Pointwise("add_Tensor", 1, grad, trace.Pointwise("mul_Tensor", 1, state[2])))
		trace.Update("add__Tensor", 2, trace.Update("mul__Tensor", 1, state[0]), slow)
		trace.Update("addcmul_", 3, trace.Update("mul__Tensor", 1, state[1]), slow)
		trace.Update("mul__Tensor", 1, p)
		root := trace.Update("add__Tensor", 1, trace.Pointwise("sqrt", 4, state[1]))
		trace.Update("addcdiv_", 6, p, state[0], root)
	}
}
