package pt2

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/aten"
)

func TestAGraphOfOneSizeIsValidatedAtThatAlone(t *testing.T) {
	graph := &task{c: models.Case{Model: "net.pt2", Batch: 4}, sizes: &dimensions{fixed: 4}}
	require.ErrorContains(t, graph.setBatch(8), "net.pt2 was exported with a batch of 4 alone")
}

func TestEvaluationTurnsOffWhatLooksAtTheMode(t *testing.T) {
	given := []aten.Arg{
		{Name: "input", Value: int64(1)},
		{Name: "dropout_p", Value: 0.1},
		{Name: "train", Value: true},
		{Name: "training", Value: true},
		{Name: "p", Value: 0.1},
	}
	setEvaluation(given)
	require.Equal(t, []aten.Arg{
		{Name: "input", Value: int64(1)},
		{Name: "dropout_p", Value: 0.0},
		{Name: "train", Value: false},
		{Name: "training", Value: false},
		{Name: "p", Value: 0.1},
	}, given)
}
