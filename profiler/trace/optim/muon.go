package optim

import "github.com/vprof/vprof/profiler/trace"

// newtonSchulzSteps are the iterations that make an update orthogonal.
const newtonSchulzSteps = 5

func initMuon(o *Optimizer, s *slot) {
	s.state[0] = o.keep(s.param.Grad().ZerosLike)
}

// singleMuon is _single_tensor_muon. Its names live on from one matrix to the next.
func singleMuon(o *Optimizer, f *trace.Frame, l *lists) {
	var update *trace.Tensor
	for i, p := range l.params {
		buf := l.slots[i].state[0]
		trace.Update("lerp__Scalar", 3, buf, l.grads[i])
		f.Set(&update, trace.Pointwise("lerp_Scalar", 3, l.grads[i], buf))
		f.Set(&update, orthogonal(o, f, update))
		trace.Update("mul__Tensor", 1, p)
		trace.Update("add__Tensor", 2, p, update)
	}
}

// orthogonal is _zeropower_via_newtonschulz of a matrix.
func orthogonal(o *Optimizer, f *trace.Frame, grad *trace.Tensor) *trace.Tensor {
	g := f.FuncFrame(grad)
	tall := grad.Size(0) > grad.Size(1)
	x := g.Let(grad.To(trace.BF16))
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
	g.End(x)
	return x
}
