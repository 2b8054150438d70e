package models

import (
	"errors"
	"fmt"

	"github.com/vprof/vprof/internal/options"
)

// Evaluation describes the evaluation between training steps: forward passes in evaluation mode without gradients, as
// in transformers' Trainer. The zero value means the evaluation of the model's own project.
type Evaluation struct {
	// Batch is the number of samples of an evaluation batch; zero means the model's own evaluation batch or the
	// training batch.
	Batch int
	// InTrainingBatch evaluates in the batch size of training, also where fit changes it.
	InTrainingBatch bool
	// Scores is the number of batches whose logits stay on the GPU for compute_metrics: eval_accumulation_steps, or
	// all batches. Zero means that only losses are kept.
	Scores int
	// NewTokens is the number of tokens generated for each sequence (predict_with_generate) in place of a loss; zero
	// means no generation.
	NewTokens int
	// IsOff reports whether the user turned evaluation off.
	IsOff bool
}

// Texts of an evaluation that is left out, and of one in the batch of training.
const noEvaluation, inTrainingBatch = "none", "batch=training"

// maxEvaluatedBatch is the largest evaluation batch. maxKeptScores limits the batches whose logits are kept, since
// each of them is recorded. maxNewTokens limits generated tokens.
const (
	maxEvaluatedBatch = 1 << 20
	maxKeptScores     = 256
	maxNewTokens      = 1 << 17
)

// evaluationOptions holds the options of --set evaluate, in the order in which they are written.
var evaluationOptions = options.Table[Evaluation]{
	options.NewCount("batch", 1, maxEvaluatedBatch, func(e *Evaluation) *int { return &e.Batch }),
	options.NewCount("scores", 1, maxKeptScores, func(e *Evaluation) *int { return &e.Scores }),
	options.NewCount("new-tokens", 1, maxNewTokens, func(e *Evaluation) *int { return &e.NewTokens }),
}

// ParseEvaluation parses an evaluation like "batch=8,scores=4", or "none".
func ParseEvaluation(text string) (e Evaluation, err error) {
	if text == noEvaluation || text == inTrainingBatch {
		return Evaluation{IsOff: text == noEvaluation, InTrainingBatch: text == inTrainingBatch}, nil
	}
	if err := evaluationOptions.Read(&e, "", text); err != nil {
		return e, fmt.Errorf("%w; write options like batch=8,scores=4 or batch=8,new-tokens=128, or none for no "+
			"evaluation", err)
	}
	if e.Scores > 0 && e.NewTokens > 0 {
		return e, errors.New("scores and new-tokens are both given, but a trainer that generates text stores no " +
			"logits; leave out one of them")
	}
	return e, nil
}

// String returns the evaluation as [ParseEvaluation] reads it.
func (e Evaluation) String() string {
	switch {
	case e.IsOff:
		return noEvaluation
	case e.InTrainingBatch:
		return inTrainingBatch
	}
	return evaluationOptions.Format(&e)
}

// Summary describes the logits that an evaluation stores and the tokens that it generates, for a line about a case.
func (e Evaluation) Summary() string {
	switch {
	case e.Scores > 0:
		return fmt.Sprintf("the scores of %d batches are kept", e.Scores)
	case e.NewTokens > 0:
		return fmt.Sprintf("%d tokens are generated behind each row", e.NewTokens)
	}
	return ""
}

// IsZero reports whether the case leaves evaluation to the model's own project.
func (e Evaluation) IsZero() bool { return e == Evaluation{} }

// MarshalText returns the text of String, for [encoding.TextMarshaler].
func (e Evaluation) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText parses the text that MarshalText returns.
func (e *Evaluation) UnmarshalText(text []byte) error { return unmarshalText(e, text, ParseEvaluation) }
