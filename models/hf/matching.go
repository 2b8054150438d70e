package hf

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// matching learns which texts belong together, as ms-swift 4.6 does: by embeddings of texts
// (swift/model/patcher.py, swift/loss/embedding.py), or by a score of a question and an answer,
// how much more likely one of two tokens is than the other (get_generative_reranker_logits,
// swift/loss/reranker.py).
type matching struct {
	objective models.Objective
	model     *caller
	// ranks compare their embeddings with each other's.
	ranks int64
}

// loss follows compute_loss.
func (m *matching) loss(f *frame, b TextBatch) *tensor {
	g := f.FuncFrame(b.IDs, b.Padding, b.Labels)
	var y *tensor
	if m.objective.Name == models.Embedding {
		texts := g.Let(m.embeddings(g, b))
		compared := m.closest
		if m.objective.Pairs {
			compared = m.pairs
		}
		y = compared(g, texts, b.Labels)
	} else {
		scores := g.Let(m.model.text.autocast(g, b, m.scores))
		g.Set(&scores, scores.Index(f.Tape().Arange(scores.Size(0)), g.Let(lastPlaces(g, scores, b.Padding))))
		y = rankingLoss(g, scores, b.Labels)
	}
	return g.Return(y)
}

// embeddings returns the states [rows, width] of the last tokens, brought to length one, by a hook of
// the model: inside of peft's model, or on what accelerate has brought to fp32.
func (m *matching) embeddings(f *frame, b TextBatch) *tensor {
	text := m.model.text
	if text.Adapted {
		pooled := func(f *frame, b TextBatch) *tensor { return m.pooled(f, m.states(f, b), b.Padding) }
		return text.autocast(f, b, pooled)
	}
	return m.pooled(f, text.autocast(f, b, m.states), b.Padding)
}

// states returns those [rows, length, width] of all tokens. The output layer is not used.
func (m *matching) states(f *frame, b TextBatch) *tensor {
	g := f.ModuleFrame(m.model.net, b.IDs, b.Padding)
	return g.Return(g.Let(m.model.decoder.Call(g, b.IDs, b.Padding, m.model.text)))
}

// pooled returns the states of the last tokens, brought to length one.
func (m *matching) pooled(f *frame, x, padding *tensor) *tensor {
	g := f.FuncFrame(padding)
	g.Let(x)
	g.Set(&x, revertPaddingFree(g, x, m.model.text))
	last := g.Let(lastPlaces(g, x, padding))
	y := g.Let(x.Index(f.Tape().Arange(x.Size(0)), last))
	return g.Return(g.Set(&y, y.Normalize(1)))
}

// scores returns those [rows, length, 1] of every token, from two rows of the output layer's weight.
func (m *matching) scores(f *frame, b TextBatch) *tensor {
	g := f.ModuleFrame(m.model.net, b.IDs, b.Padding)
	x := g.Let(m.model.decoder.Call(g, b.IDs, b.Padding, m.model.text))
	g.Set(&x, revertPaddingFree(g, x, m.model.text))
	h := g.CallFrame(x)
	words := h.Let(f.Tape().New("to_device", program.Temporaries, trace.I64, 2))
	both := h.Let(x.Linear(h.Let(nn.OutputWeight(*m.model.output).Index(words)), nil))
	y := both.Slice(-1, 0, 1).Sub(both.Slice(-1, 1, 2))
	h.End(y)
	g.Let(y)
	return g.Return(y)
}

// revertPaddingFree follows revert_padding_free of states [1, rows*length, width], where rows come as one without
// padding: copies of each, and all of them again. Elsewhere it is x.
func revertPaddingFree(f *frame, x *tensor, text Text) *tensor {
	if !text.Objective.Unpadded {
		return x
	}
	g := f.FuncFrame(x)
	flat := g.Let(x.Squeeze(0))
	var rows []*tensor
	for from := int64(0); from < flat.Size(0); from += text.Length {
		rows = append(rows, g.Let(trace.Cat(0, flat.Slice(0, from, from+text.Length))))
	}
	return g.Return(trace.Stack(0, rows...))
}

// lastPlaces follows get_last_valid_indices of a padding mask; without one the last places.
func lastPlaces(f *frame, x, padding *tensor) *tensor {
	if padding == nil {
		return f.Tape().Arange(x.Size(0))
	}
	g := f.FuncFrame(padding)
	return g.Return(g.Let(g.Let(padding.Flip(1)).ArgMax(false, 1)).RSubScalar())
}

// rankingLoss follows PointwiseRerankerLoss of scores [rows, 1]; ListwiseRerankerLoss differs in a
// few numbers for each question.
func rankingLoss(f *frame, scores, labels *tensor) *tensor {
	g := f.FuncFrame(scores, labels)
	g.Set(&scores, scores.Squeeze(1))
	g.Set(&labels, labels.To(scores.DType()))
	return g.Return(scores.BCEWithLogits(labels, nil, trace.ReduceMean))
}

// pairs follows CosineSimilarityLoss of texts [rows, width], of which each second one belongs to the
// one before; the contrastive losses differ in a few numbers for each pair.
func (m *matching) pairs(f *frame, texts, labels *tensor) *tensor {
	t, n := f.Tape(), texts.Size(0)/2
	g := f.FuncFrame(texts, labels)
	first, second := g.Let(texts.Index(g.Let(t.Arange(n)))), g.Let(texts.Index(g.Let(t.Arange(n))))
	likeness := g.Let(first.CosineSimilarity(second, 1))
	return g.Return(likeness.MSELoss(g.Let(labels.To(likeness.DType())).View(-1), trace.ReduceMean))
}

// closest follows InfonceLoss of texts [rows, width]: a question, its answer and answers to others.
// Every question is compared with all answers, also of other ranks, through which no
// gradient goes.
func (m *matching) closest(f *frame, texts, labels *tensor) *tensor {
	t, group := f.Tape(), m.objective.Rows()
	g := f.FuncFrame(texts, labels)
	if m.ranks > 1 {
		all := []*tensor{texts}
		for range m.ranks - 1 {
			all = append(all, g.Let(t.New("to_device", program.Temporaries, texts.DType(), texts.Shape()...)))
		}
		g.Set(&texts, trace.Cat(0, all...))
	}
	var samples []*tensor
	for from := int64(0); from < texts.Size(0); from += group {
		samples = append(samples, g.Let(texts.Slice(0, from, from+group)))
	}
	g.Set(&texts, trace.Stack(0, samples...))
	questions := g.Let(texts.Select(1, 0))
	answers := g.Let(texts.Slice(1, 1, group).Reshape(-1, texts.Size(2)))
	near := g.Let(questions.Matmul(answers.T()))
	right := g.Let(t.New("to_device", program.Temporaries, trace.I64, near.Size(0)))
	likeness := g.Let(trace.Cat(1, near))
	g.Set(&likeness, likeness.DivScalar())
	return g.Return(likeness.CrossEntropy(right))
}
