package models

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Evaluation is what a trainer does between training steps: batches without gradients, in evaluation
// mode, as transformers' Trainer has them. The zero value is what the model's own system does.
type Evaluation struct {
	// Batch is the number of samples of a batch; zero is that of the model's system, or of training.
	Batch int
	// Scores is the number of batches whose scores are on the GPU at a time, as the Trainer keeps them for
	// compute_metrics: eval_accumulation_steps, or all batches. Zero is that the loss alone is kept.
	Scores int
	// NewTokens is the number of tokens that are generated behind each row (predict_with_generate), in place of a loss;
	// zero is none.
	NewTokens int
}

// mostEvaluated bounds the numbers of an evaluation, mostKept the batches whose scores are kept, each of
// which is recorded, and mostWritten the tokens that are generated.
const (
	mostEvaluated = 1 << 20
	mostKept      = 256
	mostWritten   = 1 << 17
)

// evaluationNumber is a number of an evaluation as its text has it, and the largest that it may be.
type evaluationNumber struct {
	name  string
	value *int
	most  int
}

func (e *Evaluation) numbers() []evaluationNumber {
	return []evaluationNumber{
		{"batch", &e.Batch, mostEvaluated}, {"scores", &e.Scores, mostKept}, {"new-tokens", &e.NewTokens, mostWritten},
	}
}

// ParseEvaluation reads an evaluation like "batch=8,scores=4".
func ParseEvaluation(text string) (e Evaluation, err error) {
	numbers := e.numbers()
	for option := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(option, "=")
		i := slices.IndexFunc(numbers, func(o evaluationNumber) bool { return o.name == name })
		if i < 0 {
			return e, fmt.Errorf("%q is no option of an evaluation; write batch=8,scores=4 or batch=8,new-tokens=128",
				option)
		}
		o := numbers[i]
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > o.most {
			return e, fmt.Errorf("%s: %q is not a number from 1 to %d", name, value, o.most)
		}
		if *o.value != 0 {
			return e, fmt.Errorf("%s is given twice", name)
		}
		*o.value = n
	}
	if e.Scores > 0 && e.NewTokens > 0 {
		return e, errors.New("scores and new-tokens: a trainer that generates takes no scores; give one of them")
	}
	return e, nil
}

// String returns the evaluation as [ParseEvaluation] reads it.
func (e Evaluation) String() string {
	var words []string
	for _, o := range e.numbers() {
		if *o.value != 0 {
			words = append(words, o.name+"="+strconv.Itoa(*o.value))
		}
	}
	return strings.Join(words, ",")
}

// Words returns what an evaluation keeps or makes besides its loss.
func (e Evaluation) Words() string {
	switch {
	case e.Scores > 0:
		return fmt.Sprintf("the scores of %d batches are kept", e.Scores)
	case e.NewTokens > 0:
		return fmt.Sprintf("%d tokens are generated behind each row", e.NewTokens)
	}
	return ""
}

// IsZero tells that nothing was said of evaluation.
func (e Evaluation) IsZero() bool { return e == Evaluation{} }

// MarshalText implements [encoding.TextMarshaler].
func (e Evaluation) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (e *Evaluation) UnmarshalText(text []byte) (err error) {
	*e, err = ParseEvaluation(string(text))
	return err
}

// checkEvaluation finds an evaluation that the model or the strategy cannot have.
func (l Levers) checkEvaluation(m *Model, c *Case) (field, reason string) {
	field = "evaluate"
	switch {
	case l.Evaluate.IsZero():
		return "", ""
	case c.Strategy != nil && c.Strategy.Name == PP:
		return field, "evaluation by the stages of a pipeline is not recorded"
	case l.Evaluate.NewTokens > 0 && (!m.Levers.Cache || !c.Objective.IsZero() ||
		len(m.Tasks) > 0 && c.Task != m.Tasks[0]):
		return field, "vprof records generation (new-tokens) of decoders of transformers that learn the next token " +
			"and have attention in every layer; this is none"
	case l.Evaluate.NewTokens > 0 && c.On("padding"):
		return field, "vprof records generation (new-tokens) behind rows without padding; leave out padding"
	case l.Evaluate.Scores > 0 && m.Levers.Loop == "":
		return field, "the scores that are kept for metrics are those of transformers' Trainer; " + ownLoop
	}
	return "", ""
}
