package hf

import (
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// TokenHead is what a model for token classification puts on the states of its last layer.
type TokenHead struct {
	Dropout *nn.Dropout
	Score   *nn.Layer
	// Whole brings scores to fp32 before their loss, whatever autocast does.
	Whole bool
}

// headDropout is the name of the setting that turns the dropout of such a head on and off.
const headDropout = "head-dropout"

// HeadDropoutSetting says whether what goes into the head is dropped out.
func HeadDropoutSetting() models.Setting {
	return models.Switch(headDropout, 1,
		"1 if the head of token classification has its dropout, 0 if it is off (TRL's disable_dropout)")
}

// HeadDropout is the dropout of such a head: what the configuration says, or none.
func HeadDropout(c models.Case, p float64) *nn.Dropout {
	if !c.On(headDropout) {
		p = 0
	}
	return nn.NewDropout(p)
}

// TokenClassification is the task of telling something of each token
// (GenericForTokenClassification). states are those of the model's last layer.
func TokenClassification(net any, inputs *nn.Embedding, head TokenHead, classes Classes, text Text,
	states func(f *frame, b TextBatch) *tensor,
) *TextTask {
	classes.Tokens = true
	return &TextTask{
		Text: text, Net: net, Inputs: inputs, Output: *head.Score, Classes: &classes, Heads: []*nn.Layer{head.Score},
		Call: func(f *frame, b TextBatch) *tensor {
			g := f.ModuleFrame(net, b.IDs, b.Padding, b.Labels)
			text.Begin(g)
			outputs := g.Let(states(g, b))
			x := g.Let(outputs)
			g.Set(&x, g.Call(head.Dropout, x))
			logits := g.Let(g.Call(*head.Score, x))
			return Taken(g, g.Let(tokenLoss(g, logits, b.Labels, head.Whole)), logits)
		},
	}
}

// tokenLoss is ForTokenClassification, or where scores are not brought to fp32 what BERT does.
func tokenLoss(f *frame, logits, labels *tensor, whole bool) *tensor {
	rows := logits.View(-1, logits.Size(-1))
	if !whole {
		return rows.CrossEntropy(labels.View(-1))
	}
	g := f.FuncFrame(rows)
	flat := g.Let(labels.View(-1))
	g.Set(&rows, rows.To(trace.F32))
	return g.Return(rows.CrossEntropy(flat))
}
