package hf

import (
	"errors"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// mostGrowths is how often the cache grows at most in a recording; of more tokens it grows by several.
const mostGrowths = 512

// Generate implements [train.Generating]: GenerationMixin.generate of n words behind each row of the batch. The first
// call has all tokens of a row, each later one a token, and the cache grows by a token a call: of the calls between the
// second and the last that alone is recorded.
func (t *TextTask) Generate(f *trace.Frame, n int64) {
	if t.next == nil || t.Cache == nil || t.tuned != nil {
		f.Tape().Raise(errors.New("evaluate: vprof does not record generation with this task"))
	}
	g := f.FuncFrame()
	end := t.Cache.over(g)
	b := TextBatch{IDs: t.batch.IDs, Keep: 1}
	t.write(g, &b)
	if n > 2 {
		t.write(g, &b)
	}
	for left := n - 3; left > 0; {
		tokens := min(left, (n+mostGrowths-1)/mostGrowths)
		t.Cache.grow(tokens)
		left -= tokens
	}
	if n > 1 {
		t.write(g, &b)
	}
	end()
	g.End()
}

// write calls the model and puts the word that follows in the place of the batch.
func (t *TextTask) write(f *trace.Frame, b *TextBatch) {
	t.Cache.layer = 0
	g := f.FuncFrame()
	word := g.Return(t.choose(g, g.Let(t.next(g, *b))))
	b.IDs = f.Let(f.Let(word).Unsqueeze(-1))
}

// choose is the word that follows: the likeliest of the scores of the last token, in fp32.
func (t *TextTask) choose(f *trace.Frame, scores *trace.Tensor) *trace.Tensor {
	g := f.FuncFrame(scores)
	g.Set(&scores, scores.Select(1, -1))
	copied := g.Let(g.Tape().New("_to_copy", program.Activations, trace.F32, scores.Shape()...))
	return g.Return(copied.ArgMax(false, -1))
}
