package train

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// OwnLoopModel is a training system with its own loop over batches of type B. It implements [models.Trainer] and
// [models.Validator].
type OwnLoopModel[B any] struct {
	Case models.Case
	Net  *nn.Tree
	// Criterion is the loss if it has parameters or buffers, nil for most.
	Criterion *nn.Tree
	// Groups are the parameter groups of the optimizer, none for all parameters in one; Untrained has no optimizer.
	Groups    [][]*nn.Parameter
	Untrained bool
	// Place brings the model to the device, [nn.Tree.To] if nil.
	Place func(t *trace.Tape)
	// Load brings a batch of n samples to the device.
	Load func(t *trace.Tape, n int) B
	// Step is one update; the optimizer is nil for what is not trained.
	Step func(s *Session, opt *optim.Optimizer, b B)
	// Losses runs the model and the loss, for validation.
	Losses func(f *trace.Frame, b B)
}

// Counts implements [models.Trainer].
func (o *OwnLoopModel[B]) Counts() models.Counts { return Counts(o.Net, o.Criterion) }

// Record implements [models.Trainer].
func (o *OwnLoopModel[B]) Record(tape *trace.Tape, steps int) error {
	return tape.Try(func() {
		if o.Place != nil {
			o.Place(tape)
		} else {
			o.Net.To(tape)
		}
		if o.Criterion != nil {
			o.Criterion.To(tape)
		}
		tape.Mark("model")
		s := NewSession(tape, o.Case)
		var opt *optim.Optimizer
		if !o.Untrained {
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

// Validate implements [models.Validator] for loops with net.eval(), torch.no_grad() and the training precision.
func (o *OwnLoopModel[B]) Validate(tape *trace.Tape, n int) error {
	var b B
	return validate(tape, o.Net, o.Case, func() { b = o.Load(tape, n) }, func(f *trace.Frame) { o.Losses(f, b) })
}
