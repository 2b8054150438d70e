package optim

import "github.com/vprof/vprof/profiler/trace"

// The state tensors of Adam and AdamW.
const (
	expAvg = iota
	expAvgSq
	maxExpAvgSq
)

func initAdam(o *Optimizer, s *slot) {
	o.deviceStep(s)
	o.addZeros(s, expAvg, expAvgSq)
	if o.config.AMSGrad {
		o.addZeros(s, maxExpAvgSq)
	}
}

// coupledDecay reports whether weight decay is part of the gradient.
func (c *Config) coupledDecay() bool { return c.WeightDecay && c.Algorithm != AdamW }

// initMoments allocates the state of algorithms with two moving averages.
func initMoments(o *Optimizer, s *slot) { o.addZeros(s, expAvg, expAvgSq) }

func foreachAdam(o *Optimizer, f *trace.Frame, l *batch) {
	grads, own := o.foreachGradients(f, l)
	avg, sq := l.state[expAvg], l.state[expAvgSq]
	foreachMoments(avg, sq, grads)
	if own {
		f.DelList(grads)
	}
	if o.config.AMSGrad {
		most := l.state[maxExpAvgSq]
		trace.ForeachUpdate("_foreach_maximum__List", 1, most, sq)
		sq = most
	}
	root := f.BindList(trace.ForeachNew("_foreach_sqrt", 4, sq))
	trace.ForeachUpdate("_foreach_div__List", 4, root, nil) // by numbers
	trace.ForeachUpdate("_foreach_add__Scalar", 1, root)
	trace.ForeachUpdate("_foreach_addcdiv__ScalarList", 6, l.params, avg, root)
}

// foreachGradients returns the gradients that the foreach loops use: with coupled weight decay a new list with the
// parameters added, which own reports, else l.grads.
func (o *Optimizer) foreachGradients(f *trace.Frame, l *batch) (grads []*trace.Tensor, own bool) {
	l.incrementSteps()
	switch {
	case !o.config.WeightDecay:
	case !o.config.coupledDecay():
		trace.ForeachUpdate("_foreach_mul__Scalar", 1, l.params)
	default:
		return f.BindList(trace.ForeachNew("_foreach_add_List", 2, l.grads, l.params)), true
	}
	return l.grads, false
}

// foreachMoments updates two averages by lists of gradients; singleMoments updates the averages of one parameter.
func foreachMoments(avg, sq, grads []*trace.Tensor) {
	trace.ForeachUpdate("_foreach_lerp__Scalar", 3, avg, grads)
	trace.ForeachUpdate("_foreach_mul__Scalar", 1, sq)
	trace.ForeachUpdate("_foreach_addcmul__Scalar", 3, sq, grads)
}

func singleMoments(avg, sq, grad *trace.Tensor) {
	trace.Update("lerp__Scalar", 3, avg, grad)
	trace.Update("mul__Tensor", 1, sq)
	trace.Update("addcmul_", 3, sq, grad)
}

func singleAdam(o *Optimizer, f *trace.Frame, l *batch) {
	var grad, denom *trace.Tensor
	for i, p := range l.params {
		f.Set(&grad, l.grads[i])
		avg, sq := l.state[expAvg][i], l.state[expAvgSq][i]
		if len(l.steps) > 0 {
			trace.Update("add__Tensor", 1, l.steps[i])
		}
		o.decay(f, &grad, p)
		singleMoments(avg, sq, grad)
		if o.config.AMSGrad {
			trace.Update("copy_", 0, l.state[maxExpAvgSq][i], sq)
			sq = l.state[maxExpAvgSq][i]
		}
		f.Set(&denom, trace.Update("add__Tensor", 1, trace.Pointwise("div_Tensor", 4, trace.Pointwise("sqrt", 4, sq))))
		trace.Update("addcdiv_", 6, p, avg, denom)
	}
}

// divideScalar records number / x (Tensor.__rtruediv__): x lives until the method returns.
func divideScalar(x *trace.Tensor) *trace.Tensor {
	f := x.Tape().Frame()
	f.Bind(x)
	y := trace.Pointwise("mul_Tensor", 1, trace.Pointwise("reciprocal", 4, x))
	return f.Return(y)
}

func fusedAdam(o *Optimizer, _ *trace.Frame, l *batch) {
	l.incrementSteps()
	op := "_fused_adam_"
	if o.config.Algorithm == AdamW {
		op = "_fused_adamw_"
	}
	trace.ForeachUpdate(op, 14, l.params, l.grads, l.state[expAvg], l.state[expAvgSq], l.state[maxExpAvgSq])
}
