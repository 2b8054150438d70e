package hf

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// weighted learns the next token by a cross entropy that weighs every token: by its own
// probability (DFT), with a divergence from a reference added (ASFT), or by the entropy
// of the most likely tokens (EAFT). They are functions of LLaMA-Factory 0.9.6
// (src/llamafactory/train/trainer_utils.py), of TRL and ms-swift and, of the last, of axolotl 0.20
// (monkeypatch/loss/eaft.py), to which the Trainer of transformers hands the scores.
type weighted struct {
	objective models.Objective
	task      *TextTask
	model     *caller
}

// entropyTopK is the number of most likely tokens whose entropy EAFT takes.
const entropyTopK = 20

// loss follows compute_loss.
func (w *weighted) loss(f *frame, b TextBatch) *tensor {
	g := f.FuncFrame(b.IDs, b.Padding, b.Labels)
	var y *tensor
	switch {
	case w.objective.Name == models.ASFT:
		var reference *tensor
		f.Tape().NoGrad(func() { reference = g.Let(w.task.Reference.scores(g, b)) })
		logits, own := w.labeled(g, b)
		g.LetAll([]*tensor{logits, own})
		y = anchoredLoss(g, logits, reference, b.Labels)
	case w.objective.As == models.AsSwift:
		y = rolledLoss(g, g.Let(w.model.scores(g, b)), b.Labels)
	case w.objective.As == models.AsTRL:
		y = selectedLoss(g, g.Let(w.model.scores(g, b)), b.Labels)
	case w.objective.As == models.AsAxolotl:
		y = entropyLossOfAxolotl(g, g.Let(w.model.scores(g, b)), b.Labels)
	default:
		each := probabilityWeighted
		if w.objective.Name == models.EAFT {
			each = entropyWeighted
		}
		counting := b.Labels.Size(0) * (b.Labels.Size(1) - 1)
		y = shiftedLoss(g, g.Let(w.model.scores(g, b)), b.Labels, func(f *frame, source, target *tensor) *tensor {
			return each(f, source, target, counting)
		})
	}
	return g.Return(y)
}

// labeled calls the model with labels, whose own cross entropy is in its output besides the
// scores.
func (w *weighted) labeled(f *frame, b TextBatch) (logits, own *tensor) {
	g := f.FuncFrame(b.IDs, b.Padding, b.Labels)
	on := false
	train.Autocast(f.Tape(), w.task.AMP, func() {
		logits = g.Let(w.model.logits(g, b))
		own = g.Let(CausalLMLoss(g, logits, b.Labels))
		_, on = f.Tape().Autocasting()
	})
	if on {
		g.Set(&logits, logits.To(trace.F32))
	}
	return g.ReturnPair(logits, own)
}

// rolledLoss follows per_token_loss_func of ms-swift 4.6 (swift/trainers/utils.py) and the mean of it.
func rolledLoss(f *frame, logits, labels *tensor) *tensor {
	g := f.FuncFrame(logits, labels)
	g.Set(&logits, logits.To(trace.F32))
	rolled := g.Let(labels.Roll(-1).View(-1))
	g.Set(&logits, logits.View(-1, logits.Size(-1)))
	losses := g.Let(logits.CrossEntropyWith(rolled, trace.CrossEntropyArgs{Reduction: trace.ReduceNone}))
	var weights *tensor
	f.Tape().NoGrad(func() { weights = g.Let(losses.Neg().Exp()) })
	g.Set(&losses, losses.MulInPlace(weights))
	return g.Return(losses.Sum(false).DivScalar())
}

// selectedLoss follows dft_loss of TRL 1.8 (trl/trainer/sft_trainer.py).
func selectedLoss(f *frame, logits, labels *tensor) *tensor {
	g := f.FuncFrame(logits, labels)
	g.Set(&labels, labels.Pad(0, 1))
	g.Set(&labels, labels.Slice(-1, 1, labels.Size(-1)))
	counts := g.Let(labels.EqScalar())
	f.Tape().NoGrad(func() {
		h := g.FuncFrame()
		g.Discard(labels.MaskedFillInPlace(h.Let(counts.EqScalar())))
		h.End()
	})
	logs := g.Let(selectiveLogSoftmax(g, logits, labels))
	var weights *tensor
	f.Tape().NoGrad(func() { weights = logs.Exp().Neg() })
	losses := g.Let(weights.Mul(logs))
	return g.Return(losses.Mul(counts).Sum(false).DivScalar())
}

// counted returns the losses of the n tokens of target that count, and where they are.
func counted(f *frame, source, target *tensor, n int64) (losses, at *tensor) {
	each := f.Let(source.CrossEntropyWith(target, trace.CrossEntropyArgs{Reduction: trace.ReduceNone}))
	f.Let(target.EqScalar())
	at = f.Let(source.Tape().New("nonzero", program.Activations, trace.I64, n))
	return f.Let(each.Index(at)), at
}

