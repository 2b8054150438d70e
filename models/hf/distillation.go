package hf

import "github.com/vprof/vprof/profiler/trace"

// distillation learns from the scores of a teacher and from labels, as the recipes
// knowledge_distillation of torchtune 0.7 do (recipes/knowledge_distillation_*.py,
// torchtune/modules/loss/kd_losses.py, ce_chunked_output_loss.py): the scores of both models
// are there as a whole, in chunks of tokens, and each is brought to fp32 by itself.
type distillation struct {
	task *TextTask
	n    int64
}

// loss is _loss_step and the mean of the two losses.
func (d *distillation) loss(f *frame, b TextBatch) *tensor {
	g := f.FuncFrame(b.IDs, b.Padding, b.Labels)
	student := g.LetAll(d.task.chunks(g, b, d.n))
	var teacher []*tensor
	f.Tape().NoGrad(func() { teacher = g.LetAll(d.task.Reference.chunks(g, b, d.n)) })
	labels := []*tensor{b.Labels}
	if len(student) > 1 {
		labels = g.LetAll(b.Labels.TensorSplit(trace.Sections(b.Labels.Size(1), int64(len(student))), 1))
	}
	flat := func(x *tensor) *tensor { return g.Let(x.Reshape(-1, x.Size(-1))) }
	var divergence, entropy *tensor
	sum := func(total **tensor, part *tensor) {
		if *total == nil {
			*total = g.Let(part)
			return
		}
		g.Set(total, (*total).Add(part))
	}
	for i := range student {
		sum(&divergence, forwardKL(g, flat(student[i]), flat(teacher[i]), g.Let(labels[i].Reshape(-1))))
	}
	for i := range student {
		sum(&entropy, flat(student[i]).To(trace.F32).CrossEntropyWith(g.Let(labels[i].Reshape(-1)),
			trace.CrossEntropyArgs{Reduction: trace.ReduceSum}))
	}
	g.End(divergence, entropy)
	h := f.FuncFrame(divergence, entropy)
	return h.Return(entropy.DivScalar().MulScalar().Add(divergence.DivScalar().MulScalar()))
}

// forwardKL is ForwardKLLoss of scores [tokens, vocabulary].
func forwardKL(f *frame, student, teacher, labels *tensor) *tensor {
	g := f.FuncFrame(student, teacher, labels)
	prob := g.Let(teacher.SoftmaxTo(-1, trace.F32))
	infinite := g.Let(student.IsInf())
	log := g.Let(student.LogSoftmaxTo(-1, trace.F32))
	product := g.Let(prob.Mul(log).MaskedFill(infinite))
	x := g.Let(product.Sum(false, -1).View(-1))
	return g.Return(x.Mul(g.Let(labels.EqScalar())).Sum(false).Neg())
}
