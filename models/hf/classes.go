package hf

import (
	"errors"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// ProblemType is a classifier's problem_type, the kind of its labels.
type ProblemType int

const (
	// SingleLabel is single_label_classification: each row has one class.
	SingleLabel ProblemType = iota
	// MultiLabel is multi_label_classification: each row can have several classes.
	MultiLabel
	// Regression is regression: each row has a number for each output.
	Regression
)

// DefaultProblemType returns transformers' default: regression for one label, and one class per row for more.
func DefaultProblemType(classes int64) ProblemType {
	if classes == 1 {
		return Regression
	}
	return SingleLabel
}

// Classes describes a classification head.
type Classes struct {
	// Count is the number of labels, the width of the head's output.
	Count int64
	// Problem is the kind of labels.
	Problem ProblemType
	// Tokens reports whether each token has a label instead of each sequence.
	Tokens bool
}

const classesSetting = "classes"

// ClassesSetting returns the setting of the number of classes.
func ClassesSetting(usual int64) models.Setting {
	return models.Setting{Name: classesSetting, Usage: "classes to tell apart", Default: usual, Min: 1, Max: 1 << 20}
}

// ClassesOf returns the number of classes of a case.
func ClassesOf(c models.Case) int64 { return c.Settings[classesSetting] }

// Labels allocates the labels of a batch of n rows: class indices [n], numbers [n], or numbers [n, Count].
func (c *Classes) Labels(t *trace.Tape, n int64) *tensor {
	switch {
	case c.Problem == SingleLabel:
		return t.New("randint", program.Batch, trace.I64, n)
	case c.Problem == Regression && c.Count == 1:
		return t.New("randn", program.Batch, trace.F32, n)
	default:
		return t.New("randn", program.Batch, trace.F32, n, c.Count)
	}
}

// Loss returns the loss of a sequence classification model from its logits [n, Count].
func (c *Classes) Loss(logits, labels *tensor) *tensor {
	switch {
	case c.Problem == MultiLabel:
		return logits.BCEWithLogits(labels, nil, trace.ReduceMean)
	case c.Problem == SingleLabel:
		return logits.View(-1, c.Count).CrossEntropy(labels.View(-1))
	case c.Count == 1:
		return logits.Squeeze(-1).MSELoss(labels, trace.ReduceMean)
	default:
		return logits.MSELoss(labels, trace.ReduceMean)
	}
}

// errNoPadToken is transformers' error for a batch of several rows without a padding token.
var errNoPadToken = errors.New("ValueError: Cannot handle batch sizes > 1 if no padding token is defined: set " +
	"pad_token_id in the configuration, or use batch size 1")

// lastTokenLogits selects the logits [batch, classes] of each row's last token that is not padding from [batch,
// length, classes], as a decoder's classification model does. Without a padding token the batch must have one row,
// whose last token is selected.
func lastTokenLogits(f *frame, ids, scores *tensor, padToken bool) *tensor {
	t := f.Tape()
	if !padToken {
		if ids.Size(0) != 1 {
			t.Raise(errNoPadToken)
		}
		return f.Bind(scores.Select(1, -1).Index(t.Arange(1)))
	}
	words := f.Bind(ids.EqScalar().To(trace.I32))
	order := f.Bind(t.Filled("arange", trace.I32, ids.Size(1)))
	last := f.Bind(order.Mul(words).ArgMax(false, -1))
	return f.Bind(scores.Index(t.Arange(ids.Size(0)), last))
}

// TokenHead is the head of a token classification model.
type TokenHead struct {
	Dropout *nn.Dropout
	Score   *nn.Layer
	// FloatLogits converts the logits to fp32 before the loss, also under autocast.
	FloatLogits bool
}

// headDropout is the name of the setting that turns the head's dropout on or off.
const headDropout = "head-dropout"

// HeadDropoutSetting returns the setting that applies dropout to the head's input.
func HeadDropoutSetting() models.Setting {
	return models.SwitchSetting(headDropout, 1,
		"1 if the head of token classification has its dropout, 0 if it is off (TRL's disable_dropout)")
}

// HeadDropout returns a classification head's dropout with probability p, or 0 if the case turns it off.
func HeadDropout(c models.Case, p float64) *nn.Dropout {
	if !c.IsSwitchOn(headDropout) {
		p = 0
	}
	return nn.NewDropout(p)
}

// TokenClassification returns the task of token classification (GenericForTokenClassification). states returns the
// hidden states of the last layer.
func TokenClassification(net any, inputs *nn.Embedding, head TokenHead, classes Classes, text Text,
	states func(f *frame, b TextBatch) *tensor,
) *TextTask {
	classes.Tokens = true
	return &TextTask{
		Text: text, Net: net, Inputs: inputs, Output: *head.Score, Classes: &classes, Heads: []*nn.Layer{head.Score},
		Call: func(f *frame, b TextBatch) *tensor {
			g := f.ModuleFrame(net, b.IDs, b.Padding, b.Labels)
			text.Begin(g)
			outputs := g.Bind(states(g, b))
			x := g.Bind(outputs)
			g.Set(&x, g.Call(head.Dropout, x))
			logits := g.Bind(g.Call(*head.Score, x))
			return EndWithLoss(g, g.Bind(tokenLoss(g, logits, b.Labels, head.FloatLogits)), logits)
		},
	}
}

// tokenLoss records ForTokenClassification of transformers' loss_utils.py. whole: BERT's own loss, without fp32 logits.
func tokenLoss(f *frame, logits, labels *tensor, whole bool) *tensor {
	rows := logits.View(-1, logits.Size(-1))
	if !whole {
		return rows.CrossEntropy(labels.View(-1))
	}
	g := f.FunctionFrame(rows)
	flat := g.Bind(labels.View(-1))
	g.Set(&rows, rows.To(trace.F32))
	return g.Return(rows.CrossEntropy(flat))
}
