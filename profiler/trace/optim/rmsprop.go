package optim

import (
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/trace"
)

// The state of RMSprop, Adagrad and Adadelta.
const (
	squareAvg = iota

	sumOfSquares = 0 // Adagrad
	accDelta     = 1 // Adadelta
)

func initRMSprop(o *Optimizer, s *slot) { o.zeros(s, squareAvg) }

func foreachRMSprop(o *Optimizer, f *trace.Frame, l *batch) {
	grads, _ := o.foreachGradients(f, l)
	square := l.state[squareAvg]
	trace.ForeachUpdate("_foreach_mul__Scalar", 1, square)
	trace.ForeachUpdate("_foreach_addcmul__Scalar", 3, square, grads)
	avg := f.LetList(trace.ForeachNew("_foreach_sqrt", 4, square))
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
	o.like("full_like", s, sumOfSquares)
}

func fusedAdagrad(_ *Optimizer, _ *trace.Frame, l *batch) {
	l.tick()
	trace.ForeachUpdate("_fused_adagrad_", 6, l.params, l.grads, l.state[sumOfSquares])
}

func foreachAdagrad(o *Optimizer, f *trace.Frame, l *batch) {
	grads, own := o.foreachGradients(f, l)
	sum := l.state[sumOfSquares]
	trace.ForeachUpdate("_foreach_addcmul__Scalar", 3, sum, grads)
	std := f.LetList(trace.ForeachNew("_foreach_sqrt", 4, sum))
	trace.ForeachUpdate("_foreach_add__Scalar", 1, std)
	numerator := grads
	if own {
		trace.ForeachUpdate("_foreach_mul__ScalarList", 1, grads)
		f.LetList(numerator) // a second name, which goes after std
	} else {
		numerator = f.LetList(trace.ForeachNew("_foreach_mul_ScalarList", 1, grads))
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
	std := f.LetList(trace.ForeachNew("_foreach_add_Scalar", 1, square))
	trace.ForeachUpdate("_foreach_sqrt_", 4, std)
	deltas := f.LetList(trace.ForeachNew("_foreach_add_Scalar", 1, acc))
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

// The state of Rprop.
const (
	previous = iota
	stepSize
)

func initRprop(o *Optimizer, s *slot) {
	o.zeros(s, previous)
	o.like("full_like", s, stepSize)
}

func foreachRprop(o *Optimizer, f *trace.Frame, l *batch) {
	grads := l.grads
	prev := l.state[previous]
	signs := f.LetList(trace.ForeachNew("_foreach_mul_List", 1, grads, prev))
	trace.ForeachUpdate("_foreach_copy_", 0, prev, grads)
	trace.ForeachUpdate("_foreach_sign_", 1, signs)
	for _, sign := range signs {
		setWhere(sign)
	}
	f.Let(signs[len(signs)-1]) // the loop's variable outlives the loop
	trace.ForeachUpdate("_foreach_mul__List", 1, l.state[stepSize], signs)
	trace.ForeachUpdate("clamp_", 1, l.state[stepSize])
	for i, g := range prev {
		trace.Update("copy_", 0, g, trace.WhereScalar(trace.Compare("eq_Scalar", signs[i]), g))
	}
	f.DelList(signs)
	sign := func(g *trace.Tensor) *trace.Tensor { return trace.Pointwise("sign", 1, g) }
	gradSigns := f.LetList(lists.Map(prev, sign))
	trace.ForeachUpdate("_foreach_addcmul__Scalar", 3, l.params, gradSigns, l.state[stepSize])
}

// setWhere writes the factor for each sign where it occurs.
func setWhere(sign *trace.Tensor) {
	for _, op := range []string{"gt_Scalar", "lt_Scalar", "eq_Scalar"} {
		trace.Update("masked_fill_", 1, sign, trace.Compare(op, sign))
	}
}

func singleRprop(o *Optimizer, f *trace.Frame, l *batch) {
	var grad, sign *trace.Tensor
	for i, p := range l.params {
		f.Set(&grad, l.grads[i])
		prev, size := l.state[previous][i], l.state[stepSize][i]
		f.Set(&sign, trace.Pointwise("sign", 1, trace.Pointwise("mul_Tensor", 1, grad, prev)))
		setWhere(sign)
		trace.Update("mul__Tensor", 1, size, sign)
		trace.Update("clamp_", 1, size)
		f.Set(&grad, trace.Pointwise("clone", 0, grad))
		trace.Update("masked_fill_", 1, grad, trace.Compare("eq_Scalar", sign))
		trace.Update("addcmul_", 3, p, trace.Pointwise("sign", 1, grad), size)
		trace.Update("copy_", 0, prev, grad)
	}
}
