package nn_test

import (
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
	"github.com/vprof/vprof/tools/opvectors"
)

// procedures are the vectors that are not of an operator: what happens to
// parameters between backward and the next step.
var procedures = map[string]opvectors.Procedure{
	"clip_grad_norm_":    clipNorm,
	"clip_grad_norm_inf": clipNorm,
	"clip_grad_value_": func(_ *trace.Tape, _ *vector, ps []*tensor) func() {
		return func() { // all gradients have one type
			grads := make([]*tensor, len(ps))
			for i, p := range ps {
				grads[i] = p.Grad()
			}
			trace.ForeachUpdate("_foreach_clamp_min__Scalar", 1, grads)
			trace.ForeachUpdate("_foreach_clamp_max__Scalar", 1, grads)
		}
	},
	"zero_grad_none": func(t *trace.Tape, _ *vector, ps []*tensor) func() {
		return sgd(t, ps).ZeroGrad
	},
	"zero_grad_keep": func(t *trace.Tape, _ *vector, ps []*tensor) func() {
		return func() { // set_to_none=False
			grads := make([]*tensor, len(ps))
			for i, p := range ps {
				grads[i] = p.Grad()
			}
			trace.ForeachUpdate("_foreach_zero_", 0, grads)
		}
	},
	"scaler_first_scale": func(t *trace.Tape, _ *vector, _ []*tensor) func() {
		return scaleLoss(t, optim.NewGradScaler(t))
	},
	"scaler_scale": func(t *trace.Tape, _ *vector, _ []*tensor) func() {
		s := optim.NewGradScaler(t)
		scaleLoss(t, s)()
		return scaleLoss(t, s)
	},
	"scaler_unscale_": func(t *trace.Tape, _ *vector, ps []*tensor) func() {
		s, o := optim.NewGradScaler(t), sgd(t, ps)
		scaleLoss(t, s)()
		return func() { s.Unscale(o) }
	},
	"scaler_step_unscaled": func(t *trace.Tape, _ *vector, ps []*tensor) func() {
		s, o := optim.NewGradScaler(t), sgd(t, ps)
		scaleLoss(t, s)()
		s.Unscale(o)
		return func() { s.Step(o) }
	},
	"scaler_update": func(t *trace.Tape, _ *vector, ps []*tensor) func() {
		s, o := optim.NewGradScaler(t), sgd(t, ps)
		scaleLoss(t, s)()
		s.Step(o)
		return s.Update
	},
	"ema_update_multi":  averaging,
	"ema_update_single": averaging,
}

func clipNorm(t *trace.Tape, v *vector, ps []*tensor) func() {
	how := optim.Foreach
	if !v.Bool("foreach", true) {
		how = optim.SingleTensor
	}
	return func() { t.Frame().Bind(optim.ClipGradNorm(ps, how)) }
}

func sgd(t *trace.Tape, ps []*tensor) *optim.Optimizer {
	o, err := optim.New(t, optim.Config{Algorithm: optim.SGD}, nil, ps)
	if err != nil {
		panic(err)
	}
	return o
}

func scaleLoss(t *trace.Tape, s *optim.GradScaler) func() {
	loss := t.Frame().Bind(t.Full(trace.F32))
	return func() { t.Frame().Bind(s.Scale(loss)) }
}

func averaging(t *trace.Tape, _ *vector, _ []*tensor) func() {
	f := t.Frame()
	p := f.Bind(t.Zeros(trace.F32, 10))
	var average *tensor
	t.NoGrad(func() { average = f.Bind(p.Clone()) })
	return func() { trace.ForeachUpdate("_foreach_lerp__Scalar", 3, []*tensor{average}, []*tensor{p}) }
}
