package hf

import (
	"errors"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Generate implements [train.Generating]: GenerationMixin.generate of n words behind each row of the batch, the likeliest
// or by chance. The first call has all tokens of a row, each later one a token, and the cache grows by a token a call: of the
// calls between the second and the last that alone is recorded.
func (t *TextTask) Generate(f *trace.Frame, n int64) {
	if t.next == nil || t.Cache == nil || t.tuned != nil {
		f.Tape().Raise(errors.New("evaluate: vprof does not record generation with this task"))
	}
	g := f.FuncFrame()
	end := t.Cache.over(g)
	b := TextBatch{IDs: t.batch.IDs, Keep: 1}
	var scores *trace.Tensor
	for i := range n {
		t.Cache.layer = 0
		if i > 1 && i < n-1 {
			t.Cache.grow()
			continue
		}
		g.Set(&scores, t.next(g, b))
		word := t.choose(g, scores)
		b.IDs = g.Let(word.Unsqueeze(-1))
	}
	end()
	g.End()
}

// choose is the word that follows: the likeliest of the scores of the last token, in fp32.
func (t *TextTask) choose(f *trace.Frame, scores *trace.Tensor) *trace.Tensor {
	g := f.FuncFrame(scores)
	g.Set(&scores, scores.Select(1, -1))
	copied := g.Let(g.Tape().New("_to_copy", program.Activations, trace.F32, scores.Shape()...))
	return g.Return(copied.ArgMax(false, -1))
}
