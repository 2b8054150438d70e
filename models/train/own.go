package train

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// OwnLoopModel is a model of a project with its own training loop over batches of type B. It implements
// [models.Trainer] and [models.Validator].
type OwnLoopModel[B any] struct {
	Case models.Case
	Net  *nn.Tree
	// Criterion is the loss module if it has parameters or buffers; nil otherwise.
	Criterion *nn.Tree
	// Groups are the optimizer's parameter groups; empty means one group of all parameters. Untrained means that
	// there is no optimizer.
	Groups         [][]*nn.Parameter
	HasNoOptimizer bool
	// Place moves the model to the GPU; nil calls [nn.Tree.MoveToDevice].
	Place func(t *trace.Tape)
	// Load copies a batch of n samples to the GPU.
	Load func(t *trace.Tape, n int) B
	// Step records one training step; opt is nil if nothing is trained.
	Step func(s *Session, opt *optim.Optimizer, b B)
	// ComputeLosses computes the model's output and loss for validation.
	ComputeLosses func(f *trace.Frame, b B)
}

// Counts returns the model's numbers of parameters and buffers, for [models.Trainer].
func (o *OwnLoopModel[B]) Counts() models.Counts { return Counts(o.Net, o.Criterion) }

// Record records training steps on the tape, for [models.Trainer].
func (o *OwnLoopModel[B]) Record(tape *trace.Tape, steps int) error {
	return tape.Try(func() {
		if o.Place != nil {
			o.Place(tape)
		} else {
			o.Net.MoveToDevice(tape)
		}
		if o.Criterion != nil {
			o.Criterion.MoveToDevice(tape)
		}
		tape.Mark("model")
		s := NewSession(tape, o.Case)
		var opt *optim.Optimizer
		if !o.HasNoOptimizer {
			groups := o.Groups
			if groups == nil {
				groups = [][]*nn.Parameter{o.Net.Parameters}
			}
			var err error
			if opt, err = s.Optimizer(o.Case, defaultOptimizer, groups...); err != nil {
				tape.Raise(err)
			}
		}
		b := o.Load(tape, o.Case.Batch)
		tape.Mark("batch")
		for range tape.Steps(steps) {
			o.Step(s, opt, b)
			tape.Mark("step_end")
		}
	})
}

// Validate implements [models.Validator] for loops that call net.eval() and torch.no_grad(), under autocast.
func (o *OwnLoopModel[B]) Validate(tape *trace.Tape, n int) error {
	var b B
	return validate(tape, o.Net, o.Case, func() { b = o.Load(tape, n) }, func(f *trace.Frame) { o.ComputeLosses(f, b) })
}
