package optim

import "github.com/vprof/vprof/profiler/trace"

// The state tensor of SGD.
const momentumBuffer = 0

// firstMomentum allocates the momentum buffer of a parameter, a copy of its first gradient.
func (o *Optimizer) firstMomentum(s *slot, grad *trace.Tensor) {
	s.state[momentumBuffer] = o.keep(grad.Clone)
}

func foreachSGD(o *Optimizer, f *trace.Frame, l *batch) {
	grads := l.grads
	if o.config.WeightDecay {
		grads = f.BindList(trace.ForeachNew("_foreach_add_List", 2, grads, l.params))
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

func singleSGD(o *Optimizer, f *trace.Frame, l *batch) {
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

func fusedSGD(o *Optimizer, _ *trace.Frame, l *batch) {
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

// newtonSchulzSteps are the iterations that make an update orthogonal.
const newtonSchulzSteps = 5

func initMuon(o *Optimizer, s *slot) {
	s.state[0] = o.keep(s.param.Grad().ZerosLike)
}

// singleMuon records torch.optim's _single_tensor_muon, whose variables live on from one matrix to the next.
func singleMuon(o *Optimizer, f *trace.Frame, l *batch) {
	var update *trace.Tensor
	for i, p := range l.params {
		buf := l.slots[i].state[0]
		trace.Update("lerp__Scalar", 3, buf, l.grads[i])
		f.Set(&update, trace.Pointwise("lerp_Scalar", 3, l.grads[i], buf))
		f.Set(&update, orthogonalize(f, update))
		trace.Update("mul__Tensor", 1, p)
		trace.Update("add__Tensor", 2, p, update)
	}
}

// orthogonalize records _zeropower_via_newtonschulz of torch.optim.Muon, which makes an update orthogonal.
func orthogonalize(f *trace.Frame, grad *trace.Tensor) *trace.Tensor {
	g := f.FunctionFrame(grad)
	tall := grad.Size(0) > grad.Size(1)
	x := g.Bind(grad.To(trace.BF16))
	if tall {
		g.Set(&x, x.T())
	}
	norm := trace.VectorNorm(x, false)
	trace.Update("div__Tensor", 4, x, trace.Pointwise("clamp", 1, norm))
	var gram, step *trace.Tensor
	for range newtonSchulzSteps {
		g.Set(&gram, x.Matmul(x.T()))
		g.Set(&step, gram.AddMM(gram, gram))
		g.Set(&x, x.AddMM(step, x))
	}
	if tall {
		g.Set(&x, x.T())
	}
	return g.Return(x)
}
