package hf

import "github.com/vprof/vprof/profiler/trace"

// CausalLMLoss is ForCausalLMLoss: in fp32, every token predicts the next.
func CausalLMLoss(f *frame, logits, labels *tensor) *tensor {
	g := f.FuncFrame(logits, labels)
	g.Set(&logits, logits.To(trace.F32))
	g.Set(&labels, labels.Pad(0, 1))
	shifted := g.Let(labels.Slice(-1, 1, labels.Size(-1)).Contiguous())
	g.Set(&logits, logits.View(-1, logits.Size(-1)))
	g.Set(&shifted, shifted.View(-1))
	loss := logits.CrossEntropy(shifted)
	g.End(loss)
	return loss
}

// ClassLoss is the loss of a model for sequence classification: of one label a
// row, or of a single value.
func ClassLoss(logits, labels *tensor) *tensor {
	if logits.Size(-1) == 1 {
		return logits.Squeeze(-1).MSELoss(labels, trace.ReduceMean)
	}
	return logits.View(-1, logits.Size(-1)).CrossEntropy(labels.View(-1))
}

// Taken gives back the loss of an output object: what else the object holds,
// such as the scores, goes with it.
func Taken(f *frame, loss *tensor, rest ...*tensor) *tensor {
	f.End(append([]*tensor{loss}, rest...)...)
	f.Discard(rest...)
	return loss
}

// LastTokenScores picks the scores of the last token of each row that is no
// padding, from scores [batch, length, classes] of all, as a decoder's
// classification model does in its frame.
func LastTokenScores(f *frame, ids, scores *tensor) *tensor {
	t := f.Tape()
	words := f.Let(ids.EqScalar().To(trace.I32))
	order := f.Let(t.Filled("arange", trace.I32, ids.Size(1)))
	last := f.Let(order.Mul(words).ArgMax(false, -1))
	return f.Let(scores.Index(t.Arange(ids.Size(0)), last))
}
