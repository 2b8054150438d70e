package optim

import (
	"errors"
	"slices"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// GradScaler is torch.amp.GradScaler under the assumption that no gradient overflows, so that every step is taken.
type GradScaler struct {
	tape   *trace.Tape
	held   *trace.Frame
	scale  *trace.Tensor // the factor and the count of good steps, made by the first Scale
	growth *trace.Tensor
	found  []foundInf // by optimizer, since the last Update
}

// foundInf records that the gradients of an optimizer were unscaled and checked for infinities.
type foundInf struct {
	of       *Optimizer
	flag     *trace.Tensor
	unscaled bool
}

// NewGradScaler records the constructor of torch.amp.GradScaler.
func NewGradScaler(t *trace.Tape) *GradScaler { return &GradScaler{tape: t, held: t.Frame()} }

// Scale records scaler.scale(loss).
func (s *GradScaler) Scale(loss *trace.Tensor) *trace.Tensor {
	if s.scale == nil {
		s.tape.WithClass(program.OptimizerState, func() {
			s.scale = s.held.Bind(s.tape.Full(trace.F32))
			s.growth = s.held.Bind(s.tape.Full(trace.I32))
		})
	}
	return loss.Mul(s.scale)
}

// UnscaleError returns the error that PyTorch raises if a scaler cannot unscale the gradients of parameters, else nil.
// It unscales fp32 gradients, and fp16 ones inside the kernel of a fused optimizer if gradients are not clipped. The
// kernel that checks for infinities does not support bf16 up to PyTorch 2.15
// (github.com/pytorch/pytorch/issues/127176).
func UnscaleError(inKernel bool, groups ...[]*trace.Tensor) error {
	for _, p := range slices.Concat(groups...) {
		switch {
		case !p.RequiresGrad():
		case p.DType() == trace.F16 && !inKernel:
			return errors.New("ValueError: Attempting to unscale FP16 gradients: autocast in fp16 needs weights in " +
				"fp32; leave out --weights, or use --amp bf16")
		case p.DType() == trace.BF16:
			return errors.New("NotImplementedError: \"_amp_foreach_non_finite_check_and_unscale_cuda\" not " +
				"implemented for 'BFloat16': autocast in fp16 needs weights in fp32; use --amp bf16")
		}
	}
	return nil
}

// Unscale records scaler.unscale_(optimizer).
func (s *GradScaler) Unscale(o *Optimizer) {
	s.tape.NoGrad(func() {
		f := s.tape.Frame()
		inverse := f.Bind(trace.Pointwise("reciprocal", 4, s.scale.To(trace.F64)).To(trace.F32))
		found := f.Bind(s.tape.Full(trace.F32))
		s.unscaleGradients(o, inverse, found, true)
		f.End()
	})
}

// unscaleGradients records GradScaler._unscale_grads_: it multiplies gradients and looks for infinities. A flag is
// copied to the GPU.
func (s *GradScaler) unscaleGradients(o *Optimizer, inverse, found *trace.Tensor, unscaled bool) {
	f := s.tape.Frame()
	var flag *trace.Tensor
	for _, grads := range gradientsByType(o.Params()) {
		if flag == nil {
			flag = s.held.Bind(trace.Copy(found))
			inverse = f.Bind(trace.Copy(inverse))
		}
		trace.ForeachUpdate("_amp_foreach_non_finite_check_and_unscale_", 2, grads, []*trace.Tensor{flag, inverse})
	}
	s.found = append(s.found, foundInf{of: o, flag: flag, unscaled: unscaled})
	f.End()
}

// state returns the record of infinities in o's gradients since the last Update; nil if they were not checked.
func (s *GradScaler) state(o *Optimizer) *foundInf {
	for i := range s.found {
		if s.found[i].of == o {
			return &s.found[i]
		}
	}
	return nil
}

// Step records scaler.step(optimizer). Fused optimizers unscale in their kernel.
func (s *GradScaler) Step(o *Optimizer) {
	if o.config.Implementation == Fused {
		s.stepFused(o)
		return
	}
	if s.state(o) == nil {
		s.Unscale(o)
	}
	o.Step()
}

// stepFused passes the scale and the infinity flag to an optimizer that accepts them.
func (s *GradScaler) stepFused(o *Optimizer) {
	f := s.tape.Frame()
	if s.state(o) == nil {
		s.tape.NoGrad(func() {
			g := s.tape.Frame()
			one := g.Bind(s.tape.Full(trace.F32))
			s.unscaleGradients(o, one, g.Bind(s.tape.Full(trace.F32)), false)
			g.End()
		})
	}
	st := s.state(o)
	if st.flag != nil {
		f.Bind(trace.Pointwise("add_Tensor", 1, st.flag))
	}
	if !st.unscaled {
		f.Bind(trace.Pointwise("mul_Tensor", 1, s.scale))
	}
	o.Step()
	f.End()
}

// Update records scaler.update().
func (s *GradScaler) Update() {
	var combined *trace.Tensor
	for _, x := range s.found {
		switch {
		case x.flag == nil:
		case combined == nil:
			combined = x.flag
		default:
			trace.Update("add__Tensor", 1, combined, x.flag)
		}
	}
	if combined != nil {
		trace.Update("_amp_update_scale_", 4, s.scale, s.growth, combined)
	}
	for i := len(s.found) - 1; i >= 0; i-- {
		if s.found[i].flag != nil {
			s.held.Del(&s.found[i].flag)
		}
	}
	s.found = s.found[:0]
}
