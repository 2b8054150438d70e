package optim

import "github.com/vprof/vprof/profiler/trace"

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
