package remedy

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/steptest"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
)

// The toy's batch 16 needs 304 MiB allocated: 64 and 15 per sample. Batch 8
// needs 120 less, checkpointing 8 per sample, half precision 5 per sample; the
// cache and what lies in it may add to that.
func TestRemediesSaveWhatTheCaseWouldNeedLess(t *testing.T) {
	saves := map[string]int64{}
	remedies, err := For(t.Context(), steptest.Toy(t, models.Case{}, ""), steptest.Card(800), 16)
	require.NoError(t, err)
	for _, r := range remedies {
		saves[r.What] = r.Saves
	}
	require.Len(t, remedies, 6)
	require.GreaterOrEqual(t, saves["batch 8 instead of 16"], int64(120*steptest.MiB))
	require.GreaterOrEqual(t, saves["gradient checkpointing"], int64(8*16*steptest.MiB))
	require.GreaterOrEqual(t, saves["autocast in fp16"], int64(5*16*steptest.MiB))
}

// The guides lower the negatives of the NAICS embedder by a third.
func TestRemediesOfAModelIncludeItsOwn(t *testing.T) {
	m, err := all.Models().Lookup("naics-embedder-stage01")
	require.NoError(t, err)
	setup, err := step.New(m, models.Case{Batch: 1, Accumulate: 1}, steptest.Exact())
	require.NoError(t, err)
	gpu, err := device.Lookup("a100-40")
	require.NoError(t, err)
	remedies, err := For(t.Context(), setup, gpu, 1)
	require.NoError(t, err)
	require.Equal(t, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", remedies[0].What, "what costs nothing comes first")
	own := slices.IndexFunc(remedies, func(r report.Remedy) bool { return r.What == "n-negatives 16 instead of 24" })
	require.Positive(t, own)
	require.Positive(t, remedies[own].Saves)
	more, err := Enlarge(t.Context(), setup, gpu, 1)
	require.NoError(t, err)
	require.Contains(t, more, "batch 2 instead of 1 needs ")
}
