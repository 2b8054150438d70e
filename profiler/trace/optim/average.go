package optim

import (
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Average is a moving average of parameters, kept beside them
// (torch.optim.swa_utils.AveragedModel).
type Average struct {
	params, averages []*trace.Tensor
}

// NewAverage copies params.
func NewAverage(t *trace.Tape, params []*trace.Tensor) *Average {
	a := &Average{params: params}
	held := t.Frame()
	t.NoGrad(func() {
		t.In(program.Weights, func() {
			for _, p := range params {
				a.averages = append(a.averages, held.Let(p.Clone()))
			}
		})
	})
	return a
}

// Update moves the averages towards the parameters, in place.
func (a *Average) Update() {
	trace.ForeachUpdate("_foreach_lerp__Scalar", 3, a.averages, a.params)
}
