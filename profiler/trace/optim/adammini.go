package optim

import (
	"github.com/vprof/vprof/profiler/trace"
)

// The state of Adam_mini: a first moment of each element, and second moments of each row
// of a matrix or of a vector as a whole.
const (
	miniFirst = iota
	miniSecond
)

// initAdamMini makes the state of a parameter. Queries and keys have a second moment for
// each head, which is less than a row of them by some kilobytes.
func initAdamMini(o *Optimizer, s *slot) {
	p := s.param
	var rows []int64
	if p.NDim() > 1 {
		rows = []int64{p.Size(0), 1}
	}
	o.zeros(s, miniFirst)
	s.state[miniSecond] = o.keep(func() *trace.Tensor { return o.tape.Filled("zeros_like", p.DType(), rows...) })
}

// singleAdamMini is Adam_mini.step of adam_mini 1.1 on one GPU. Its names live on from one
// parameter to the next.
func singleAdamMini(o *Optimizer, f *trace.Frame, l *lists) {
	var mean, step, size, update *trace.Tensor
	for i, p := range l.params {
		grad, second := l.grads[i], l.state[miniSecond][i]
		squared := trace.Pointwise("mul_Tensor", 1, grad, grad)
		if p.NDim() > 1 {
			f.Set(&mean, squared.Mean(true, 1))
		} else {
			f.Set(&mean, squared.Sum(false))
		}
		trace.Update("mul__Tensor", 1, second)
		trace.Update("add__Tensor", 2, second)
		if o.config.WeightDecay {
			trace.Update("mul__Tensor", 1, p)
		}
		trace.Update("lerp__Scalar", 3, l.state[miniFirst][i], grad)
		f.Set(&step, trace.Update("add__Tensor", 1,
			trace.Pointwise("div_Tensor", 4, trace.Pointwise("sqrt", 4, second))))
		f.Set(&size, trace.Pointwise("mul_Tensor", 1, trace.Pointwise("reciprocal", 4, step)))
		f.Set(&update, trace.Pointwise("mul_Tensor", 1, l.state[miniFirst][i], size))
		trace.Update("mul__Tensor", 1, update)
		trace.Update("add__Tensor", 2, p, trace.Pointwise("neg", 1, update))
	}
}
