package optim

import "github.com/vprof/vprof/profiler/trace"

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
	return c.WeightDecay && c.Algorithm != AdamW && !c.DecoupledDecay
}

// initMoments makes the state of the algorithms that keep two averages.
func initMoments(o *Optimizer, s *slot) { o.zeros(s, expAvg, expAvgSq) }

func foreachAdam(o *Optimizer, f *trace.Frame, l *lists) {
	c := &o.config
	grads, own := o.foreachGradients(f, l)
	avg, sq := l.state[expAvg], l.state[expAvgSq]
	trace.ForeachUpdate("_foreach_lerp__Scalar", 3, avg, grads)
	trace.ForeachUpdate("_foreach_mul__Scalar", 1, sq)
	trace.ForeachUpdate("_foreach_addcmul__Scalar", 3, sq, grads)
	if own {
		f.DelList(grads)
	}
	var bias1, bias2 []*trace.Tensor
	if c.Capturable {
		bias1 = f.LetList(trace.ForeachNew("_foreach_pow_ScalarAndTensor", 8, l.steps))
		bias2 = f.LetList(trace.ForeachNew("_foreach_pow_ScalarAndTensor", 8, l.steps))
		trace.ForeachUpdate("_foreach_sub__Scalar", 1, bias1)
		trace.ForeachUpdate("_foreach_sub__Scalar", 1, bias2)
		trace.ForeachUpdate("_foreach_neg_", 1, bias2)
		trace.ForeachUpdate("_foreach_div__Scalar", 4, bias1)
		trace.ForeachUpdate("_foreach_reciprocal_", 4, bias1)
		trace.ForeachUpdate("_foreach_sqrt_", 4, bias2)
	}
	if c.AMSGrad {
		most := l.state[maxExpAvgSq]
		trace.ForeachUpdate("_foreach_maximum__List", 1, most, sq)
		sq = most
	}
	root := f.LetList(trace.ForeachNew("_foreach_sqrt", 4, sq))
	trace.ForeachUpdate("_foreach_div__List", 4, root, bias2)
	trace.ForeachUpdate("_foreach_add__Scalar", 1, root)
	if c.Capturable {
		trace.ForeachUpdate("_foreach_div__List", 4, root, bias1)
	}
	trace.ForeachUpdate("_foreach_addcdiv__ScalarList", 6, l.params, avg, root)
}

// foreachGradients is what the foreach loops make of the gradients before
// they use them: negated to maximize, and with the parameter added for weight
// decay. It reports whether they are a list of their own.
func (o *Optimizer) foreachGradients(f *trace.Frame, l *lists) (grads []*trace.Tensor, own bool) {
	c := &o.config
	grads = l.grads
	if c.Maximize {
		grads, own = f.LetList(trace.ForeachNew("_foreach_neg", 1, grads)), true
	}
	l.tick()
	switch {
	case !c.WeightDecay:
	case !c.coupledDecay():
		trace.ForeachUpdate("_foreach_mul__Scalar", 1, l.params)
	case own:
		trace.ForeachUpdate("_foreach_add__List", 2, grads, l.params)
	default:
		grads, own = f.LetList(trace.ForeachNew("_foreach_add_List", 2, grads, l.params)), true
	}
	return grads, own
}

func singleAdam(o *Optimizer, f *trace.Frame, l *lists) {
	c := &o.config
	var grad, denom *trace.Tensor
	var b biasCorrection
	for i, p := range l.params {
		f.Set(&grad, o.gradient(l, i))
		avg, sq := l.state[expAvg][i], l.state[expAvgSq][i]
		if len(l.steps) > 0 {
			trace.Update("add__Tensor", 1, l.steps[i])
		}
		if c.WeightDecay {
			if c.coupledDecay() {
				f.Set(&grad, trace.Pointwise("add_Tensor", 2, grad, p))
			} else {
				trace.Update("mul__Tensor", 1, p)
			}
		}
		trace.Update("lerp__Scalar", 3, avg, grad)
		trace.Update("mul__Tensor", 1, sq)
		trace.Update("addcmul_", 3, sq, grad)
		if c.Capturable {
			b.set(f, l.steps[i])
		}
		if c.AMSGrad {
			trace.Update("copy_", 0, l.state[maxExpAvgSq][i], sq)
			sq = l.state[maxExpAvgSq][i]
		}
		root := trace.Pointwise("sqrt", 4, sq)
		if c.Capturable {
			x := trace.Pointwise("div_Tensor", 4, root, trace.Pointwise("mul_Tensor", 1, b.sqrt2, b.negative))
			f.Set(&denom, trace.Update("add__Tensor", 1, x, divideScalar(b.negative)))
		} else {
			x := trace.Pointwise("div_Tensor", 4, root)
			f.Set(&denom, trace.Update("add__Tensor", 1, x))
		}
		trace.Update("addcdiv_", 6, p, avg, denom)
	}
}

// biasCorrection are the scalars that a capturable Adam computes on the
// device for every parameter.
type biasCorrection struct{ one, two, size, negative, sqrt2 *trace.Tensor }

func (b *biasCorrection) set(f *trace.Frame, step *trace.Tensor) {
	f.Set(&b.one, oneMinus(scalarPow(step)))
	f.Set(&b.two, oneMinus(scalarPow(step)))
	f.Set(&b.size, divideScalar(b.one))
	f.Set(&b.negative, trace.Pointwise("neg", 1, b.size))
	f.Set(&b.sqrt2, trace.Pointwise("sqrt", 4, b.two))
}

// scalarPow is beta ** step: the base becomes a tensor of its own for a
// moment.
func scalarPow(step *trace.Tensor) *trace.Tensor { return trace.ScalarPow(step) }

// oneMinus is 1 - x.
func oneMinus(x *trace.Tensor) *trace.Tensor { return trace.Pointwise("rsub_Scalar", 1, x) }

// divideScalar is number / x (Tensor.__rtruediv__): x lives until the method
// returns.
func divideScalar(x *trace.Tensor) *trace.Tensor {
	f := x.Tape().Frame()
	f.Let(x)
	y := trace.Pointwise("mul_Tensor", 1, trace.Pointwise("reciprocal", 4, x))
	f.End(y)
	return y
}

func fusedAdam(o *Optimizer, _ *trace.Frame, l *lists) {
	l.tick()
	op := "_fused_adam_"
	if o.config.Algorithm == AdamW {
		op = "_fused_adamw_"
	}
	trace.ForeachUpdate(op, 14, l.params, l.grads, l.state[expAvg], l.state[expAvgSq], l.state[maxExpAvgSq])
}
