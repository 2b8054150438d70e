package hf

import (
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// preferenceTask is the loss of a preference objective: TRL 1.8's (trl/trainer/dpo_trainer.py, kto_trainer.py, and
// orpo and cpo in trl/experimental), or a trainer's with its own code of log-probabilities.
type preferenceTask struct {
	objective models.Objective
	task      *TextTask
}

// loss records compute_loss of TRL's trainer.
func (p *preferenceTask) loss(f *frame, b TextBatch) *tensor {
	g := f.FunctionFrame(b.IDs, b.Padding)
	if p.usesLLaMAFactoryKTO() {
		logps := p.llamaFactoryLogProbs(g, b, p.task.model)
		return g.Return(p.dpoLoss(g, b, logps, nil))
	}
	var kl *tensor
	if p.objective.Name == models.KTO {
		kl = g.Bind(p.noGradLogProbs(g, b, p.task.model))
	}
	if !p.objective.UsesReference() {
		return g.Return(p.referenceFreeLoss(g, b))
	}
	logits, logps := p.forward(g, b, p.task.model)
	loss := g.Bind(p.dpoLoss(g, b, logps, kl))
	if p.usesTRL() && logits != nil {
		p.logMetrics(g, logits)
	}
	return g.Return(loss)
}

// usesTRL reports whether TRL's trainers make the step. axolotl replaces only their log-probabilities and entropies,
// ms-swift only the call of the model where there is no reference (rlhf_mixin.py).
func (p *preferenceTask) usesTRL() bool {
	o := p.objective
	return slices.Contains([]string{"", models.AsAxolotl}, o.LikeTrainer) ||
		o.LikeTrainer == models.AsSwift && !o.UsesReference()
}

// forward returns logits and the log-probabilities of rows. TRL's function keeps the model's output until it returns;
// other trainers' functions return only log-probabilities.
func (p *preferenceTask) forward(f *frame, b TextBatch, model *modelCaller) (logits, logps *tensor) {
	if p.usesTiledLogProbs(f) {
		b.Labels = f.Bind(b.IDs.MaskedFill(f.Bind(b.IDs.EqScalar())))
		var types []trace.DType
		if model == p.task.model {
			types = []trace.DType{trace.F32, trace.F32, trace.Bool} // entropy, mean_logits, is_top1
		}
		return nil, f.Bind(f.BindAll(model.logProbs(f, b, types...))[0].Sum(false, -1))
	}
	if p.usesTRL() {
		logits = f.Bind(model.castLogits(f, b))
		return logits, f.Bind(p.logps(f, logits, b.IDs))
	}
	g := f.FunctionFrame(b.IDs)
	y := g.Bind(model.castLogits(g, b))
	if p.objective.LikeTrainer == models.AsLLaMAFactory || p.objective.LikeTrainer == models.AsTorchtune {
		g.Set(&y, y.To(trace.F32))
	}
	var sums *tensor
	if p.objective.LikeTrainer == models.AsTorchtune && p.task.Reference != nil {
		sums = g.Bind(p.torchtuneLogProbs(g, y, b.IDs))
	} else {
		sums = g.Bind(p.logps(g, y, b.IDs))
	}
	if p.objective.LikeTrainer == models.AsSwift {
		g.Discard(y.Mean(false, -1))
		g.End(sums)
		return nil, f.Bind(sums)
	}
	g.End(sums, y)
	return f.Bind(y), f.Bind(sums)
}

// usesTiledLogProbs reports whether TRL computes log-probabilities from hidden states in tiles.
func (p *preferenceTask) usesTiledLogProbs(f *frame) bool {
	return p.objective.LikeTrainer == "" && p.objective.UsesReference() && f.Tape().Rules().Libraries.FusedHead
}

// torchtuneLogProbs returns the log-probabilities of chosen answers, then of rejected ones, as torchtune's
// full_dpo_distributed does.
func (p *preferenceTask) torchtuneLogProbs(f *frame, logits, ids *tensor) *tensor {
	rows, g := ids.Size(0), f.FunctionFrame(logits, ids)
	chosen := g.Bind(p.logps(g, logits.Slice(0, 0, rows/2), ids.Slice(0, 0, rows/2)))
	rejected := g.Bind(p.logps(g, logits.Slice(0, rows/2, rows), ids.Slice(0, rows/2, rows)))
	return g.Return(trace.Cat(0, chosen, rejected))
}

func (p *preferenceTask) noGradLogProbs(f *frame, b TextBatch, model *modelCaller) (logps *tensor) {
	f.Tape().NoGrad(func() {
		g := f.FunctionFrame(b.IDs)
		_, logps = p.forward(g, b, model)
		g.End(logps)
	})
	return logps
}

// usesLLaMAFactoryKTO reports whether LLaMA-Factory's KTO trainer makes the step.
func (p *preferenceTask) usesLLaMAFactoryKTO() bool {
	return p.objective.Name == models.KTO && p.objective.LikeTrainer == models.AsLLaMAFactory
}

// llamaFactoryLogProbs records concatenated_forward of LLaMA-Factory's KTO trainer. The batch's logits are still held
// while logits of unrelated answers are computed. f holds copies of the logits of desirable and undesirable answers.
func (p *preferenceTask) llamaFactoryLogProbs(f *frame, b TextBatch, model *modelCaller) (logps *tensor) {
	g := f.FunctionFrame(b.IDs)
	logits, logps := p.forward(g, b, model)
	g.Bind(p.noGradLogProbs(g, b, model))
	picked := g.Bind(chosenLogits(logits, logits.Size(0)))
	g.End(picked, logps)
	f.Bind(picked)
	return f.Bind(logps)
}

// logps returns the log-probabilities of labels, summed over each row's tokens.
func (p *preferenceTask) logps(f *frame, logits, ids *tensor) *tensor {
	g := f.FunctionFrame(logits, ids)
	labels := g.Bind(ids.Slice(-1, 1, ids.Size(-1)))
	shifted := g.Bind(logits.Slice(1, 0, logits.Size(1)-1))
	var each *tensor
	switch p.objective.LikeTrainer {
	case models.AsTorchtune:
		each = g.Bind(g.Bind(shifted.DivScalar()).LogSoftmax(-1).Gather(labels.Unsqueeze(-1)).Squeeze(-1))
	case models.AsLLaMAFactory:
		each = g.Bind(shifted.LogSoftmax(-1).Gather(labels.Unsqueeze(-1)).Squeeze(-1))
	default:
		each = g.Bind(selectiveLogSoftmax(g, shifted, labels, p.objective.LikeTrainer))
	}
	if p.objective.Packed { // chosen answers come before rejected ones
		g.Set(&each, each.Mul(g.Bind(labels.EqScalar())))
		half := each.Size(1) / 2
		y := trace.Stack(0, g.Bind(each.Slice(1, 0, half).Sum(false)),
			g.Bind(each.Slice(1, half, each.Size(1)).Sum(false)))
		return g.Return(y)
	}
	return g.Return(each.Mul(g.Bind(labels.EqScalar())).Sum(false, -1))
}

// selectiveLogSoftmax records selective_log_softmax of TRL, or of another trainer: row by row, or by a kernel.
func selectiveLogSoftmax(f *frame, logits, labels *tensor, trainer string) *tensor {
	if trainer == "" && f.Tape().Rules().Libraries.LogKernels {
		return kernelLogProbs(f, logits, labels, 4)
	}
	g := f.FunctionFrame(logits, labels)
	if trainer == models.AsAxolotl { // a kernel like TRL's, without entropies, of a copy of the logits
		flat, index := g.Bind(logits.Reshape(-1, logits.Size(-1))), g.Bind(labels.Reshape(-1))
		return g.Return(kernelLogProbs(g, flat, index, 2).View(labels.Shape()...))
	}
	index := g.Bind(labels.Unsqueeze(-1))
	rows := g.BindAll(logits.Unbind(0))
	var y *tensor
	if logits.DType() == trace.F32 {
		chosen := g.Bind(logits.Gather(index))
		sums := lists.Map(rows, func(row *tensor) *tensor { return g.Bind(row.LogSumExp(false, -1)) })
		y = g.Bind(chosen.Sub(trace.Stack(0, sums...).Unsqueeze(-1)))
	} else {
		indices := g.BindAll(index.Unbind(0))
		each := make([]*tensor, len(rows))
		var log *tensor
		for i, row := range rows {
			g.Set(&log, row.LogSoftmax(-1))
			each[i] = g.Bind(log.Gather(indices[i]))
		}
		y = g.Bind(trace.Stack(0, each...))
	}
	y = y.Squeeze(-1)
	return g.Return(y)
}

// dpoLoss returns the loss of objectives with a reference model (DPO, KTO), whose logits live as long as the model's.
func (p *preferenceTask) dpoLoss(f *frame, b TextBatch, logps, kl *tensor) *tensor {
	ratios := logps
	if !p.objective.Precomputed {
		var reference *tensor
		f.Tape().NoGrad(func() {
			p.task.withReference(func(model *modelCaller) {
				if p.usesLLaMAFactoryKTO() {
					g := f.FunctionFrame(b.IDs)
					reference = p.llamaFactoryLogProbs(g, b, model)
					g.End(reference)
					f.Bind(reference)
					return
				}
				if kl != nil {
					f.Bind(p.noGradLogProbs(f, b, model))
				}
				_, reference = p.forward(f, b, model)
			})
		})
		ratios = f.Bind(logps.Sub(reference))
	}
	if p.objective.Name == models.KTO {
		return ratios.MulScalar().Sigmoid().Mean(false)
	}
	parts := f.BindAll(ratios.Chunk(2, 0))
	return f.Bind(parts[0].Sub(parts[1])).MulScalar().LogSigmoid().Neg().Mean(false)
}

// referenceFreeLoss returns the loss of objectives without a reference model (ORPO, CPO): odds ratios or margins, and
// the cross entropy of chosen answers if the trainer has one, which it computes before the log-probabilities. SimPO
// is CPOTrainer with cpo_alpha=0.
func (p *preferenceTask) referenceFreeLoss(f *frame, b TextBatch) *tensor {
	if !p.usesTRL() {
		_, logps := p.forward(f, b, p.task.model)
		parts := f.BindAll(logps.Chunk(2, 0))
		odds := f.Bind(p.oddsOrMargins(parts))
		return odds.Sub(parts[0].Mean(false))
	}
	logits := f.Bind(p.task.model.castLogits(f, b))
	var nll *tensor
	if p.objective.Name != models.SimPO {
		nll = f.Bind(chosenAnswersLoss(f, logits, b.IDs))
	}
	logps := f.Bind(p.logps(f, logits, b.IDs))
	odds := p.oddsOrMargins(f.BindAll(logps.Chunk(2, 0)))
	if nll == nil {
		return odds
	}
	return nll.Add(f.Bind(odds))
}

// oddsOrMargins compares the log-probabilities of chosen and rejected answers.
func (p *preferenceTask) oddsOrMargins(parts []*tensor) *tensor {
	return parts[0].Sub(parts[1]).MulScalar().LogSigmoid().Neg().Mean(false)
}

// chosenAnswersLoss records TRL's cross_entropy_loss of the chosen answers, the first half of the rows.
func chosenAnswersLoss(f *frame, logits, ids *tensor) *tensor {
	rows := logits.Size(0) / 2
	g := f.FunctionFrame(logits, ids)
	chosen := g.Bind(logits.Slice(0, 0, rows).Slice(1, 0, logits.Size(1)-1).Contiguous())
	labels := g.Bind(ids.Slice(0, 0, rows).Slice(1, 1, ids.Size(1)).Contiguous())
	return g.Return(chosen.View(-1, chosen.Size(-1)).CrossEntropy(labels.View(-1)))
}

// entropyRows is the chunk_size of TRL's entropy_from_logits.
const entropyRows = 128

// recordEntropies records TRL's entropy_from_logits of logits [rows, tokens, vocabulary]. Only the first chunk is
// recorded, since later chunks reuse its memory.
func recordEntropies(f *frame, logits *tensor) {
	g := f.FunctionFrame(logits)
	flat := g.Bind(logits.Reshape(-1, logits.Size(-1)))
	log := g.Bind(flat.Slice(0, 0, min(entropyRows, flat.Size(0))).LogSoftmax(-1))
	g.Discard(log.Exp().Mul(log).Sum(false, -1))
	g.End()
}

// logMetrics records what TRL logs about the logits: the entropy, from one copy, and the mean logits of chosen and
// rejected answers. For pairs these are views of the batch. Rated answers are indexed; half of them count as desirable.
func (p *preferenceTask) logMetrics(f *frame, logits *tensor) {
	f.Tape().NoGrad(func() {
		g := f.FunctionFrame()
		shifted := g.Bind(logits.Detach().Slice(1, 0, logits.Size(1)-1))
		if p.objective.LikeTrainer == "" && !f.Tape().Rules().Libraries.LogKernels {
			recordEntropies(g, shifted)
		}
		rows := shifted.Size(0)
		good := rows - rows/2
		if p.objective.Name == models.KTO {
			g.Bind(chosenLogits(shifted, good))
			if rows > good {
				g.Bind(chosenLogits(shifted, rows-good))
			}
		}
		for _, n := range []int64{good, rows - good} {
			if n > 0 {
				g.Discard(chosenLogits(shifted, n).Mean(false, -1))
			}
		}
		g.End()
	})
}

func chosenLogits(scores *tensor, n int64) *tensor {
	return scores.Tape().New("index", program.Temporaries, scores.DType(), n, scores.Size(1), scores.Size(-1))
}

// rewardLoss computes the loss of pairs of scores in TRL's RewardTrainer.
func rewardLoss(f *frame, logits *tensor) *tensor {
	g := f.FunctionFrame(logits)
	parts := g.BindAll(logits.Squeeze(-1).Chunk(2, 0))
	return g.Return(parts[0].Sub(parts[1]).LogSigmoid().Neg().Mean(false))
}

func (t *TextTask) withReference(f func(model *modelCaller)) {
	if t.Reference != nil {
		f(t.Reference.model)
		return
	}
	nn.WithoutAdapters(t.Net, func() { f(t.model) })
}

// ReferenceModel returns the frozen reference model, for [train.ReferenceHolder].
func (t *TextTask) ReferenceModel() any {
	if t.Reference == nil {
		return nil
	}
	return t.Reference.Net
}
