package optim

import "github.com/vprof/vprof/profiler/trace"

// The state of Rprop.
const (
	previous = iota
	stepSize
)

func initRprop(o *Optimizer, s *slot) {
	o.zeros(s, previous)
	o.like("full_like", s, stepSize)
}

func foreachRprop(o *Optimizer, f *trace.Frame, l *lists) {
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
