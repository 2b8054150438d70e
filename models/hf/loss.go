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

// Taken gives back the loss of an output object: what else the object holds,
// such as the scores, goes with it.
func Taken(f *frame, loss *tensor, rest ...*tensor) *tensor {
	f.End(append([]*tensor{loss}, rest...)...)
	f.Discard(rest...)
	return loss
}
