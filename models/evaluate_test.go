package models

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestEvaluationsComeBackFromTheirText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := Evaluation{
			Batch:  rapid.IntRange(1, maxEvaluatedBatch).Draw(t, "batch"),
			Scores: rapid.IntRange(0, maxKeptScores).Draw(t, "scores"),
		}
		if e.Scores == 0 {
			e.NewTokens = rapid.IntRange(0, maxNewTokens).Draw(t, "new-tokens")
		}
		again, err := ParseEvaluation(e.String())
		require.NoError(t, err)
		require.Equal(t, e, again)
	})
}

func TestAnEvaluationCanBeLeftOut(t *testing.T) {
	e, err := ParseEvaluation("none")
	require.NoError(t, err)
	require.Equal(t, "none", e.String())
	require.False(t, e.IsZero(), "which is told apart from an evaluation that nobody named")
}

func TestBadEvaluationsAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"":                      `"" is not key=value; the options are batch, scores, new-tokens`,
		"8":                     `"8" is not key=value`,
		"batch=0":               `batch: "0" is not a whole number from 1`,
		"scores=1000":           `scores: "1000" is not a whole number from 1 to 256`,
		"batch=8,batch=8":       "batch: given twice",
		"scores=2,new-tokens=8": "a trainer that generates text stores no logits",
	} {
		_, err := ParseEvaluation(text)
		require.ErrorContains(t, err, want, text)
	}
}
