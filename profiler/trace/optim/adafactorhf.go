package optim

import (
	"slices"

	"github.com/vprof/vprof/profiler/trace"
)

// The state of transformers' Adafactor without a first moment, in fp32: second moments of rows and
// columns, or of the elements of a vector, and the root mean square of the parameter.
const (
	factoredRows = iota
	factoredColumns
	factoredRMS

	factoredSquare = factoredRows
)

// factoredState allocates the fp32 second moments of a gradient at the first step.
func (o *Optimizer) factoredState(s *slot, grad *trace.Tensor) {
	if s.state[factoredRows] != nil {
		return
	}
	n, shape := grad.NDim(), grad.Shape()
	state := func(k int, dims ...int64) {
		s.state[k] = o.keep(func() *trace.Tensor { return o.tape.Filled("zeros", trace.F32, dims...) })
	}
	if n < 2 {
		state(factoredSquare, shape...)
		return
	}
	state(factoredRows, shape[:n-1]...)
	state(factoredColumns, append(slices.Clone(shape[:n-2]), shape[n-1])...)
}

// recordFactoredUpdate records the update of a parameter from an fp32 gradient and its second moments.
func recordFactoredUpdate(f *trace.Frame, s *slot, grad *trace.Tensor, update **trace.Tensor) {
	f.Set(update, trace.Pointwise("add_Tensor", 1, trace.Pointwise("pow_Tensor_Scalar", 1, grad)))
	if grad.NDim() > 1 {
		updateMeans(s.state[factoredRows], s.state[factoredColumns], *update)
		f.Set(update, approximateSquares(f, s.state[factoredRows], s.state[factoredColumns]))
		trace.Update("mul__Tensor", 1, *update, grad)
	} else {
		trace.Update("add__Tensor", 2, trace.Update("mul__Tensor", 1, s.state[factoredSquare]), *update)
		f.Set(update, trace.Update("mul__Tensor", 1, trace.Pointwise("rsqrt", 4, s.state[factoredSquare]), grad))
	}
	trace.Update("div__Tensor", 4, *update,
		trace.Update("clamp_", 1, trace.Pointwise("div_Tensor", 4, rootMeanSquare(*update))))
}

// singleAdafactorHF records Adafactor.step of transformers 5.23, and GaLore's copy of it, which projects gradients. Its
// local names live on from one parameter to the next.
func singleAdafactorHF(o *Optimizer, f *trace.Frame, l *batch) {
	var grad, whole, update *trace.Tensor
	for i, p := range l.params {
		s := l.slots[i]
		f.Set(&grad, l.grads[i])
		f.Set(&grad, grad.To(trace.F32))
		if s.low {
			o.projectionMatrix(f, s, grad)
			f.Set(&grad, project(s, grad))
		}
		o.factoredState(s, grad)
		f.Set(&whole, p)
		f.Set(&whole, p.To(trace.F32))
		o.storeRMS(s, whole)
		recordFactoredUpdate(f, s, grad, &update)
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

// storeRMS computes the root mean square of a parameter and stores it in state["RMS"].
func (o *Optimizer) storeRMS(s *slot, p *trace.Tensor) {
	old := s.state[factoredRMS]
	s.state[factoredRMS] = o.keep(func() *trace.Tensor { return rootMeanSquare(p) })
	if old != nil {
		o.held.Del(&old)
	}
}

func rootMeanSquare(x *trace.Tensor) *trace.Tensor {
	return trace.Pointwise("div_Tensor", 4, trace.VectorNorm(x, false))
}

// updateMeans updates the running means of rows and columns of the squared gradient.
func updateMeans(rows, columns, x *trace.Tensor) {
	trace.Update("add__Tensor", 2, trace.Update("mul__Tensor", 1, rows), x.Mean(false, -1))
	trace.Update("add__Tensor", 2, trace.Update("mul__Tensor", 1, columns), x.Mean(false, -2))
}

// approximateSquares records Adafactor._approx_sq_grad of transformers.
func approximateSquares(f *trace.Frame, rows, columns *trace.Tensor) *trace.Tensor {
	g := f.FunctionFrame(rows, columns)
	r := g.Bind(trace.Update("rsqrt_", 4, trace.Pointwise("div_Tensor", 4, rows, rows.Mean(true, -1))).Unsqueeze(-1))
	c := g.Bind(trace.Pointwise("rsqrt", 4, columns.Unsqueeze(-2)))
	y := trace.Pointwise("mul_Tensor", 1, r, c)
	return g.Return(y)
}
