package models

import (
	"errors"
	"fmt"

	"github.com/vprof/vprof/internal/options"
)

// Evaluation describes the evaluation between training steps: batches without gradients, in evaluation mode, as in
// transformers' Trainer. The zero value is the evaluation of the model's own system.
type Evaluation struct {
	// Batch is the number of samples of a batch; zero is the batch size of the model's system, or of training.
	Batch int
	// Scores is the number of batches whose scores are on the GPU at a time, as the Trainer keeps them for
	// compute_metrics: eval_accumulation_steps, or all batches. Zero is that the loss alone is kept.
	Scores int
	// NewTokens is the number of tokens that a row generates (predict_with_generate) instead of a loss; zero for none.
	NewTokens int
	// IsOff leaves evaluation out, which users who do not evaluate choose.
	IsOff bool
}

// noEvaluation is the text of an evaluation that is left out.
const noEvaluation = "none"

// maxEvaluatedBatch bounds the numbers of an evaluation, maxKeptScores the batches whose scores are kept, each of
// which is recorded, and maxNewTokens the tokens that are generated.
const (
	maxEvaluatedBatch = 1 << 20
	maxKeptScores     = 256
	maxNewTokens      = 1 << 17
)

// evaluationOptions holds the options, in the order in which they are written.
var evaluationOptions = options.Table[Evaluation]{
	options.Count("batch", 1, maxEvaluatedBatch, func(e *Evaluation) *int { return &e.Batch }),
	options.Count("scores", 1, maxKeptScores, func(e *Evaluation) *int { return &e.Scores }),
	options.Count("new-tokens", 1, maxNewTokens, func(e *Evaluation) *int { return &e.NewTokens }),
}

// ParseEvaluation reads an evaluation like "batch=8,scores=4", or none.
func ParseEvaluation(text string) (e Evaluation, err error) {
	if text == noEvaluation {
		return Evaluation{IsOff: true}, nil
	}
	if err := evaluationOptions.Read(&e, "", text); err != nil {
		return e, fmt.Errorf("%w, as in batch=8,scores=4 or batch=8,new-tokens=128; or none", err)
	}
	if e.Scores > 0 && e.NewTokens > 0 {
		return e, errors.New("scores and new-tokens: a trainer that generates text stores no logits; leave out one")
	}
	return e, nil
}

// String returns the evaluation as [ParseEvaluation] reads it.
func (e Evaluation) String() string {
	if e.IsOff {
		return noEvaluation
	}
	return evaluationOptions.Text(&e)
}

// Words describes what an evaluation stores or generates besides its loss.
func (e Evaluation) Words() string {
	switch {
	case e.Scores > 0:
		return fmt.Sprintf("the scores of %d batches are kept", e.Scores)
	case e.NewTokens > 0:
		return fmt.Sprintf("%d tokens are generated behind each row", e.NewTokens)
	}
	return ""
}

// IsZero reports whether the case sets no evaluation.
func (e Evaluation) IsZero() bool { return e == Evaluation{} }

// MarshalText implements [encoding.TextMarshaler].
func (e Evaluation) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (e *Evaluation) UnmarshalText(text []byte) error { return unmarshal(e, text, ParseEvaluation) }
