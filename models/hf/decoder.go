package hf

import (
	"github.com/vprof/vprof/models/liger"
	"github.com/vprof/vprof/models/nn"
)

// Decoder maps token ids [batch, length], with a padding mask of that shape or
// nil, to hidden states [batch, length, width].
type Decoder interface {
	Call(f *frame, ids, padding *tensor, text Text) *tensor
}

// CausalLM is the task of predicting each next token with a decoder and an
// output layer, which net holds.
func CausalLM(net any, m Decoder, inputs *nn.Embedding, output *nn.Linear, text Text) *TextTask {
	return &TextTask{
		Text: text, Net: net, Inputs: inputs, Output: output,
		Call: func(f *frame, b TextBatch) *tensor {
			g := f.CallFrame(b.IDs, b.Padding, b.Labels)
			g.In(net)
			x := g.Let(m.Call(g, b.IDs, b.Padding, text))
			if text.Liger {
				return Taken(g, g.Let(liger.CausalLMLoss(g, x, output.Weight.Tensor, b.Labels)))
			}
			logits := g.Let(g.Call(output, x))
			if text.ScoreCap {
				g.Set(&logits, logits.DivScalar())
				g.Set(&logits, logits.Tanh())
				g.Set(&logits, logits.MulScalar())
			}
			return Taken(g, g.Let(CausalLMLoss(g, logits, b.Labels)), logits)
		},
	}
}

// SequenceClassification is the task of telling something of each row with a
// decoder and a layer for scores, which net holds and adapters may replace.
// padToken says that the model knows which token is padding.
func SequenceClassification(net any, m Decoder, inputs *nn.Embedding, score *nn.Layer, classes Classes, padToken bool, text Text) *TextTask {
	return &TextTask{
		Text: text, Net: net, Inputs: inputs, Output: *score, Classes: &classes, Heads: []*nn.Layer{score},
		Call: func(f *frame, b TextBatch) *tensor {
			g := f.CallFrame(b.IDs, b.Padding, b.Labels)
			g.In(net)
			x := g.Let(m.Call(g, b.IDs, b.Padding, text))
			scores := g.Let(g.Call(*score, x))
			logits := lastTokenScores(g, b.IDs, scores, padToken)
			return Taken(g, g.Let(classes.Loss(logits, b.Labels)), logits)
		},
	}
}
