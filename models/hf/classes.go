package hf

import (
	"errors"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// ProblemType is the kind of labels that a classifier learns from: problem_type of its configuration.
type ProblemType int

const (
	// OneClass is single_label_classification: each row has one class.
	OneClass ProblemType = iota
	// AnyClasses is multi_label_classification: each row may have several.
	AnyClasses
	// RealValues is regression: each row has a number for every class.
	RealValues
)

// DefaultProblemType returns the problem of a configuration that names none, as transformers
// chooses it: regression for a single label, classes that exclude each other for more.
func DefaultProblemType(classes int64) ProblemType {
	if classes == 1 {
		return RealValues
	}
	return OneClass
}

// Classes describes a classification head.
type Classes struct {
	// Count is the number of labels, the width of the head's output.
	Count int64
	// Problem reports whether a row has one label, several, or a number for each.
	Problem ProblemType
	// Tokens reports whether each token has a label, not each row.
	Tokens bool
}

// classesSetting is the name of the setting that chooses the number of classes.
const classesSetting = "classes"

// ClassesSetting returns the setting that chooses the number of classes.
func ClassesSetting(usual int64) models.Setting {
	return models.Setting{Name: classesSetting, Usage: "classes to tell apart", Default: usual, Min: 1, Max: 1 << 20}
}

// ClassesOf reads the number of classes of a case.
func ClassesOf(c models.Case) int64 { return c.Settings[classesSetting] }

// Labels makes the labels of a batch of n rows: class indices [n], a number for each row [n], or one for each row and
// class [n, Count].
func (c *Classes) Labels(t *trace.Tape, n int64) *tensor {
	switch {
	case c.Problem == OneClass:
		return t.New("randint", program.Batch, trace.I64, n)
	case c.Problem == RealValues && c.Count == 1:
		return t.New("randn", program.Batch, trace.F32, n)
	default:
		return t.New("randn", program.Batch, trace.F32, n, c.Count)
	}
}

// Loss returns the loss of a sequence classification model from its logits [n, Count].
func (c *Classes) Loss(logits, labels *tensor) *tensor {
	switch {
	case c.Problem == AnyClasses:
		return logits.BCEWithLogits(labels, nil, trace.ReduceMean)
	case c.Problem == OneClass:
		return logits.View(-1, c.Count).CrossEntropy(labels.View(-1))
	case c.Count == 1:
		return logits.Squeeze(-1).MSELoss(labels, trace.ReduceMean)
	default:
		return logits.MSELoss(labels, trace.ReduceMean)
	}
}

// errNoPadding is the error that transformers raises for several rows and no padding token.
var errNoPadding = errors.New(
	"ValueError: Cannot handle batch sizes > 1 if no padding token is defined: pad_token_id is not set")

// lastTokenLogits selects the logits [batch, classes] of the last token of each row that is not padding from logits
// [batch, length, classes], as a decoder's classification model does in its frame. Without a padding token the batch
// must have one row, whose last token is selected.
func lastTokenLogits(f *frame, ids, scores *tensor, padToken bool) *tensor {
	t := f.Tape()
	if !padToken {
		if ids.Size(0) != 1 {
			t.Raise(errNoPadding)
		}
		return f.Bind(scores.Select(1, -1).Index(t.Arange(1)))
	}
	words := f.Bind(ids.EqScalar().To(trace.I32))
	order := f.Bind(t.Filled("arange", trace.I32, ids.Size(1)))
	last := f.Bind(order.Mul(words).ArgMax(false, -1))
	return f.Bind(scores.Index(t.Arange(ids.Size(0)), last))
}

// TokenHead is the head of a model for token classification, on the states of the last layer.
type TokenHead struct {
	Dropout *nn.Dropout
	Score   *nn.Layer
	// FloatLogits brings scores to fp32 before their loss, whatever autocast does.
	FloatLogits bool
}

// headDropout is the name of the setting that turns the dropout of such a head on and off.
const headDropout = "head-dropout"

// HeadDropoutSetting returns the setting that applies dropout to the head's input.
func HeadDropoutSetting() models.Setting {
	return models.Switch(headDropout, 1,
		"1 if the head of token classification has its dropout, 0 if it is off (TRL's disable_dropout)")
}

// HeadDropout returns the dropout of a classification head with probability p, or 0 if the case turns it off.
func HeadDropout(c models.Case, p float64) *nn.Dropout {
	if !c.On(headDropout) {
		p = 0
	}
	return nn.NewDropout(p)
}

// TokenClassification returns the token classification task (GenericForTokenClassification). states returns the hidden
// states of the last layer.
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

// tokenLoss follows ForTokenClassification, or BERT's loss if logits are not converted to fp32 (whole).
func tokenLoss(f *frame, logits, labels *tensor, whole bool) *tensor {
	rows := logits.View(-1, logits.Size(-1))
	if !whole {
		return rows.CrossEntropy(labels.View(-1))
	}
	g := f.FuncFrame(rows)
	flat := g.Bind(labels.View(-1))
	g.Set(&rows, rows.To(trace.F32))
	return g.Return(rows.CrossEntropy(flat))
}
