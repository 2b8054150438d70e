package train

import (
	"cmp"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// Names are the variables of a training loop: what the model returned in the last step, and its loss.
type Names struct {
	*trace.Frame
	Outputs []*trace.Tensor
	Loss    *trace.Tensor

	loop models.Loop
	zero models.ZeroGrad
	// every is after how many steps the allocator's cache is emptied, step the number of steps so far.
	every, step int
}

// Names binds the variables of the loop of case c; own is the loop of a source if the case says nothing.
func (s *Session) Names(c models.Case, own models.Loop) *Names {
	return &Names{loop: cmp.Or(c.Loop, own), zero: cmp.Or(c.ZeroGrad, models.ZeroGradAfter), every: c.EmptyCache}
}

// Begin begins a step. At the top level of a script the variables of the step before are still bound.
func (n *Names) Begin(t *trace.Tape, opt *optim.Optimizer) {
	if n.zero == models.ZeroGradBefore {
		opt.ZeroGrad()
	}
	if n.Frame == nil {
		n.Frame = t.Frame()
	}
	if !n.Trainer() {
		t.KeepOutputs(func(xs []*trace.Tensor) { n.SetAll(&n.Outputs, xs) })
	}
}

// Forwarded is what follows the forward pass of a micro-batch: Lightning frees the gradients of the last
// step there, and transformers' Trainer empties the cache of the allocator.
func (n *Names) Forwarded(micro int, opt *optim.Optimizer) {
	if n.zero == models.ZeroGradBetween && micro == 0 {
		opt.ZeroGrad()
	}
	if n.Trainer() && n.every > 0 && n.step%n.every == 0 {
		n.Tape().EmptyCache()
	}
}

// Taken lets go of what the model returned once the loss is there, in a loop that keeps the loss alone.
func (n *Names) Taken() {
	n.Tape().Returned(n.Outputs...)
	if n.Trainer() && len(n.Outputs) > 0 {
		n.SetAll(&n.Outputs, nil)
	}
}

// Trainer says that the loop keeps the loss alone.
func (n *Names) Trainer() bool { return n.loop == models.LoopTrainer }

// EndStep ends a step after the optimizer's: gradients go, and the variables of a function.
func (n *Names) EndStep(t *trace.Tape, opt *optim.Optimizer) {
	if n.zero == models.ZeroGradAfter {
		opt.ZeroGrad()
	}
	if n.step++; !n.Trainer() && n.every > 0 && n.step%n.every == 0 {
		t.EmptyCache()
	}
	t.Mark("zero_grad")
	t.KeepOutputs(nil)
	if n.loop != models.LoopPlain {
		n.End()
		n.Frame, n.Outputs, n.Loss = nil, nil, nil
	}
}
