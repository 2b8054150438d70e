package optim

import (
	"slices"

	"github.com/vprof/vprof/profiler/trace"
)

// The state of CAME, in fp32: a first moment of each element, second moments and those of
// the residuals by rows and columns, for vectors second moments of each element.
const (
	cameFirst = iota
	cameRows
	cameColumns
	cameResidualRows
	cameResidualColumns
	cameRMS

	cameSquare = cameRows
)

func initCAME(o *Optimizer, s *slot) {
	shape := s.param.Shape()
	n := len(shape)
	state := func(k int, dims ...int64) {
		s.state[k] = o.keep(func() *trace.Tensor { return o.tape.Filled("zeros", trace.F32, dims...) })
	}
	state(cameFirst, shape...)
	if n < 2 {
		state(cameSquare, shape...)
		return
	}
	rows := shape[:n-1]
	columns := append(slices.Clone(shape[:n-2]), shape[n-1])
	state(cameRows, rows...)
	state(cameColumns, columns...)
	state(cameResidualRows, rows...)
	state(cameResidualColumns, columns...)
}

// singleCAME is CAME.step of came_pytorch 0.1. Its names live on from one parameter to the
// next.
func singleCAME(o *Optimizer, f *trace.Frame, l *lists) {
	var grad, update, residual, approximated *trace.Tensor
	for i, p := range l.params {
		s := l.slots[i]
		f.Set(&grad, l.grads[i])
		f.Set(&grad, grad.To(trace.F32))
		o.rms(s, p)
		f.Set(&update, trace.Pointwise("add_Tensor", 1, trace.Pointwise("pow_Tensor_Scalar", 1, grad)))
		factored := p.NDim() > 1
		if factored {
			average(s.state[cameRows], s.state[cameColumns], update)
			f.Set(&update, approximate(f, s.state[cameRows], s.state[cameColumns]))
		} else {
			trace.Update("add__Tensor", 2, trace.Update("mul__Tensor", 1, s.state[cameSquare]), update)
			f.Set(&update, trace.Pointwise("rsqrt", 4, s.state[cameSquare]))
		}
		trace.Update("mul__Tensor", 1, update, grad)
		trace.Update("div__Tensor", 4, update, trace.Update("clamp_", 1, divideScalar(rootMeanSquare(update))))
		first := s.state[cameFirst]
		trace.Update("add__Tensor", 2, trace.Update("mul__Tensor", 1, first), update)
		f.Set(&residual, trace.Pointwise("add_Tensor", 1,
			trace.Pointwise("pow_Tensor_Scalar", 1, trace.Pointwise("sub_Tensor", 2, update, first))))
		if factored {
			average(s.state[cameResidualRows], s.state[cameResidualColumns], residual)
			f.Set(&approximated, approximate(f, s.state[cameResidualRows], s.state[cameResidualColumns]))
			trace.Update("mul__Tensor", 1, approximated, first)
			f.Set(&update, approximated)
		} else {
			f.Set(&update, first.Clone())
		}
		if o.config.WeightDecay {
			trace.Update("add__Tensor", 2, p, p)
		}
		trace.Update("mul__Tensor", 1, update)
		trace.Update("add__Tensor", 2, p, trace.Pointwise("neg", 1, update))
	}
}

// rms keeps the root mean square of a parameter, as state["RMS"].
func (o *Optimizer) rms(s *slot, p *trace.Tensor) {
	old := s.state[cameRMS]
	s.state[cameRMS] = o.keep(func() *trace.Tensor { return rootMeanSquare(p) })
	if old != nil {
		o.held.Del(&old)
	}
}

// rootMeanSquare is _rms.
func rootMeanSquare(x *trace.Tensor) *trace.Tensor {
	return trace.Pointwise("div_Tensor", 4, trace.VectorNorm(x, false))
}

// average adds the means of rows and columns to what is kept of them.
func average(rows, columns, x *trace.Tensor) {
	trace.Update("add__Tensor", 2, trace.Update("mul__Tensor", 1, rows), x.Mean(false, -1))
	trace.Update("add__Tensor", 2, trace.Update("mul__Tensor", 1, columns), x.Mean(false, -2))
}

// approximate is _approx_sq_grad.
func approximate(f *trace.Frame, rows, columns *trace.Tensor) *trace.Tensor {
	g := f.FuncFrame(rows, columns)
	r := g.Let(trace.Update("rsqrt_", 4, trace.Pointwise("div_Tensor", 4, rows, rows.Mean(true, -1))).Unsqueeze(-1))
	c := g.Let(trace.Pointwise("rsqrt", 4, columns.Unsqueeze(-2)))
	y := trace.Pointwise("mul_Tensor", 1, r, c)
	return g.Return(y)
}
