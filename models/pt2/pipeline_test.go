package pt2_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/pt2"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// The stages of a pipeline have every parameter once, but for tied ones, and the first holds most micro-batches.
func TestStagesShareOutTheModel(t *testing.T) {
	gpu := trace.GPU{Name: "a100-80", Capability: 80, SMs: 108, ThreadsPerSM: 2048, Memory: 80 << 30}
	m, err := pt2.Open("testdata/own-gpt-8x768.pt2")
	require.NoError(t, err)
	var weights int64
	var activations []int64
	for rank := range int64(4) {
		s := models.Strategy{Name: models.PP, Rank: &rank, Micro: 4}
		r, err := m.Record(models.Case{Batch: 2, Loss: pt2.TokenCrossEntropy, Accumulate: 1, GPUs: 4, Strategy: &s},
			gpu, models.Options{})
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
	worst, err := m.Record(models.Case{Batch: 2, Loss: pt2.TokenCrossEntropy, Accumulate: 1, GPUs: 4, Strategy: &s},
		gpu, models.Options{})
	require.NoError(t, err)
	require.Equal(t, int64(3), *worst.Case.Strategy.Rank) // that with the scores of every token
	_, err = m.Record(models.Case{Batch: 2, Loss: pt2.TokenCrossEntropy, Accumulate: 1, GPUs: 9, Strategy: &s}, gpu,
		models.Options{})
	require.ErrorContains(t, err, "needs a block in each, but the model has only 8 blocks; use fewer GPUs or stages")
}

// Ranks of an interleaved pipeline have several stages, between them every parameter once,
// and the first holds more micro-batches than with one stage.
func TestInterleavedStagesShareOutTheModel(t *testing.T) {
	gpu := trace.GPU{Name: "a100-80", Capability: 80, SMs: 108, ThreadsPerSM: 2048, Memory: 80 << 30}
	m, err := pt2.Open("testdata/own-gpt-8x768.pt2")
	require.NoError(t, err)
	record := func(s models.Strategy, mod func(*models.Case)) (*models.Recording, error) {
		c := models.Case{Batch: 2, Loss: pt2.TokenCrossEntropy, Accumulate: 1, GPUs: 2, Strategy: &s}
		mod(&c)
		return m.Record(c, gpu, models.Options{})
	}
	plain := func(*models.Case) {}
	var weights int64
	for rank := range int64(2) {
		r, err := record(models.Strategy{Name: models.PP, Rank: &rank, Micro: 4, Schedule: models.Interleaved}, plain)
		require.NoError(t, err)
		require.NoError(t, r.Program.Validate())
		for _, b := range r.Program.Buffers {
			if b.Class == program.Weights {
				weights += b.Bytes
			}
		}
	}
	require.Equal(t, int64(81673728*4), weights)

	// Adapters go with their layers, clipping covers the rank's own gradients, and fp16's scale has no place.
	for rank := range int64(2) {
		s := models.Strategy{Name: models.PP, Rank: &rank, Micro: 2}
		r, err := record(s, func(c *models.Case) { c.LoRA, c.Clip = &models.LoRA{Rank: 4}, models.ClipNorm })
		require.NoError(t, err)
		require.NoError(t, r.Program.Validate())
		_, err = record(s, func(c *models.Case) { c.AMP = "fp16" })
		require.ErrorContains(t, err, "use bf16")
	}

	zero := int64(0)
	peaks := map[string]int64{}
	for _, schedule := range []string{"", models.Interleaved} {
		for name, mod := range map[string]func(*models.Case){"plain": plain, "checkpointed": func(c *models.Case) {
			c.Checkpointing = true
		}} {
			r, err := record(models.Strategy{Name: models.PP, Rank: &zero, Micro: 4, Schedule: schedule}, mod)
			require.NoError(t, err)
			peaks[name+schedule] = r.Program.Peak()
		}
	}
	require.Greater(t, peaks["plain"+models.Interleaved], peaks["plain"])
	require.Less(t, peaks["checkpointed"+models.Interleaved], peaks["plain"+models.Interleaved])

	_, err = record(models.Strategy{Name: models.PP, Rank: &zero, Schedule: models.Interleaved, Stages: 5}, plain)
	require.ErrorContains(t, err, "a pipeline of 10 stages needs a block in each, but the model has only 8 blocks; use fewer GPUs or stages")
	_, err = record(models.Strategy{Name: models.PP, Rank: &zero, Micro: 5, Schedule: models.Interleaved}, plain)
	require.ErrorContains(t, err, "5 micro-batches (micro=) cannot be divided among 2 ranks in 2 rounds, as schedule=interleaved requires; use a multiple of the number of ranks")
	_, err = record(models.Strategy{Name: models.PP, Rank: &zero, Stages: 2}, plain)
	require.ErrorContains(t, err, "stages=2 needs schedule=interleaved")
}
