package optim

import (
	"github.com/vprof/vprof/profiler/trace"
)

// The state tensors of RMSprop, Adagrad and Adadelta.
const (
	squareAvg = iota

	sumOfSquares = 0 // Adagrad
	accDelta     = 1 // Adadelta
)

func initRMSprop(o *Optimizer, s *slot) { o.addZeros(s, squareAvg) }

func foreachRMSprop(o *Optimizer, f *trace.Frame, l *batch) {
	grads, _ := o.foreachGradients(f, l)
	square := l.state[squareAvg]
	trace.ForeachUpdate("_foreach_mul__Scalar", 1, square)
	trace.ForeachUpdate("_foreach_addcmul__Scalar", 3, square, grads)
	avg := f.BindList(trace.ForeachNew("_foreach_sqrt", 4, square))
	trace.ForeachUpdate("_foreach_add__Scalar", 1, avg)
	trace.ForeachUpdate("_foreach_addcdiv__Scalar", 6, l.params, grads, avg)
}

func singleRMSprop(o *Optimizer, f *trace.Frame, l *batch) {
	var grad, avg *trace.Tensor
	for i, p := range l.params {
		f.Set(&grad, l.grads[i])
		o.decay(f, &grad, p)
		square := l.state[squareAvg][i]
		trace.Update("mul__Tensor", 1, square)
		trace.Update("addcmul_", 3, square, grad)
		f.Set(&avg, trace.Pointwise("sqrt", 4, square))
		trace.Update("add__Tensor", 1, avg)
		trace.Update("addcdiv_", 6, p, grad, avg)
	}
}

func initAdagrad(o *Optimizer, s *slot) {
	o.deviceStep(s)
	o.addStateLike("full_like", s, sumOfSquares)
}

func fusedAdagrad(_ *Optimizer, _ *trace.Frame, l *batch) {
	l.incrementSteps()
	trace.ForeachUpdate("_fused_adagrad_", 6, l.params, l.grads, l.state[sumOfSquares])
}

func foreachAdagrad(o *Optimizer, f *trace.Frame, l *batch) {
	grads, own := o.foreachGradients(f, l)
	sum := l.state[sumOfSquares]
	trace.ForeachUpdate("_foreach_addcmul__Scalar", 3, sum, grads)
	std := f.BindList(trace.ForeachNew("_foreach_sqrt", 4, sum))
	trace.ForeachUpdate("_foreach_add__Scalar", 1, std)
	numerator := grads
	if own {
		trace.ForeachUpdate("_foreach_mul__ScalarList", 1, grads)
		f.BindList(numerator) // a second name, which goes after std
	} else {
		numerator = f.BindList(trace.ForeachNew("_foreach_mul_ScalarList", 1, grads))
	}
	trace.ForeachUpdate("_foreach_addcdiv__Scalar", 6, l.params, numerator, std)
}

func singleAdagrad(o *Optimizer, f *trace.Frame, l *batch) {
	var grad, std *trace.Tensor
	for i, p := range l.params {
		f.Set(&grad, l.grads[i])
		o.decay(f, &grad, p)
		sum := l.state[sumOfSquares][i]
		trace.Update("addcmul_", 3, sum, grad)
		f.Set(&std, trace.Update("add__Tensor", 1, trace.Pointwise("sqrt", 4, sum)))
		trace.Update("addcdiv_", 6, p, grad, std)
	}
}

func foreachAdadelta(o *Optimizer, f *trace.Frame, l *batch) {
	grads, _ := o.foreachGradients(f, l)
	square, acc := l.state[squareAvg], l.state[accDelta]
	trace.ForeachUpdate("_foreach_mul__Scalar", 1, square)
	trace.ForeachUpdate("_foreach_addcmul__Scalar", 3, square, grads)
	std := f.BindList(trace.ForeachNew("_foreach_add_Scalar", 1, square))
	trace.ForeachUpdate("_foreach_sqrt_", 4, std)
	deltas := f.BindList(trace.ForeachNew("_foreach_add_Scalar", 1, acc))
	trace.ForeachUpdate("_foreach_sqrt_", 4, deltas)
	trace.ForeachUpdate("_foreach_div__List", 4, deltas, std)
	trace.ForeachUpdate("_foreach_mul__List", 1, deltas, grads)
	trace.ForeachUpdate("_foreach_mul__Scalar", 1, acc)
	trace.ForeachUpdate("_foreach_addcmul__Scalar", 3, acc, deltas)
	trace.ForeachUpdate("_foreach_add__List", 2, l.params, deltas)
}

func singleAdadelta(o *Optimizer, f *trace.Frame, l *batch) {
	var grad, std, delta *trace.Tensor
	for i, p := range l.params {
		f.Set(&grad, l.grads[i])
		o.decay(f, &grad, p)
		square, acc := l.state[squareAvg][i], l.state[accDelta][i]
		trace.Update("mul__Tensor", 1, square)
		trace.Update("addcmul_", 3, square, grad)
		f.Set(&std, trace.Update("sqrt_", 4, trace.Pointwise("add_Tensor", 1, square)))
		f.Set(&delta, trace.Update("sqrt_", 4, trace.Pointwise("add_Tensor", 1, acc)))
		trace.Update("div__Tensor", 4, delta, std)
		trace.Update("mul__Tensor", 1, delta, grad)
		trace.Update("mul__Tensor", 1, acc)
		trace.Update("addcmul_", 3, acc, delta)
		trace.Update("add__Tensor", 2, p, delta)
	}
}
