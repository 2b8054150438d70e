package train

import (
	"errors"
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// validate records a validation batch: load copies it to the GPU, evaluate computes forward and loss.
func validate(t *trace.Tape, net *nn.Tree, c models.Case, load func(), evaluate func(f *trace.Frame)) error {
	return runEvaluation(t, net, load, func(f *trace.Frame) {
		(&Session{Tape: t, amp: c.AMP}).Autocast(func() { evaluate(f) })
	})
}

// runEvaluation records a batch in evaluation mode: load copies it to the GPU, and f computes without gradients.
func runEvaluation(t *trace.Tape, net *nn.Tree, load func(), f func(f *trace.Frame)) error {
	return t.Try(func() {
		net.SetTraining(false)
		load()
		t.Mark("batch")
		frame := t.Frame()
		t.NoGrad(func() { f(frame) })
		frame.End()
		t.Mark("step_end")
	})
}

func (t *taskTrainer) Validate(tape *trace.Tape, n int) error {
	load := func() { t.task.Load(tape, int64(n)) }
	switch g, generates := t.task.(Generator); {
	case t.c.Evaluate.NewTokens > 0 && generates:
		return runEvaluation(tape, t.net, load, func(f *trace.Frame) { g.Generate(f, int64(t.c.Evaluate.NewTokens)) })
	case t.c.Evaluate.NewTokens > 0:
		return errCannotGenerate
	case t.c.Evaluate.Scores > 0:
		return runEvaluation(tape, t.net, load, t.evaluationLoop)
	}
	var loss *trace.Tensor
	return validate(tape, t.net, t.c, load, func(f *trace.Frame) {
		t.prepareStep(f)
		t.task.Loss(f, &loss)
	})
}

// evaluationLoop records Trainer.evaluation_loop with metrics. A batch's logits live until the next batch has
// returned its own; they are then concatenated with earlier ones (nested_concat, which turns scalars into vectors).
func (t *taskTrainer) evaluationLoop(f *trace.Frame) {
	var scores, all []*trace.Tensor
	for range t.c.Evaluate.Scores {
		f.SetAll(&scores, t.predict(f.Tape()))
		if all == nil {
			f.SetAll(&all, scores)
			continue
		}
		joined := make([]*trace.Tensor, len(all))
		for i := range all {
			joined[i] = trace.Cat(0, atLeast1D(all[i]), atLeast1D(scores[i]))
		}
		f.SetAll(&all, joined)
	}
}

// atLeast1D records torch.atleast_1d, which views a scalar as a vector.
func atLeast1D(x *trace.Tensor) *trace.Tensor {
	if len(x.Shape()) > 0 {
		return x
	}
	return x.View(1)
}

// predict records Trainer.prediction_step and returns a batch's logits. Under autocast, accelerate converts all
// outputs to fp32 (convert_outputs_to_fp32).
func (t *taskTrainer) predict(tape *trace.Tape) []*trace.Tensor {
	f := tape.Frame()
	var loss *trace.Tensor
	var outputs []*trace.Tensor
	lossAt := -1 // index of the loss among a graph's outputs
	keep := func(xs []*trace.Tensor) { f.SetAll(&outputs, xs) }
	(&Session{Tape: tape, amp: t.c.AMP}).Autocast(func() {
		tape.KeepOutputs(keep)
		t.prepareStep(f)
		if t.graph != nil {
			t.graph.Compute(f, &outputs, &loss)
			lossAt = slices.Index(outputs, loss)
		} else {
			t.task.Loss(f, &loss)
		}
		tape.KeepOutputs(nil)
		if _, casting := tape.Autocasting(); casting {
			converted := make([]*trace.Tensor, len(outputs))
			for i, x := range outputs {
				converted[i] = x
				if x.DType().IsFloat() {
					converted[i] = x.To(trace.F32)
				}
			}
			keep(converted)
		}
	})
	scores := outputs
	if lossAt >= 0 {
		scores = slices.Delete(slices.Clone(outputs), lossAt, lossAt+1)
	}
	// logits follow the loss; keys and values are skipped (keys_to_ignore_at_inference)
	if n := len(outputs); t.graph == nil {
		scores = outputs[min(1, n):min(2, n)]
	}
	if len(scores) == 0 {
		tape.Raise(errNoLogits)
	}
	f.End(scores...)
	return scores
}

// Generator is a task whose model can generate text.
type Generator interface {
	// Generate generates n tokens for each row of the batch that was loaded last, under autocast.
	Generate(f *trace.Frame, n int64)
}

var errCannotGenerate = errors.New("evaluate: this model cannot generate text; leave out new-tokens")

var errNoLogits = errors.New("evaluate: the model returns its loss and no logits to store for metrics; leave out " +
	"scores")
