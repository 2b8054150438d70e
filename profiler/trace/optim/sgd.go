package optim

import "github.com/vprof/vprof/profiler/trace"

// The state of SGD.
const momentumBuffer = 0

func initSGD(*Optimizer, *slot) {} // the momentum buffer is made by the step itself

// momentum gives a parameter its buffer, a copy of its first gradient.
func (o *Optimizer) firstMomentum(s *slot, grad *trace.Tensor) {
	s.state[momentumBuffer] = o.keep(grad.Clone)
}

func foreachSGD(o *Optimizer, f *trace.Frame, l *lists) {
	grads := l.grads
	if o.config.WeightDecay {
		grads = f.LetList(trace.ForeachNew("_foreach_add_List", 2, grads, l.params))
	}
	if o.config.Momentum {
		for i, s := range l.slots {
			if s.state[momentumBuffer] == nil {
				o.firstMomentum(s, grads[i])
				l.state[momentumBuffer] = append(l.state[momentumBuffer], s.state[momentumBuffer])
			}
		}
		buffers := l.state[momentumBuffer]
		trace.ForeachUpdate("_foreach_mul__Scalar", 1, buffers)
		trace.ForeachUpdate("_foreach_add__List", 2, buffers, grads)
		grads = buffers
	}
	trace.ForeachUpdate("_foreach_add__List", 2, l.params, grads)
}

func singleSGD(o *Optimizer, f *trace.Frame, l *lists) {
	c := &o.config
	var grad *trace.Tensor
	for i, p := range l.params {
		f.Set(&grad, l.grads[i])
		if c.WeightDecay {
			f.Set(&grad, trace.Pointwise("add_Tensor", 2, grad, p))
		}
		if c.Momentum {
			s := l.slots[i]
			if s.state[momentumBuffer] == nil {
				o.firstMomentum(s, grad)
			} else {
				trace.Update("mul__Tensor", 1, s.state[momentumBuffer])
				trace.Update("add__Tensor", 2, s.state[momentumBuffer], grad)
			}
			f.Set(&grad, s.state[momentumBuffer])
		}
		trace.Update("add__Tensor", 2, p, grad)
	}
}

func fusedSGD(o *Optimizer, _ *trace.Frame, l *lists) {
	if o.config.Momentum {
		for i, s := range l.slots {
			if s.state[momentumBuffer] == nil {
				s.state[momentumBuffer] = o.keep(l.grads[i].EmptyLike)
				l.state[momentumBuffer] = append(l.state[momentumBuffer], s.state[momentumBuffer])
			}
		}
	}
	trace.ForeachUpdate("_fused_sgd_", 6, l.params, l.grads, l.state[momentumBuffer])
}
