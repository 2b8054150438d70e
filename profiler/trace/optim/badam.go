package optim

import "github.com/vprof/vprof/profiler/trace"

// The state of BAdam beside AdamW's: a copy of a parameter in fp32.
const badamCopy = maxExpAvgSq

// initBAdam makes a parameter's copy, with the optimizer.
func initBAdam(o *Optimizer, s *slot) {
	s.state[badamCopy] = o.keep(func() *trace.Tensor { return s.param.Clone().To(trace.F32) })
}

// stepBAdam is BlockOptimizer.step of badam 1.4 around torch.optim.AdamW, which sees copies
// in fp32 of the parameters of the block that is trained.
func stepBAdam(o *Optimizer, f *trace.Frame, l *lists) {
	for i, s := range l.slots {
		l.grads[i] = f.Let(l.grads[i].To(trace.F32))
		l.params[i].ZeroGrad()
		if s.state[expAvg] == nil {
			s.state[expAvg] = o.keep(s.state[badamCopy].ZerosLike)
			s.state[expAvgSq] = o.keep(s.state[badamCopy].ZerosLike)
		}
	}
	lower := l.params
	inner := lists{slots: l.slots, params: l.state[badamCopy], grads: l.grads}
	for _, s := range l.slots {
		inner.state[expAvg] = append(inner.state[expAvg], s.state[expAvg])
		inner.state[expAvgSq] = append(inner.state[expAvgSq], s.state[expAvgSq])
	}
	if o.config.Implementation == Fused {
		fusedAdam(o, f, &inner)
	} else {
		g := o.tape.Frame()
		foreachAdam(o, g, &inner)
		g.End()
	}
	for i, p := range lower {
		trace.Update("copy_", 0, p, inner.params[i].To(p.DType()))
	}
}
