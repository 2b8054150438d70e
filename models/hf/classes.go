package hf

import (
	"errors"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Problem is the kind of labels that a classifier learns from: problem_type of its
// configuration.
type Problem int

const (
	// OneOf is single_label_classification: each row is of one class.
	OneOf Problem = iota
	// AnyOf is multi_label_classification: each row may be of several.
	AnyOf
	// Values is regression: each row has a number for every class.
	Values
)

// UsualProblem is the problem of a configuration that names none, as transformers
// chooses it: regression for a single label, classes that exclude each other for more.
func UsualProblem(classes int64) Problem {
	if classes == 1 {
		return Values
	}
	return OneOf
}

// Classes describes a classification head.
type Classes struct {
	// Count is the number of labels, the width of the head's output.
	Count int64
	// Problem says whether a row has one label, several, or a number for each.
	Problem Problem
	// Tokens says that each token has a label, not each row.
	Tokens bool
}

// classesSetting is the name of the setting that chooses the number of classes.
const classesSetting = "classes"

// ClassesSetting is the setting that chooses the number of classes.
func ClassesSetting(usual int64) models.Setting {
	return models.Setting{Name: classesSetting, Usage: "classes to tell apart", Default: usual, Min: 1, Max: 1 << 20}
}

// ClassesOf reads the number of classes of a case.
func ClassesOf(c models.Case) int64 { return c.Settings[classesSetting] }

// Labels makes the labels of a batch of n rows: class numbers [n], or a number for
// each row [n] or for each row and class [n, Count].
func (c *Classes) Labels(t *trace.Tape, n int64) *tensor {
	switch {
	case c.Problem == OneOf:
		return t.Hold(t.New("randint", program.Batch, trace.I64, n))
	case c.Problem == Values && c.Count == 1:
		return t.Hold(t.New("randn", program.Batch, trace.F32, n))
	default:
		return t.Hold(t.New("randn", program.Batch, trace.F32, n, c.Count))
	}
}

// Loss is that of a model for sequence classification, from its scores [n,
// Count].
func (c *Classes) Loss(logits, labels *tensor) *tensor {
	switch {
	case c.Problem == AnyOf:
		return logits.BCEWithLogits(labels, nil, trace.ReduceMean)
	case c.Problem == OneOf:
		return logits.View(-1, c.Count).CrossEntropy(labels.View(-1))
	case c.Count == 1:
		return logits.Squeeze(-1).MSELoss(labels, trace.ReduceMean)
	default:
		return logits.MSELoss(labels, trace.ReduceMean)
	}
}

// errNoPadding is the error that transformers raises for several rows and no padding
// token.
var errNoPadding = errors.New(
	"ValueError: Cannot handle batch sizes > 1 if no padding token is defined: pad_token_id is not set")

// lastTokenScores picks the scores [batch, classes] of the last token of each row that
// is not padding, from scores [batch, length, classes] of all tokens, as a decoder's
// classification model does in its frame. Without a padding token it is the last token,
// and the batch has a single row.
func lastTokenScores(f *frame, ids, scores *tensor, padToken bool) *tensor {
	t := f.Tape()
	if !padToken {
		if ids.Size(0) != 1 {
			t.Raise(errNoPadding)
		}
		return f.Let(scores.Select(1, -1).Index(t.Arange(1)))
	}
	words := f.Let(ids.EqScalar().To(trace.I32))
	order := f.Let(t.Filled("arange", trace.I32, ids.Size(1)))
	last := f.Let(order.Mul(words).ArgMax(false, -1))
	return f.Let(scores.Index(t.Arange(ids.Size(0)), last))
}
