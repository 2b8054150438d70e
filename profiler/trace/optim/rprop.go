package optim

import "github.com/vprof/vprof/profiler/trace"

// The state of Rprop and of ASGD.
const (
	previous = iota
	stepSize

	averaged = 0 // ASGD: ax
	eta      = 1
	mu       = 2
)

func initRprop(o *Optimizer, s *slot) {
	o.zeros(s, previous)
	o.like("full_like", s, stepSize)
}

func foreachRprop(o *Optimizer, f *trace.Frame, l *lists) {
	grads := l.grads
	if o.config.Maximize {
		grads = f.LetList(trace.ForeachNew("_foreach_neg", 1, grads))
	}
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
	var gradSigns []*trace.Tensor
	for _, g := range prev {
		gradSigns = append(gradSigns, trace.Pointwise("sign", 1, g))
	}
	f.LetList(gradSigns)
	trace.ForeachUpdate("_foreach_addcmul__Scalar", 3, l.params, gradSigns, l.state[stepSize])
}

// setWhere writes the factor for each sign where it occurs.
func setWhere(sign *trace.Tensor) {
	for _, op := range []string{"gt_Scalar", "lt_Scalar", "eq_Scalar"} {
		trace.Update("masked_fill_", 1, sign, trace.Compare(op, sign))
	}
}

func singleRprop(o *Optimizer, f *trace.Frame, l *lists) {
	var grad, sign *trace.Tensor
	for i, p := range l.params {
		f.Set(&grad, l.grads[i])
		f.Set(&grad, o.gradient(l, i))
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

func initASGD(o *Optimizer, s *slot) {
	scalar := func(op string) func() *trace.Tensor {
		return func() *trace.Tensor { return o.tape.Filled(op, trace.F32) }
	}
	s.step = o.keep(scalar("zeros"))
	s.state[eta] = o.keep(func() *trace.Tensor { return trace.Copy(o.tape.Filled("to_device", trace.F32)) })
	s.state[mu] = o.keep(scalar("ones"))
	o.zeros(s, averaged)
}

func foreachASGD(o *Optimizer, f *trace.Frame, l *lists) {
	c := &o.config
	grads := l.grads
	own := c.Maximize
	if own {
		grads = f.LetList(trace.ForeachNew("_foreach_neg", 1, grads))
	}
	l.tick()
	if c.WeightDecay && own {
		trace.ForeachUpdate("_foreach_add__List", 2, grads, l.params)
	} else if c.WeightDecay {
		grads, own = f.LetList(trace.ForeachNew("_foreach_add_List", 2, grads, l.params)), true
	}
	intermediate := grads
	if own {
		trace.ForeachUpdate("_foreach_add__List", 2, intermediate, l.params)
	} else {
		intermediate = f.LetList(trace.ForeachNew("_foreach_add_List", 2, grads, l.params))
	}
	trace.ForeachUpdate("_foreach_addcmul__Scalar", 3, l.params, intermediate, l.state[eta])
	f.DelList(intermediate)
	intermediate = f.LetList(trace.ForeachNew("_foreach_sub_List", 2, l.params, l.state[averaged]))
	trace.ForeachUpdate("_foreach_addcmul__Scalar", 3, l.state[averaged], intermediate, l.state[mu])
	f.DelList(intermediate)
	etas, mus := newRates(o.tape, l)
	f.LetList(mus)
	f.LetList(etas)
	trace.ForeachUpdate("_foreach_copy_", 0, l.state[eta], etas)
	trace.ForeachUpdate("_foreach_copy_", 0, l.state[mu], mus)
}

// newRates computes eta and mu of the next step, scalar by scalar.
func newRates(t *trace.Tape, l *lists) (etas, mus []*trace.Tensor) {
	f := t.Frame()
	for _, step := range l.steps {
		x := trace.Pointwise("add_Tensor", 1, trace.Pointwise("mul_Tensor", 1, step))
		x = trace.Pointwise("pow_Tensor_Scalar", 8, x)
		etas = append(etas, f.Let(divideScalar(x)))
	}
	for range l.steps {
		mus = append(mus, f.Let(t.Filled("to_device", trace.F32)))
	}
	f.End(append(append([]*trace.Tensor(nil), etas...), mus...)...)
	return etas, mus
}

// singleASGD averages as PyTorch does once the count of steps has passed t0;
// before, it copies the parameter without a temporary.
func singleASGD(o *Optimizer, f *trace.Frame, l *lists) {
	var grad *trace.Tensor
	for i, p := range l.params {
		f.Set(&grad, l.grads[i])
		f.Set(&grad, o.gradient(l, i))
		trace.Update("add__Tensor", 1, l.steps[i])
		o.decay(f, &grad, p)
		trace.Update("mul__Tensor", 1, p)
		trace.Update("add__Tensor", 2, p, grad)
		ax := l.state[averaged][i]
		moved := trace.Update("mul__Tensor", 1, trace.Pointwise("sub_Tensor", 2, p, ax), l.state[mu][i])
		trace.Update("add__Tensor", 1, ax, moved)
		trace.Update("copy_", 0, l.state[eta][i])
		trace.Update("copy_", 0, l.state[mu][i])
	}
}
