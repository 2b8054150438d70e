package pt2

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// validator is a trainer that also runs a validation batch. Stages of a pipeline have
// none: their schedules are those of training.
type validator struct {
	*trainer
	// plain is the program before it was given the sizes of the training batch.
	plain *graph
	sizes *dimensions
}

// Validate implements [models.Validator]: the graph of training, with what its
// operators do otherwise after model.eval().
func (v *validator) Validate(tape *trace.Tape, n int) error {
	t := *v.trainer
	t.c.Batch = n
	if err := v.sizes.check(t.c.Model, t.c); err != nil {
		return err
	}
	p, err := v.sizes.scale(v.plain.Program, int64(n))
	if err != nil {
		return &models.CaseError{Model: t.c.Model, Field: "batch", Reason: err.Error()}
	}
	t.g = &graph{Program: p, calls: v.plain.calls, functions: v.plain.functions}
	t.symbols = v.sizes.at(t.c)
	t.evaluating, t.regions = true, nil
	if err := t.useLiger(); err != nil {
		return err
	}
	if _, err := t.chunkLoss(); err != nil {
		return err
	}
	return train.Evaluate(tape, t.c, func() { t.load(tape) }, func(f *trace.Frame) {
		var outs []*trace.Tensor
		var loss *trace.Tensor
		results, out := t.forward(f)
		f.SetAll(&outs, results)
		f.Set(&loss, t.loss(f, out))
	})
}

// evaluate changes the arguments of a call to what they are after model.eval(): dropout
// and batch normalization look at the module's mode.
func evaluate(given []aten.Arg) {
	for i := range given {
		switch given[i].Name {
		case "train", "training":
			given[i].Value = false
		case "dropout_p":
			given[i].Value = 0.0
		}
	}
}
