package optim

import (
	"slices"

	"github.com/vprof/vprof/profiler/trace"
)

// The state of transformers' Adafactor without a first moment, in fp32, which is like CAME's
// second moments: of rows and columns, or of the elements of a vector.

// factoredState makes second moments of a gradient in fp32 where there are none.
func (o *Optimizer) factoredState(s *slot, grad *trace.Tensor) {
	if s.state[cameRows] != nil {
		return
	}
	n, shape := grad.NDim(), grad.Shape()
	state := func(k int, dims ...int64) {
		s.state[k] = o.keep(func() *trace.Tensor { return o.tape.Filled("zeros", trace.F32, dims...) })
	}
	if n < 2 {
		state(cameSquare, shape...)
		return
	}
	state(cameRows, shape[:n-1]...)
	state(cameColumns, append(slices.Clone(shape[:n-2]), shape[n-1])...)
}

// factored is the update by second moments: of a gradient in fp32.
func factored(f *trace.Frame, s *slot, grad *trace.Tensor, update **trace.Tensor) {
	f.Set(update, trace.Pointwise("add_Tensor", 1, trace.Pointwise("pow_Tensor_Scalar", 1, grad)))
	if grad.NDim() > 1 {
		average(s.state[cameRows], s.state[cameColumns], *update)
		f.Set(update, approximate(f, s.state[cameRows], s.state[cameColumns]))
		trace.Update("mul__Tensor", 1, *update, grad)
	} else {
		trace.Update("add__Tensor", 2, trace.Update("mul__Tensor", 1, s.state[cameSquare]), *update)
		f.Set(update, trace.Update("mul__Tensor", 1, trace.Pointwise("rsqrt", 4, s.state[cameSquare]), grad))
	}
	trace.Update("div__Tensor", 4, *update,
		trace.Update("clamp_", 1, trace.Pointwise("div_Tensor", 4, rootMeanSquare(*update))))
}

// singleAdafactorHF is Adafactor.step of transformers 5.23, and GaLore's copy of it, which
// projects. Its names live on from one parameter to the next.
func singleAdafactorHF(o *Optimizer, f *trace.Frame, l *lists) {
	var grad, whole, update *trace.Tensor
	for i, p := range l.params {
		s := l.slots[i]
		f.Set(&grad, l.grads[i])
		f.Set(&grad, grad.To(trace.F32))
		if s.low {
			o.matrix(f, s, grad, true)
			f.Set(&grad, project(s, grad))
		}
		o.factoredState(s, grad)
		f.Set(&whole, p)
		f.Set(&whole, p.To(trace.F32))
		o.rms(s, whole)
		factored(f, s, grad, &update)
		trace.Update("mul__Tensor", 1, update)
		if s.low {
			f.Set(&update, projectBack(f, s, update))
		}
		if o.config.WeightDecay {
			trace.Update("add__Tensor", 2, whole, whole)
		}
		trace.Update("add__Tensor", 2, whole, trace.Pointwise("neg", 1, update))
		if whole != p {
			trace.Update("copy_", 0, p, whole)
		}
	}
}

// initAdaLOMO makes AdaLomo's second moments, with the optimizer.
func initAdaLOMO(o *Optimizer, s *slot) { o.factoredState(s, s.param) }

// singleAdaLOMO is the hook of lomo_optim 0.1's AdaLomo.
func singleAdaLOMO(o *Optimizer, f *trace.Frame, l *lists) {
	var update *trace.Tensor
	for i, p := range l.params {
		grad, s := takeGradient(f, p, l.grads[i]), l.slots[i]
		trace.Update("div__Tensor", 4, grad)
		factored(f, s, grad, &update)
		whole := f.Let(p.To(trace.F32))
		f.Discard(rootMeanSquare(whole))
		trace.Update("add__Tensor", 2, whole, update)
		trace.Update("copy_", 0, p, whole)
	}
}

// singleLOMO is the hook of lomo_optim 0.1's Lomo.
func singleLOMO(o *Optimizer, f *trace.Frame, l *lists) {
	for i, p := range l.params {
		grad := takeGradient(f, p, l.grads[i])
		whole := f.Let(p.To(trace.F32))
		trace.Update("add__Tensor", 2, whole, grad)
		trace.Update("copy_", 0, p, whole)
	}
}

// takeGradient returns a parameter's gradient in fp32, the only copy that remains.
func takeGradient(f *trace.Frame, p, grad *trace.Tensor) *trace.Tensor {
	whole := f.Let(grad.To(trace.F32))
	p.ZeroGrad()
	return whole
}