// probabilityWeighted follows _dft_cross_entropy of dft_loss_func.
func probabilityWeighted(f *frame, source, target *tensor, n int64) *tensor {
	g := f.FuncFrame(source, target)
	losses, _ := counted(g, source, target, n)
	var weights *tensor
	f.Tape().NoGrad(func() { weights = g.Let(losses.Neg().Exp()) })
	return g.Return(g.Let(losses.Mul(weights)).Sum(false).DivScalar())
}

// entropyWeighted follows _eaft_cross_entropy of eaft_loss_func.
func entropyWeighted(f *frame, source, target *tensor, n int64) *tensor {
	g := f.FuncFrame(source, target)
	losses, at := counted(g, source, target, n)
	var weights *tensor
	f.Tape().NoGrad(func() {
		chosen := g.Let(source.Index(at))
		top, places := chosen.TopK(min(entropyTopK, chosen.Size(-1)), -1)
		g.LetAll([]*tensor{top, places})
		total := g.Let(top.LogSumExp(true, -1))
		logs := g.Let(top.Sub(total))
		probs := g.Let(logs.Exp())
		entropy := g.Let(probs.Mul(logs).Sum(false, -1).Neg())
		weights = g.Let(g.Let(entropy.DivScalar()).Pow(entropyPower))
	})
	return g.Return(g.Let(losses.Mul(weights)).Sum(false).DivScalar())
}

// entropyPower is any exponent: torch.pow copies with one, too.
const entropyPower = 1.5

// entropyLossOfAxolotl follows eaft_loss: scores are shifted by a copy, and the counted ones are
// picked twice.
func entropyLossOfAxolotl(f *frame, logits, labels *tensor) *tensor {
	n := labels.Size(0) * (labels.Size(1) - 1)
	g := f.FuncFrame(logits, labels)
	source := g.Let(logits.Slice(1, 0, logits.Size(1)-1).Contiguous())
	target := g.Let(labels.Slice(-1, 1, labels.Size(-1)).Contiguous())
	g.Set(&source, source.View(-1, source.Size(-1)))
	g.Set(&target, target.View(-1))
	g.Let(target.EqScalar())
	at := g.Let(f.Tape().New("nonzero", program.Activations, trace.I64, n))
	var weights *tensor
	f.Tape().NoGrad(func() {
		top, places := source.Index(at).To(trace.F32).TopK(min(entropyTopK, source.Size(-1)), -1)
		g.LetAll([]*tensor{top, places})
		probs := g.Let(top.Softmax(-1))
		entropy := g.Let(probs.Mul(probs.AddScalar().Log()).Sum(false, -1).Neg())
		weights = g.Let(entropy.Pow(entropyPower))
	})
	losses := g.Let(source.Index(at).CrossEntropyWith(target.Index(at),
		trace.CrossEntropyArgs{Reduction: trace.ReduceNone}))
	return g.Return(g.Let(losses.Mul(weights)).Sum(false).DivScalar())
}

// anchoredLoss follows asft_loss_func.
func anchoredLoss(f *frame, logits, reference, labels *tensor) *tensor {
	g := f.FuncFrame(logits, reference, labels)
	g.Set(&logits, logits.To(trace.F32))
	shift := func(x *tensor) *tensor { return x.Slice(1, 0, x.Size(1)-1).Contiguous() }
	policy := g.Let(shift(logits))
	target := g.Let(labels.Slice(-1, 1, labels.Size(-1)).Contiguous())
	anchor := g.Let(shift(reference))
	g.Set(&policy, policy.View(-1, policy.Size(-1)))
	g.Set(&anchor, anchor.View(-1, anchor.Size(-1)))
	g.Set(&target, target.View(-1))
	h := g.FuncFrame(policy, target, anchor)
	likelihood := h.Let(probabilityWeighted(h, policy, target, target.Numel()))
	divergence := h.Let(anchoredDivergence(h, policy, anchor, target))
	y := likelihood.Add(divergence.MulScalar())
	h.End(y)
	return g.Return(y)
}

// anchoredDivergence follows _kl_divergence.
func anchoredDivergence(f *frame, policy, anchor, target *tensor) *tensor {
	g := f.FuncFrame(policy, anchor, target)
	log := g.Let(policy.LogSoftmax(-1))
	q := g.Let(anchor.Softmax(-1))
	each := g.Let(log.KLDiv(q, false, trace.ReduceNone).Sum(false, -1))
	mask := g.Let(target.EqScalar().To(trace.F32))
	return g.Return(each.Mul(mask).Sum(false).Div(mask.Sum(false)))
}
