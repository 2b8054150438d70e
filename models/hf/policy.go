package hf

import (
	"errors"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// policyTask is the training step on generated answers and their advantages in TRL's GRPOTrainer
// (trl/trainer/grpo_trainer.py). The log-probabilities of the answers of all micro-batches of a step are computed
// before the first one. ms-swift's trainer does the same without logging entropies.
//
// The kinds of loss (grpo, dapo, cispo, sapo, a weight for each sequence) differ only in tensors [rows, answer
// tokens]; the clipped one is recorded.
type policyTask struct {
	task      *TextTask
	objective models.Objective
	// prompts, answers and their masks have a row for each sample of all micro-batches. old and reference are the
	// log-probabilities that the model itself and the reference model give before the step.
	prompts, promptMask, answers, answerMask, advantages *tensor
	old, reference                                       *tensor
	// rows is the number of rows of a micro-batch, micro the index of the next one.
	rows, micro int64
}

// loadAnswers copies prompts and answers to the GPU, n for each micro-batch.
func (p *policyTask) loadAnswers(fresh func(op string, shape ...int64) *tensor, tape *trace.Tape, n int64) {
	p.rows = n
	all, answer := n*p.task.Micro, p.objective.AnswerTokens()
	p.old, p.reference = nil, nil
	p.prompts, p.promptMask = fresh("pad", all, p.task.Length-answer), fresh("pad", all, p.task.Length-answer)
	p.answers, p.answerMask = fresh("pad", all, answer), fresh("pad", all, answer)
	p.advantages = tape.Hold(tape.New("sub", program.Batch, trace.F32, all))
}

// computeLogProbs records the part of _generate_and_score_completions before the first micro-batch. Without gradients,
// it computes log-probabilities of the reference model, and of the model itself if several steps learn from the answers
// or vLLM has generated them.
func (p *policyTask) computeLogProbs(f *frame) {
	p.micro = 0
	if !p.objective.OldLogProbs && !p.objective.Reference {
		return
	}
	t := f.Tape()
	g := f.FunctionFrame()
	ids, mask := g.Bind(trace.Cat(1, p.prompts, p.answers)), g.Bind(trace.Cat(1, p.promptMask, p.answerMask))
	renew := func(old **tensor, model *modelCaller) {
		y := t.Hold(p.tokenLogProbs(g, ids, mask, model, false))
		t.Release(*old)
		*old = y
	}
	t.NoGrad(func() {
		if p.objective.OldLogProbs {
			renew(&p.old, p.task.model)
		}
		if p.objective.Reference {
			p.task.withReference(func(model *modelCaller) { renew(&p.reference, model) })
		}
	})
	g.End()
	t.Mark("score")
}

// swiftLogProbs records ms-swift's _get_logps_via_local_forward of one micro-batch, whose tensors then are freed.
func (p *policyTask) swiftLogProbs(f *frame, ids, padding *tensor, model *modelCaller) *tensor {
	answer := p.objective.AnswerTokens()
	g := f.FunctionFrame(ids, padding)
	logits := g.Bind(model.castLogits(g, TextBatch{IDs: ids, Padding: padding, Keep: answer + 1}))
	g.Set(&logits, logits.Slice(1, 0, answer))
	g.Discard(logits.DivScalarInPlace())
	return g.Return(selectiveLogSoftmax(g, logits, g.Bind(ids.Slice(1, ids.Size(1)-answer, ids.Size(1))),
		p.objective.LikeTrainer))
}

// tokenLogProbs records _get_per_token_logps_and_entropies of TRL's trainers for ids [n, length], which returns
// log-probabilities [n, answer tokens] one micro-batch at a time. One's logits live while the model runs on the next.
func (p *policyTask) tokenLogProbs(f *frame, ids, mask *tensor, model *modelCaller, entropy bool) *tensor {
	answer, rules := p.objective.AnswerTokens(), f.Tape().Rules().Libraries
	g := f.FunctionFrame(ids, mask)
	types := []trace.DType{trace.F32} // the entropy
	var chunk, padding, output, logits *tensor
	var all []*tensor
	for from := int64(0); from < ids.Size(0); from += p.rows {
		g.Set(&chunk, ids.Slice(0, from, from+p.rows))
		g.Set(&padding, mask.Slice(0, from, from+p.rows))
		b := TextBatch{IDs: chunk, Keep: answer + 1}
		if p.task.Padded {
			b.Padding = padding
		}
		if p.objective.LikeTrainer == models.AsSwift {
			all = append(all, g.Bind(p.swiftLogProbs(g, b.IDs, b.Padding, model)))
			continue
		}
		if rules.FusedHead {
			b.Keep, b.Labels = answer, g.Bind(chunk.MaskedFill(g.Bind(padding.EqScalar())))
			logs := g.BindAll(model.logProbs(g, b, types...))
			all = append(all, g.Bind(logs[0].Slice(1, logs[0].Size(1)-answer, logs[0].Size(1))))
			continue
		}
		labels := g.Bind(chunk.Slice(1, chunk.Size(1)-answer, chunk.Size(1)))
		g.Set(&output, model.castLogits(g, b))
		g.Set(&logits, output.Slice(1, 0, answer))
		g.Set(&logits, logits.Slice(1, 0, answer))
		switch { // liger's kernel divides by the temperature itself
		case rules.LogKernels:
		case rules.ScalesAnew:
			g.Set(&logits, logits.DivScalar())
		default:
			g.Discard(logits.DivScalarInPlace())
		}
		all = append(all, g.Bind(selectiveLogSoftmax(g, logits, labels, "")))
		if entropy && !rules.LogKernels {
			f.Tape().NoGrad(func() { recordEntropies(g, logits) })
		}
	}
	return g.Return(trace.Cat(0, all...))
}

// loss records _compute_loss of TRL's trainer for the next micro-batch.
func (p *policyTask) loss(f *frame) *tensor {
	from, to := p.micro%p.task.Micro*p.rows, (p.micro%p.task.Micro+1)*p.rows
	p.micro++
	part := func(x *tensor) *tensor { return x.Slice(0, from, to) }
	g := f.FunctionFrame()
	answers, mask := g.Bind(part(p.answers)), g.Bind(part(p.answerMask))
	ids := g.Bind(trace.Cat(1, part(p.prompts), answers))
	logps := g.Bind(p.tokenLogProbs(g, ids, g.Bind(trace.Cat(1, part(p.promptMask), mask)), p.task.model, true))
	advantages := g.Bind(part(p.advantages).Unsqueeze(1))
	var old *tensor
	if p.objective.OldLogProbs {
		old = g.Bind(part(p.old))
	} else {
		old = g.Bind(logps.Detach())
	}
	ratio := g.Bind(g.Bind(logps.Sub(old)).Exp())
	var divergence *tensor
	if p.objective.Reference {
		reference := g.Bind(part(p.reference))
		divergence = g.Bind(reference.Sub(logps).Exp().Sub(reference.Sub(logps)).AddScalar())
	}
	clipped := g.Bind(ratio.Clamp())
	each := g.Bind(g.Bind(ratio.Mul(advantages)).Minimum(g.Bind(clipped.Mul(advantages))).Neg())
	if divergence != nil {
		g.Set(&each, each.Add(divergence.MulScalar()))
	}
	return g.Return(each.Mul(mask).Sum(false, -1).Div(mask.Sum(false, -1).ClampMin()).Mean(false).DivScalar())
}

// maxCacheGrowths limits how often a recording grows the cache; for more tokens, it grows by several at a time.
const maxCacheGrowths = 512

// Generate implements [train.Generator]. It records GenerationMixin.generate of n tokens after each row. The first
// call processes all tokens of a row, later calls one token each, and the cache grows by one token per call. Of the
// calls after the second, only the last is recorded.
func (t *TextTask) Generate(f *trace.Frame, n int64) {
	if t.nextLogits == nil || t.Cache == nil || t.embeddingMethod != nil {
		f.Tape().Raise(errors.New("evaluate: vprof does not record text generation (new-tokens) with this task or " +
			"adapter; leave out new-tokens"))
	}
	g := f.FunctionFrame()
	end := t.Cache.keepOver(g)
	b := TextBatch{IDs: t.batch.IDs, Keep: 1}
	t.appendGenerated(g, &b)
	if n > 2 {
		t.appendGenerated(g, &b)
	}
	for left := n - 3; left > 0; {
		tokens := min(left, (n+maxCacheGrowths-1)/maxCacheGrowths)
		t.Cache.addTokens(tokens)
		left -= tokens
	}
	if n > 1 {
		t.appendGenerated(g, &b)
	}
	end()
	g.End()
}

// appendGenerated calls the model and replaces the batch by the generated token.
func (t *TextTask) appendGenerated(f *trace.Frame, b *TextBatch) {
	t.Cache.layer = 0
	g := f.FunctionFrame()
	word := g.Return(t.sampleToken(g, g.Bind(t.nextLogits(g, *b))))
	b.IDs = f.Bind(f.Bind(word).Unsqueeze(-1))
}

// sampleToken returns the token with the largest logit at the last position, in fp32.
func (t *TextTask) sampleToken(f *trace.Frame, scores *trace.Tensor) *trace.Tensor {
	g := f.FunctionFrame(scores)
	g.Set(&scores, scores.Select(1, -1))
	copied := g.Bind(g.Tape().New("_to_copy", program.Activations, trace.F32, scores.Shape()...))
	return g.Return(copied.ArgMax(false, -1))
}
