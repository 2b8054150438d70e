// Package train holds the common parts of training loops: autocast and loss scaling, clipping, the optimizer's step.
// Names and order follow the loops' PyTorch code.
package train

import (
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// Counts returns the element counts of a model and its criterion, which can be nil.
func Counts(net, criterion *nn.Tree) models.Counts {
	var c models.Counts
	c.Total, c.Trainable = net.Numel()
	c.Buffers = net.BufferNumel()
	for _, p := range Trainable(net.Parameters) {
		c.Gradients += p.Numel() * p.DType.Size()
	}
	if criterion != nil {
		c.Criterion, _ = criterion.Numel()
	}
	return c
}

// Session is the state of a training loop.
type Session struct {
	Tape *trace.Tape
	amp  models.Autocast
	// Scaler is nil unless the case trains in fp16.
	Scaler *optim.GradScaler
	// Linears are the linear layers by weight, for optimizers that project gradients (GaLore).
	Linears map[*trace.Tensor]Linear
}

// Linear is a linear layer's path and position, for optimizers that project gradients.
type Linear struct {
	Path string
	// Output reports whether the layer computes the model's result.
	Output bool
}

// NewSession starts a training loop of a case.
func NewSession(t *trace.Tape, c models.Case) *Session {
	s := &Session{Tape: t, amp: c.AMP}
	if c.AMP == "fp16" {
		s.Scaler = optim.NewGradScaler(t)
	}
	return s
}

// Optimizer returns the case's optimizer, or own if the case sets none, over groups of parameters.
func (s *Session) Optimizer(c models.Case, own optim.Config, groups ...[]*nn.Parameter) (*optim.Optimizer, error) {
	return s.OptimizerOfTensors(c, own, nil, lists.Map(groups, Tensors)...)
}

// OptimizerOfTensors returns an optimizer of tensors. Ranks that shard the optimizer state each keep a shard.
func (s *Session) OptimizerOfTensors(c models.Case, own optim.Config, r *Ranks,
	groups ...[]*trace.Tensor,
) (*optim.Optimizer, error) {
	if c.InBackward { // each parameter has its own optimizer
		groups = nil
	}
	if c.Optimizer != "" {
		var err error
		if own, err = optim.Named(c.Optimizer); err != nil {
			return nil, err
		}
	}
	if s.Scaler != nil {
		inKernel := own.Implementation == optim.Fused && c.Clip == models.ClipNone
		if err := optim.UnscaleError(inKernel, groups...); err != nil {
			return nil, err
		}
	}
	if h := s.Tape.Host(); h.State == 0 {
		h.State = own.Moments() * h.Stepped
	}
	o, err := optim.New(s.Tape, own, r.RankParameters(), groups...)
	if err == nil && own.LowRank() {
		o.Project(func(p *trace.Tensor) bool { return s.projectsGradient(own, p) })
	}
	return o, err
}

// allLinear is a target that includes the output layer, as transformers' "all-linear" does.
const allLinear = "all-linear"

func (s *Session) projectsGradient(c optim.Config, p *trace.Tensor) bool {
	l, linear := s.Linears[p]
	switch {
	case !linear:
		return false
	case c.Target == "":
		return !l.Output
	case c.Target == allLinear:
		return true
	}
	return slices.ContainsFunc(strings.Split(c.Target, "+"), func(part string) bool {
		return strings.Contains(l.Path, part)
	})
}

// CheckProjected returns a [*models.CaseError] if an optimizer like GaLore has no gradient to project.
func (s *Session) CheckProjected(c models.Case, params []*trace.Tensor) error {
	own, err := optim.Named(c.Optimizer)
	if c.Optimizer == "" || err != nil || !own.LowRank() || slices.ContainsFunc(params, func(p *trace.Tensor) bool {
		return s.projectsGradient(own, p)
	}) {
		return nil
	}
	return c.FieldError("optimizer", "%s projects the gradients of linear layers, and target names none that is "+
		"trained", c.Optimizer)
}

// InBackward gives each parameter its own optimizer, which steps as soon as backward has the gradient, and frees it.
func (s *Session) InBackward(c models.Case, own optim.Config, params []*trace.Tensor) error {
	c.InBackward = false // for the optimizer of one parameter
	for _, p := range params {
		o, err := s.OptimizerOfTensors(c, own, nil, []*trace.Tensor{p})
		if err != nil {
			return err
		}
		p.OnAccumulated(func() {
			o.Step()
			o.ZeroGrad()
		})
	}
	return nil
}

// Forward runs f, the forward pass, under autocast, and offloads saved tensors if the case sets it.
func (s *Session) Forward(c models.Case, f func()) { s.Autocast(func() { s.WithOffload(c, f) }) }

// WithOffload runs f. If the case offloads activations, autograd saves f's tensors in host memory.
func (s *Session) WithOffload(c models.Case, f func()) {
	if c.Offload {
		s.Tape.SaveOnCPU(c.Loop == models.LoopTrainer, f)
	} else {
		f()
	}
}

// Tensors returns the tensors of parameters.
func Tensors(params []*nn.Parameter) []*trace.Tensor {
	return lists.Map(params, func(p *nn.Parameter) *trace.Tensor { return p.Tensor })
}

// Autocast runs f in the session's autocast precision.
func (s *Session) Autocast(f func()) { Autocast(s.Tape, s.amp, f) }

// Autocast runs f in a precision of autocast on tape t.
func Autocast(t *trace.Tape, amp models.Autocast, f func()) {
	if amp == models.NoAutocast {
		f()
		return
	}
	t.Autocast(dtypeOf(amp), f)
}

// Backward runs backward from the loss, multiplied by the scale if there is a scaler.
func (s *Session) Backward(loss *trace.Tensor) {
	if s.Scaler != nil {
		loss = s.Scaler.Scale(loss)
	}
	loss.Backward()
}

// Step runs unscale, clip, the optimizer's step, and the scale's update. clipped are the parameters to clip.
func (s *Session) Step(o *optim.Optimizer, clipped []*nn.Parameter) {
	var tensors []*trace.Tensor
	if clipped != nil {
		tensors = Tensors(clipped)
	}
	s.StepOver(o, tensors)
}

// StepOver runs [Session.Step] on tensors. Without clipped tensors the scaler's step unscales.
func (s *Session) StepOver(o *optim.Optimizer, clipped []*trace.Tensor) {
	if !o.Updates() {
		return
	}
	if s.Scaler != nil && clipped != nil {
		s.Scaler.Unscale(o)
	}
	if clipped != nil {
		clip(s.Tape, clipped)
	}
	if s.Scaler == nil {
		o.Step()
		return
	}
	s.Scaler.Step(o)
	s.Scaler.Update()
}

// Clip records torch.nn.utils.clip_grad_norm_.
func Clip(t *trace.Tape, params []*nn.Parameter) { clip(t, Tensors(params)) }

func clip(t *trace.Tape, params []*trace.Tensor) {
	f := t.Frame()
	f.BindEach(optim.ClipGradNorm(params, optim.Foreach))
	f.End()
}

// EndTrainingStep ends the frame of a training_step that returns loss.detach(), which the caller drops.
func EndTrainingStep(f *trace.Frame, loss *trace.Tensor) {
	out := loss.Detach()
	f.End(out)
	f.Discard(out)
}
