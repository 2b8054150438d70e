package optim

import "github.com/vprof/vprof/profiler/trace"

func foreachNAdam(o *Optimizer, f *trace.Frame, l *batch) {
	grads, _ := o.foreachGradients(f, l)
	avg, sq := l.state[expAvg], l.state[expAvgSq]
	foreachMoments(avg, sq, grads)
	root := f.BindList(trace.ForeachNew("_foreach_sqrt", 4, sq))
	trace.ForeachUpdate("_foreach_div__ScalarList", 4, root)
	trace.ForeachUpdate("_foreach_add__Scalar", 1, root)
	trace.ForeachUpdate("_foreach_addcdiv__ScalarList", 6, l.params, grads, root)
	trace.ForeachUpdate("_foreach_addcdiv__ScalarList", 6, l.params, avg, root)
}

func singleNAdam(o *Optimizer, f *trace.Frame, l *batch) {
	var grad, denom *trace.Tensor
	for i, p := range l.params {
		f.Set(&grad, l.grads[i])
		o.decay(f, &grad, p)
		avg, sq := l.state[expAvg][i], l.state[expAvgSq][i]
		singleMoments(avg, sq, grad)
		f.Set(&denom, trace.Pointwise("sqrt", 4, trace.Pointwise("div_Tensor", 4, sq)))
		trace.Update("add__Tensor", 1, denom)
		trace.Update("addcdiv_", 6, p, grad, denom)
		trace.Update("addcdiv_", 6, p, avg, denom)
	}
}

// decay applies weight decay to a gradient, or to the parameter if it is decoupled.
func (o *Optimizer) decay(f *trace.Frame, grad **trace.Tensor, p *trace.Tensor) {
	switch {
	case !o.config.WeightDecay:
	case o.config.coupledDecay():
		f.Set(grad, trace.Pointwise("add_Tensor", 2, *grad, p))
	default:
		trace.Update("mul__Tensor", 1, p)
	}
}

func foreachAdamax(o *Optimizer, f *trace.Frame, l *batch) {
	grads, own := o.foreachGradients(f, l)
	avg, most := l.state[expAvg], l.state[expAvgSq]
	trace.ForeachUpdate("_foreach_lerp__Scalar", 3, avg, grads)
	trace.ForeachUpdate("_foreach_mul__Scalar", 1, most)
	if own {
		trace.ForeachUpdate("_foreach_abs_", 1, grads)
	} else {
		grads = f.BindList(trace.ForeachNew("_foreach_abs", 1, grads))
	}
	trace.ForeachUpdate("_foreach_add__Scalar", 1, grads)
	trace.ForeachUpdate("_foreach_maximum__List", 1, most, grads)
	trace.ForeachUpdate("_foreach_addcdiv__ScalarList", 6, l.params, avg, most)
}

func singleAdamax(o *Optimizer, f *trace.Frame, l *batch) {
	var grad *trace.Tensor
	for i, p := range l.params {
		f.Set(&grad, l.grads[i])
		o.decay(f, &grad, p)
		avg, most := l.state[expAvg][i], l.state[expAvgSq][i]
		trace.Update("lerp__Scalar", 3, avg, grad)
		trace.Update("mul__Tensor", 1, most)
		trace.Update("maximum_out", 1, most, trace.Update("add__Tensor", 1, trace.Pointwise("abs", 1, grad)))
		trace.Update("addcdiv_", 6, p, avg, most)
	}
}
