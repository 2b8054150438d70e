package pt2_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/pt2"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// The stages of a pipeline have every parameter once, but for tied ones, and the first
// holds most micro-batches.
func TestStagesShareOutTheModel(t *testing.T) {
	board := trace.Board{Name: "a100-80", Capability: 80, SMs: 108, ThreadsPerSM: 2048, Memory: 80 << 30}
	m, err := pt2.Open("testdata/own-gpt-8x768.pt2")
	require.NoError(t, err)
	var weights int64
	var activations []int64
	for rank := range int64(4) {
		s := models.Strategy{Name: models.PP, Rank: &rank, Micro: 4}
		r, err := m.Record(models.Case{Batch: 2, Loss: pt2.TokenCrossEntropy, Accumulate: 1, GPUs: 4, Strategy: &s}, board, models.Options{})
		require.NoError(t, err)
		require.NoError(t, r.Program.Validate())
		var held int64
		for _, b := range r.Program.Buffers {
			if b.Class == program.Weights {
				weights += b.Bytes
			}
			if b.Class == program.Activations {
				held += b.Bytes
			}
		}
		activations = append(activations, held)
	}
	require.Equal(t, int64(81673728*4), weights)
	require.Len(t, activations, 4)

	s := models.Strategy{Name: models.PP}
	worst, err := m.Record(models.Case{Batch: 2, Loss: pt2.TokenCrossEntropy, Accumulate: 1, GPUs: 4, Strategy: &s}, board, models.Options{})
	require.NoError(t, err)
	require.Equal(t, int64(3), *worst.Case.Strategy.Rank) // that with the scores of every token
	_, err = m.Record(models.Case{Batch: 2, Loss: pt2.TokenCrossEntropy, Accumulate: 1, GPUs: 9, Strategy: &s}, board, models.Options{})
	require.ErrorContains(t, err, "has at least a block in each, and the model has 8")
}
