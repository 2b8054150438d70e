package hf

import (
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// distillationLoss is the loss of GKD: the generalized Jensen-Shannon divergence between the logits of student and
// teacher, as in ms-swift 4.6 (swift/rlhf_trainers/gkd_trainer.py, gkd_loss.py). The logits of the answers' tokens
// are selected, scaled and compared in chunks, in their own data type.
type distillationLoss struct {
	task   *TextTask
	answer int64
}

// divergenceChunk is the chunk_size of ms-swift's jsd_loss.
const divergenceChunk = 512

// loss follows compute_loss of ms-swift's GKD trainer.
func (d *distillationLoss) loss(f *frame, b TextBatch) *tensor {
	b.Keep = d.answer + 1
	g := f.FunctionFrame(b.IDs, b.Padding)
	student := g.Bind(d.task.model.castLogits(g, b))
	var teacher *tensor
	f.Tape().NoGrad(func() { teacher = g.Bind(d.task.Reference.model.castLogits(g, b)) })
	h := g.FunctionFrame(student, teacher)
	own, theirs := h.Bind(d.activeTokens(h, student)), h.Bind(d.activeTokens(h, teacher))
	x, y := h.Bind(own.DivScalar()), h.Bind(theirs.DivScalar())
	total := h.Bind(jsDivergence(h, x, y))
	h.End(total)
	return g.Return(g.Bind(total).DivScalar())
}

// activeTokens returns the logits [tokens, vocabulary] that predict the answers' tokens.
func (d *distillationLoss) activeTokens(f *frame, scores *tensor) *tensor {
	n := scores.Size(0) * d.answer
	g := f.FunctionFrame(scores)
	rows := g.Bind(f.Tape().New("nonzero", program.Activations, trace.I64, n))
	tokens := g.Bind(f.Tape().New("nonzero", program.Activations, trace.I64, n))
	return g.Return(scores.Index(rows, tokens))
}

// jsDivergence records jsd_loss of ms-swift's gkd_loss.py with 0 < beta < 1.
func jsDivergence(f *frame, student, teacher *tensor) *tensor {
	g := f.FunctionFrame(student, teacher)
	var total, x, y, mean, each *tensor
	for from := int64(0); from < student.Size(0); from += divergenceChunk {
		to := min(from+divergenceChunk, student.Size(0))
		g.Set(&x, student.Slice(0, from, to).LogSoftmax(-1))
		g.Set(&y, teacher.Slice(0, from, to).LogSoftmax(-1))
		g.Set(&mean, trace.Stack(0, x.AddScalar(), y.AddScalar()).LogSumExp(false, 0))
		g.Set(&each, kullbackLeibler(g, mean, y).MulScalar().Add(kullbackLeibler(g, mean, x).MulScalar()))
		if total == nil {
			total = g.Bind(each.Sum(false))
			continue
		}
		g.Set(&total, total.Add(each.Sum(false)))
	}
	return g.Return(total)
}

// kullbackLeibler follows default_kl_div of ms-swift's gkd_loss.py.
func kullbackLeibler(f *frame, x, target *tensor) *tensor {
	g := f.FunctionFrame(x, target)
	return g.Return(target.Exp().Mul(target.Sub(x)).Sum(false, -1))
}
