package optim

import (
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// The state of Adam and AdamW.
const (
	expAvg = iota
	expAvgSq
	maxExpAvgSq
)

func initAdam(o *Optimizer, s *slot) {
	o.deviceStep(s)
	o.zeros(s, expAvg, expAvgSq)
	if o.config.AMSGrad {
		o.zeros(s, maxExpAvgSq)
	}
}

// coupledDecay reports whether weight decay is part of the gradient.
func (c *Config) coupledDecay() bool {
	return c.WeightDecay && c.Algorithm != AdamW
}

// initMoments makes the state of the algorithms that keep two averages.
func initMoments(o *Optimizer, s *slot) { o.zeros(s, expAvg, expAvgSq) }

func foreachAdam(o *Optimizer, f *trace.Frame, l *lists) {
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
	root := f.LetList(trace.ForeachNew("_foreach_sqrt", 4, sq))
	trace.ForeachUpdate("_foreach_div__List", 4, root, nil) // by numbers
	trace.ForeachUpdate("_foreach_add__Scalar", 1, root)
	trace.ForeachUpdate("_foreach_addcdiv__ScalarList", 6, l.params, avg, root)
}

// foreachGradients returns what the foreach loops make of the gradients before
// they use them: with the parameter added for weight decay. It reports whether they
// are a list of their own.
func (o *Optimizer) foreachGradients(f *trace.Frame, l *lists) (grads []*trace.Tensor, own bool) {
	l.tick()
	switch {
	case !o.config.WeightDecay:
	case !o.config.coupledDecay():
		trace.ForeachUpdate("_foreach_mul__Scalar", 1, l.params)
	default:
		return f.LetList(trace.ForeachNew("_foreach_add_List", 2, l.grads, l.params)), true
	}
	return l.grads, false
}

// foreachMoments updates two averages by gradients, singleMoments those of one parameter.
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

func singleAdam(o *Optimizer, f *trace.Frame, l *lists) {
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

// divideScalar is number / x (Tensor.__rtruediv__): x lives until the method
// returns.
func divideScalar(x *trace.Tensor) *trace.Tensor {
	f := x.Tape().Frame()
	f.Let(x)
	y := trace.Pointwise("mul_Tensor", 1, trace.Pointwise("reciprocal", 4, x))
	return f.Return(y)
}

func fusedAdam(o *Optimizer, _ *trace.Frame, l *lists) {
	l.tick()
	op := "_fused_adam_"
	if o.config.Algorithm == AdamW {
		op = "_fused_adamw_"
	}
	trace.ForeachUpdate(op, 14, l.params, l.grads, l.state[expAvg], l.state[expAvgSq], l.state[maxExpAvgSq])
}

// singleGrokAdamW is GrokAdamW.step of grokadamw 0.1, whose state is in the host's memory but
// for that of the parameter that it updates. Its names live on from one parameter to the next.
func singleGrokAdamW(o *Optimizer, f *trace.Frame, l *lists) {
	const states = 3
	var state [states]*trace.Tensor
	var slow *trace.Tensor
	for i, p := range l.params {
		var now [states]*trace.Tensor
		for k := range now {
			now[k] = f.Let(o.tape.New("to_device", program.OptimizerState, p.DType(), p.Shape()...))
		}
		for k := range state {
			if state[k] != nil {
				f.Del(&state[k])
			}
			state[k] = now[k]
		}
		f.Discard(ClipGradNorm([]*trace.Tensor{p}, Foreach))
		grad := l.grads[i]
		trace.Update("add__Tensor", 2, trace.Update("mul__Tensor", 1, state[2]), grad)
		f.Set(&slow, trace.Pointwise("add_Tensor", 1, grad, trace.Pointwise("mul_Tensor", 1, state[2])))
		trace.Update("add__Tensor", 2, trace.Update("mul__Tensor", 1, state[0]), slow)
		trace.Update("addcmul_", 3, trace.Update("mul__Tensor", 1, state[1]), slow)
		trace.Update("mul__Tensor", 1, p)
		root := trace.Update("add__Tensor", 1, trace.Pointwise("sqrt", 4, state[1]))
		trace.Update("addcdiv_", 6, p, state[0], root)
	}
}

// initStableAdamW makes the state of StableAdamW of torch-optimi 0.3, whose kernels are
// Triton's: two moments, numbers, and compensation of weights in half precision.
func initStableAdamW(o *Optimizer, s *slot) {
	o.zeros(s, expAvg, expAvgSq)
	o.keep(func() *trace.Tensor { return o.tape.Filled("scalar_tensor", s.param.DType()) })
	if s.param.DType().IsHalf() {
		o.zeros(s, maxExpAvgSq)
	} else {
		o.keep(func() *trace.Tensor { return o.tape.Zeros(trace.U8, 1) })
	}
	o.keep(func() *trace.Tensor { return o.tape.Zeros(trace.F32, 1) })
}

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

// The state of schedulefree.AdamWScheduleFree.
const (
	freeZ = iota
	freeSquare
)

func initScheduleFree(o *Optimizer, s *slot) {
	s.state[freeZ] = o.keep(s.param.Clone)
	o.zeros(s, freeSquare)
}

// foreachScheduleFree is AdamWScheduleFree.step of schedulefree 1.4, whose lists are of a
// group's parameters, whatever their types.
func foreachScheduleFree(o *Optimizer, f *trace.Frame, l *lists) {
	square, z := l.state[freeSquare], l.state[freeZ]
	trace.ForeachUpdate("_foreach_mul__Scalar", 1, square)
	trace.ForeachUpdate("_foreach_addcmul__Scalar", 3, square, l.grads)
	root := f.LetList(trace.ForeachNew("_foreach_div_Scalar", 4, square))
	trace.ForeachUpdate("_foreach_sqrt_", 4, root)
	trace.ForeachUpdate("_foreach_add__Scalar", 1, root)
	trace.ForeachUpdate("_foreach_div__List", 4, l.grads, root)
	if o.config.WeightDecay {
		trace.ForeachUpdate("_foreach_add__List", 2, l.grads, l.params)
	}
	trace.ForeachUpdate("_foreach_lerp__Scalar", 3, l.params, z)
	trace.ForeachUpdate("_foreach_add__List", 2, l.params, l.grads)
	trace.ForeachUpdate("_foreach_sub__List", 2, z, l.grads)
}

// initScheduleFreeSGD makes the state of schedulefree.SGDScheduleFree.
func initScheduleFreeSGD(o *Optimizer, s *slot) { s.state[freeZ] = o.keep(s.param.Clone) }

// foreachScheduleFreeSGD is SGDScheduleFree.step of schedulefree 1.4.
func foreachScheduleFreeSGD(o *Optimizer, _ *trace.Frame, l *lists) {
	z := l.state[freeZ]
	if o.config.WeightDecay {
		trace.ForeachUpdate("_foreach_add__List", 2, l.grads, l.params)
	}
	trace.ForeachUpdate("_foreach_lerp__Scalar", 3, l.params, z)
	trace.ForeachUpdate("_foreach_add__List", 2, l.params, l.grads)
	trace.ForeachUpdate("_foreach_sub__List", 2, z, l.grads)
}
