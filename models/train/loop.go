package train

import (
	"cmp"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// LoopVariables holds the tensors that variables of a training loop keep alive: the model's output and loss.
type LoopVariables struct {
	*trace.Frame
	Outputs []*trace.Tensor
	Loss    *trace.Tensor

	loop models.Loop
	zero models.ZeroGrad
	// emptyCacheInterval is the number of steps between calls of empty_cache(). step counts the steps so far.
	emptyCacheInterval, step int
}

// LoopVariables returns the variables of the case's loop, or of the loop own if the case sets none.
func (s *Session) LoopVariables(c models.Case, own models.Loop) *LoopVariables {
	zero := cmp.Or(c.ZeroGrad, models.ZeroGradAfter)
	return &LoopVariables{loop: cmp.Or(c.Loop, own), zero: zero, emptyCacheInterval: c.EmptyCache}
}

// Begin starts a step. At the top level of a script, variables still hold the previous step's tensors.
func (n *LoopVariables) Begin(t *trace.Tape, opt *optim.Optimizer) {
	if n.zero == models.ZeroGradBefore {
		opt.ZeroGrad()
	}
	if n.Frame == nil {
		n.Frame = t.Frame()
	}
	if !n.KeepsLossAlone() {
		t.KeepOutputs(func(xs []*trace.Tensor) { n.SetAll(&n.Outputs, xs) })
	}
}

// AfterForward records what the loop does after a micro-batch's forward pass: Lightning frees the previous step's
// gradients, and transformers' Trainer empties the allocator's cache.
func (n *LoopVariables) AfterForward(micro int, opt *optim.Optimizer) {
	if n.zero == models.ZeroGradBetween && micro == 0 {
		opt.ZeroGrad()
	}
	if n.KeepsLossAlone() && n.emptyCacheInterval > 0 && n.step%n.emptyCacheInterval == 0 {
		n.Tape().EmptyCache()
	}
}

// AfterLoss frees the model's output if the loop keeps only the loss.
func (n *LoopVariables) AfterLoss() {
	n.Tape().AddOutputs(n.Outputs...)
	if n.KeepsLossAlone() && len(n.Outputs) > 0 {
		n.SetAll(&n.Outputs, nil)
	}
}

// KeepsLossAlone reports whether the loop keeps only the loss, as transformers' Trainer does.
func (n *LoopVariables) KeepsLossAlone() bool { return n.loop == models.LoopTrainer }

// EndStep ends a step after the optimizer's step: it frees gradients and a function's variables.
func (n *LoopVariables) EndStep(t *trace.Tape, opt *optim.Optimizer) {
	if n.zero == models.ZeroGradAfter {
		opt.ZeroGrad()
	}
	if n.step++; !n.KeepsLossAlone() && n.emptyCacheInterval > 0 && n.step%n.emptyCacheInterval == 0 {
		t.EmptyCache()
	}
	t.Mark("zero_grad")
	t.KeepOutputs(nil)
	if n.loop != models.LoopPlain {
		n.End()
		n.Frame, n.Outputs, n.Loss = nil, nil, nil
	}
}
